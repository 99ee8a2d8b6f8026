// Subnormal numbers are numbers: nothing flushes them, and a process that would is refused.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <xmmintrin.h>

#include <cmath>
#include <vector>

#include "checks/compare.h"
#include "checks/engine_run.h"
#include "engine/base/float_mode.h"
#include "engine/cli/common.h"
#include "engine/ops/kda.h"
#include "engine/ops/rmsnorm.h"

namespace {

constexpr unsigned kFlushToZero = 0x8000;
constexpr unsigned kDenormalsAreZero = 0x0040;

// The mode of this thread, restored whatever a test does to it.
class Restored {
 public:
  Restored() : saved_(_mm_getcsr()) {}
  ~Restored() { _mm_setcsr(saved_); }

 private:
  unsigned saved_;
};

TEST(FloatMode, CaseE4AProcessThatFlushesIsRefusedAtTheStart) {
  const Restored restored;
  EXPECT_NO_THROW(engine::cli::apply_machine_options({}));
  for (const unsigned bits : {kFlushToZero, kDenormalsAreZero}) {
    _mm_setcsr(engine::base::kCanonicalMxcsr | bits);
    EXPECT_THAT([] { engine::cli::apply_machine_options({}); },
                testing::ThrowsMessage<engine::base::Error>(testing::HasSubstr("MXCSR")));
  }
}

TEST(FloatMode, CaseE4AModeSetLaterChangesNoBitOfASweep) {
  checks::Engine engine(checks::tiny_checkpoint());
  const auto batch = checks::forward_batch(checks::random_ids(9, 512, 4));
  const auto bits = [&] {
    const auto adapters = checks::random_adapter_set(engine, 4, 8.0, 3);
    auto run = checks::run_backward(engine, batch, *adapters);
    for (const auto& tensor : adapters->tensors()) {
      run.logits.insert(run.logits.end(), tensor.gradient.begin(), tensor.gradient.end());
    }
    return run.logits;
  };
  const std::vector<float> want = bits();
  const Restored restored;
  _mm_setcsr(engine::base::kCanonicalMxcsr | kFlushToZero | kDenormalsAreZero);
  const std::vector<float> got = bits();
  EXPECT_EQ(engine::base::float_mode() & kFlushToZero, kFlushToZero)
      << "the caller's mode is its own";
  EXPECT_TRUE(checks::same_bits(got, want));
}

TEST(FloatMode, CaseE8SubnormalNormWeights) {
  const float tiny = 0x1.8p-140f;
  const std::vector<float> x = {3.0f, -4.0f, 5.0f, 1.0f};
  const std::vector<float> w(x.size(), tiny);
  std::vector<float> y(x.size()), inv(1);
  engine::ops::rmsnorm_forward(x, w, 1e-5f, y, inv);
  const double root = std::sqrt((9.0 + 16.0 + 25.0 + 1.0) / 4.0 + 1e-5);
  for (std::size_t i = 0; i < x.size(); ++i) {
    // w x is exact to half a unit of the subnormal grid, the product with inv to another.
    EXPECT_NEAR(y[i], tiny * x[i] / root, 2 * 0x1p-149);
    EXPECT_NE(y[i], 0.0f);
  }
}

// exp(A_log) of a subnormal is 1: flushing A_log would go unseen here, flushing its gradient's factor
// would not. What must hold is that a subnormal z reaches the gate's slope.
TEST(FloatMode, CaseE8SubnormalDecayInputs) {
  const std::vector<float> z = {0x1p-140f}, a_log = {0x1p-130f}, bias = {0.0f};
  std::vector<float> g(1), alpha(1), d_z(1);
  engine::ops::kda_gate_forward(z, a_log, bias, -5.0f, {1, 1}, g, alpha);
  EXPECT_NEAR(g[0], -2.5, 1e-6);
  const std::vector<float> d_g = {0x1p-120f};
  engine::ops::kda_gate_backward(d_g, z, a_log, bias, -5.0f, {1, 1}, d_z);
  EXPECT_NEAR(d_z[0] / 0x1p-120f, -5.0 * 0.25, 1e-6);
  const std::vector<float> smaller = {0x1p-140f};
  engine::ops::kda_gate_backward(smaller, z, a_log, bias, -5.0f, {1, 1}, d_z);
  EXPECT_NEAR(static_cast<double>(d_z[0]), 0x1p-140 * -1.25, 2 * 0x1p-149);
}

}  // namespace
