#include <gtest/gtest.h>
#include <xmmintrin.h>

#include <cmath>
#include <limits>
#include <vector>

#include "checks/ops/op_case.h"
#include "engine/base/float_mode.h"
#include "engine/base/lanes.h"
#include "engine/base/parallel.h"

namespace checks::ops {
namespace {

namespace lane = engine::base::LAZYLORA_ISA;

// 16 partial sums, then pairs at the given distances: 8 4 2 1 is the tree of lanes.h.
float plain_dot(const std::vector<float>& x, const std::vector<float>& y,
                const std::vector<int>& distances) {
  float sums[16] = {};
  for (std::size_t i = 0; i < x.size(); ++i) sums[i % 16] = std::fma(x[i], y[i], sums[i % 16]);
  for (const int distance : distances) {
    for (int r = 0; r < 16; ++r) {
      if ((r & distance) == 0) sums[r] += sums[r + distance];
    }
  }
  return sums[0];
}

std::vector<float> dots(std::int64_t sizes) {
  std::vector<float> out;
  for (std::int64_t n = 1; n <= sizes; ++n) {
    const auto x = random_values("dot x", n, 1.0f);
    const auto y = random_values("dot y", n, 1.0f);
    out.push_back(engine::ops::kernels().matmul.dot(x.data(), y.data(), n));
  }
  return out;
}

std::vector<float> plain_dots(std::int64_t sizes, const std::vector<int>& distances) {
  std::vector<float> out;
  for (std::int64_t n = 1; n <= sizes; ++n) {
    out.push_back(
        plain_dot(random_values("dot x", n, 1.0f), random_values("dot y", n, 1.0f), distances));
  }
  return out;
}

TEST(Lanes, DotHasTheWrittenOrder) {
  const Comparison written = same_bits(dots(100), plain_dots(100, {8, 4, 2, 1}));
  EXPECT_TRUE(written) << written.why;
  const Comparison everywhere = same_bits_everywhere([] { return dots(100); });
  EXPECT_TRUE(everywhere) << everywhere.why;
}

TEST(Lanes, Axpy) {
  const Comparison everywhere = same_bits_everywhere([] {
    std::vector<float> all;
    for (std::int64_t n = 1; n <= 50; ++n) {
      const auto x = random_values("axpy x", n, 1.0f);
      auto sum = random_values("axpy sum", n, 1.0f);
      const auto before = sum;
      engine::ops::kernels().matmul.axpy(0.3f, x.data(), sum.data(), n);
      for (std::size_t i = 0; i < sum.size(); ++i) {
        EXPECT_EQ(sum[i], std::fma(0.3f, x[i], before[i]));
      }
      append(all, sum);
    }
    return all;
  });
  EXPECT_TRUE(everywhere) << everywhere.why;
}

// The smallest and largest powers, NaN and signed zeros in the scalar lanes, which the others
// match.
TEST(Lanes, ExactPrimitives) {
  float out[lane::kLanes];
  lane::store(out, lane::exp2_integer(lane::broadcast(-126.0f)));
  EXPECT_EQ(out[0], 0x1p-126f);
  lane::store(out, lane::exp2_integer(lane::broadcast(127.0f)));
  EXPECT_EQ(out[15], 0x1p127f);
  lane::store(out, lane::round_to_nearest(lane::broadcast(2.5f)));
  EXPECT_EQ(out[0], 2.0f);
  const float source[3] = {1.0f, 2.0f, 3.0f};
  lane::store(out, lane::load(source, 3));
  EXPECT_EQ(out[2], 3.0f);
  EXPECT_EQ(out[3], 0.0f);
}

// Flush-to-zero and denormals-are-zero, as a library loaded later may leave them.
class FlushedMode {
 public:
  FlushedMode() : saved_(_mm_getcsr()) { _mm_setcsr(saved_ | 0x8040u); }
  ~FlushedMode() { _mm_setcsr(saved_); }
  FlushedMode(const FlushedMode&) = delete;
  FlushedMode& operator=(const FlushedMode&) = delete;

 private:
  unsigned saved_;
};

TEST(Lanes, E4ParallelRegionsRestoreTheFloatMode) {
  const int before = engine::base::threads();
  for (const int threads : {1, 4}) {
    engine::base::set_threads(threads);
    const FlushedMode library;
    EXPECT_FALSE(engine::base::float_mode_is_canonical());
    std::vector<int> canonical(64);
    engine::base::parallel_for(64, [&](std::int64_t i) {
      canonical[static_cast<std::size_t>(i)] = engine::base::float_mode_is_canonical() ? 1 : 0;
    });
    EXPECT_EQ(canonical, std::vector<int>(64, 1)) << threads << " threads";
    EXPECT_EQ(engine::base::float_mode(), engine::base::kCanonicalMxcsr | 0x8040u);
  }
  engine::base::set_threads(before);
  EXPECT_TRUE(engine::base::float_mode_is_canonical());
}

TEST(Lanes, PlantedFaults) {
  EXPECT_FALSE(same_bits(dots(100), plain_dots(100, {1, 2, 4, 8})));
  std::vector<float> sequential;
  for (std::int64_t n = 1; n <= 100; ++n) {
    const auto x = random_values("dot x", n, 1.0f);
    const auto y = random_values("dot y", n, 1.0f);
    float sum = 0.0f;
    for (std::size_t i = 0; i < x.size(); ++i) sum = std::fma(x[i], y[i], sum);
    sequential.push_back(sum);
  }
  EXPECT_FALSE(same_bits(dots(100), sequential));
}

}  // namespace
}  // namespace checks::ops
