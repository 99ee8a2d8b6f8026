#include <gtest/gtest.h>
#include <xmmintrin.h>

#include <bit>
#include <cmath>
#include <string>
#include <vector>

#include "checks/ops/op_case.h"
#include "engine/base/dtype.h"
#include "engine/ops/matmul.h"

namespace checks::ops {
namespace {

using engine::ops::Weight;
using engine::ops::WeightKind;

// A weight of any kind with its bytes and its values, widened here and not by the engine.
struct AnyWeight {
  AnyWeight(WeightKind kind_of, std::int64_t rows, std::int64_t cols) : kind(kind_of) {
    const engine::base::CounterRng rng(3, "weight");
    const auto count = static_cast<std::size_t>(rows * cols);
    values.resize(count);
    switch (kind) {
      case WeightKind::kF32:
        f32 = values = random_values("weight", rows * cols, 1.0f);
        break;
      case WeightKind::kBf16:
        for (const float value : random_values("weight", rows * cols, 1.0f)) {
          bf16.push_back(engine::base::float_to_bf16(value));
        }
        for (std::size_t i = 0; i < count; ++i) {
          values[i] = std::bit_cast<float>(static_cast<std::uint32_t>(bf16[i]) << 16);
        }
        break;
      case WeightKind::kMxfp4:
        for (std::size_t i = 0; i < count / 2; ++i) {
          codes.push_back(static_cast<std::uint8_t>(rng.bits(i)));
        }
        for (std::size_t i = 0; i < count / 32; ++i) {
          scales.push_back(static_cast<std::uint8_t>(124 + rng.bits(i) % 6));
        }
        for (std::size_t i = 0; i < count; ++i) {
          static constexpr float kMagnitude[] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};
          const int code = (codes[i / 2] >> (i % 2 == 0 ? 0 : 4)) & 15;
          const float magnitude = kMagnitude[code & 7] * std::ldexp(1.0f, scales[i / 32] - 127);
          values[i] = code < 8 ? magnitude : -magnitude;
        }
        break;
    }
    weight = {kind, nullptr, scales.data(), rows, cols};
    weight.data = kind == WeightKind::kF32    ? static_cast<const void*>(f32.data())
                  : kind == WeightKind::kBf16 ? static_cast<const void*>(bf16.data())
                                              : static_cast<const void*>(codes.data());
  }
  AnyWeight(const AnyWeight&) = delete;
  AnyWeight& operator=(const AnyWeight&) = delete;

  float at(std::int64_t o, std::int64_t i) const {
    return values[static_cast<std::size_t>(o * weight.cols + i)];
  }

  WeightKind kind;
  std::vector<float> f32, values;
  std::vector<std::uint16_t> bf16;
  std::vector<std::uint8_t> codes, scales;
  Weight weight;
};

// A product and what goes into it, forward and backward.
struct Case {
  Case(WeightKind kind, std::int64_t tokens_of, std::int64_t rows, std::int64_t cols)
      : tokens(tokens_of),
        w(kind, rows, cols),
        x(random_values("x", tokens * cols, 2.0f)),
        d_y(random_values("d_y", tokens * rows, 2.0f)),
        d_x(random_values("d_x", tokens * cols, 1.0f)) {}

  std::vector<float> forward() const {
    std::vector<float> y(d_y.size(), 7.0f);
    engine::ops::matmul_forward(x, w.weight, y, tokens);
    return y;
  }
  std::vector<float> backward() const {
    std::vector<float> sum = d_x;
    engine::ops::matmul_backward(d_y, w.weight, sum, tokens);
    return sum;
  }
  std::string name() const {
    const char* kinds[] = {"f32", "bf16", "mxfp4"};
    return std::string(kinds[static_cast<int>(w.kind)]) + " " + std::to_string(tokens) + "x" +
           std::to_string(w.weight.cols) + "x" + std::to_string(w.weight.rows);
  }

  std::int64_t tokens;
  AnyWeight w;
  std::vector<float> x, d_y, d_x;
};

// Wrong orders; kNone is the one that matmul.h writes down.
enum class Fault { kNone, kOneChain, kEightSums, kSeparateMultiply, kStartAtZero };

std::vector<float> plain_forward(const Case& c, Fault fault) {
  const std::int64_t rows = c.w.weight.rows, cols = c.w.weight.cols;
  const std::int64_t lanes = fault == Fault::kOneChain ? 1 : fault == Fault::kEightSums ? 8 : 16;
  std::vector<float> y;
  for (std::int64_t t = 0; t < c.tokens; ++t) {
    for (std::int64_t o = 0; o < rows; ++o) {
      std::vector<float> sums(static_cast<std::size_t>(lanes), 0.0f);
      for (std::int64_t i = 0; i < cols; ++i) {
        float& sum = sums[static_cast<std::size_t>(i % lanes)];
        const float at = c.x[static_cast<std::size_t>(t * cols + i)];
        sum = fault == Fault::kSeparateMultiply ? sum + at * c.w.at(o, i)
                                                : std::fma(at, c.w.at(o, i), sum);
      }
      for (std::size_t half = sums.size() / 2; half > 0; half /= 2) {
        for (std::size_t r = 0; r < half; ++r) sums[r] += sums[r + half];
      }
      y.push_back(sums[0]);
    }
  }
  return y;
}

std::vector<float> plain_backward(const Case& c, Fault fault) {
  const std::int64_t rows = c.w.weight.rows, cols = c.w.weight.cols;
  std::vector<float> d_x = c.d_x;
  for (std::int64_t t = 0; t < c.tokens; ++t) {
    for (std::int64_t i = 0; i < cols; ++i) {
      float& at = d_x[static_cast<std::size_t>(t * cols + i)];
      float sum = fault == Fault::kStartAtZero ? 0.0f : at;
      for (std::int64_t o = 0; o < rows; ++o) {
        const float d = c.d_y[static_cast<std::size_t>(t * rows + o)];
        sum = fault == Fault::kSeparateMultiply ? sum + d * c.w.at(o, i)
                                                : std::fma(d, c.w.at(o, i), sum);
      }
      at = fault == Fault::kStartAtZero ? at + sum : sum;
    }
  }
  return d_x;
}

// A sum of n products in any order of fma is within gamma_n sum |x| |w| of the exact one,
// gamma_n = n u / (1 - n u), u = 2^-24 (Higham, Accuracy and Stability, 3.1 and 3.5).
double gamma(std::int64_t n) {
  const double nu = static_cast<double>(n) * 0x1p-24;
  return nu / (1.0 - nu);
}

// forward's longest chain is a lane's fma and the four additions of the tree.
Comparison forward_within_bound(const Case& c, const std::vector<float>& got) {
  const std::int64_t rows = c.w.weight.rows, cols = c.w.weight.cols;
  std::vector<double> want, allowed;
  for (std::int64_t t = 0; t < c.tokens; ++t) {
    for (std::int64_t o = 0; o < rows; ++o) {
      double sum = 0.0, size = 0.0;
      for (std::int64_t i = 0; i < cols; ++i) {
        const double product = double{c.x[static_cast<std::size_t>(t * cols + i)]} * c.w.at(o, i);
        sum += product;
        size += std::abs(product);
      }
      want.push_back(sum);
      allowed.push_back(gamma((cols + 15) / 16 + 4) * size);
    }
  }
  return compare(widen(got), want, allowed);
}

Comparison backward_within_bound(const Case& c, const std::vector<float>& got) {
  const std::int64_t rows = c.w.weight.rows, cols = c.w.weight.cols;
  std::vector<double> want, allowed;
  for (std::int64_t t = 0; t < c.tokens; ++t) {
    for (std::int64_t i = 0; i < cols; ++i) {
      double sum = c.d_x[static_cast<std::size_t>(t * cols + i)];
      double size = std::abs(sum);
      for (std::int64_t o = 0; o < rows; ++o) {
        const double product = double{c.d_y[static_cast<std::size_t>(t * rows + o)]} * c.w.at(o, i);
        sum += product;
        size += std::abs(product);
      }
      want.push_back(sum);
      allowed.push_back(gamma(rows) * size);
    }
  }
  return compare(widen(got), want, allowed);
}

// Row counts below, at and above every block of the kernels, columns with and without a tail, and
// products larger than a tile or a batch in each direction.
struct Shape {
  std::int64_t tokens, rows, cols;
};
const std::vector<Shape> kOddShapes = {
    {1, 1, 1},     {1, 5, 17},    {2, 3, 15},    {3, 7, 33},    {4, 16, 64},   {5, 9, 70},
    {6, 4, 16},    {7, 21, 100},  {9, 67, 31},   {67, 5, 48},   {5, 3, 2051},  {6, 131, 600},
    {131, 9, 40},  {20, 70, 48},  {4, 8, 1100},  {33, 9, 2051}, {40, 131, 70}, {8, 70, 33},
    {32, 7, 5121}, {32, 21, 100}, {1, 19, 2051}, {2, 19, 100}};
const std::vector<Shape> kWholeGroups = {{1, 1, 32},    {1, 7, 96},    {2, 5, 64},    {3, 3, 32},
                                         {4, 17, 128},  {5, 9, 160},   {70, 6, 64},   {5, 5, 2080},
                                         {6, 131, 608}, {131, 9, 64},  {20, 70, 64},  {4, 8, 1056},
                                         {33, 9, 2080}, {40, 131, 64}, {8, 70, 96},   {32, 7, 5152},
                                         {9, 67, 64},   {32, 21, 96},  {1, 19, 2080}, {2, 19, 160}};

template <class Body>
void for_every_case(Body body) {
  for (const WeightKind kind : {WeightKind::kF32, WeightKind::kBf16, WeightKind::kMxfp4}) {
    for (const auto& [tokens, rows, cols] :
         kind == WeightKind::kMxfp4 ? kWholeGroups : kOddShapes) {
      body(Case(kind, tokens, rows, cols));
    }
  }
}

TEST(Matmul, HasTheWrittenOrder) {
  for_every_case([](const Case& c) {
    const Comparison forward = same_bits(c.forward(), plain_forward(c, Fault::kNone));
    const Comparison backward = same_bits(c.backward(), plain_backward(c, Fault::kNone));
    EXPECT_TRUE(forward) << c.name() << ": " << forward.why;
    EXPECT_TRUE(backward) << c.name() << ": " << backward.why;
  });
}

TEST(Matmul, WithinTheDerivedBound) {
  for_every_case([](const Case& c) {
    const Comparison forward = forward_within_bound(c, c.forward());
    const Comparison backward = backward_within_bound(c, c.backward());
    EXPECT_TRUE(forward) << c.name() << ": " << forward.why;
    EXPECT_TRUE(backward) << c.name() << ": " << backward.why;
  });
}

TEST(Matmul, SameBitsEverywhere) {
  for_every_case([](const Case& c) {
    const Comparison bits = same_bits_everywhere([&] {
      std::vector<float> all = c.forward();
      append(all, c.backward());
      return all;
    });
    EXPECT_TRUE(bits) << c.name() << ": " << bits.why;
  });
}

TEST(Matmul, ATokenAloneHasTheBitsOfTheBatch) {
  for_every_case([](const Case& c) {
    const std::int64_t rows = c.w.weight.rows, cols = c.w.weight.cols;
    std::vector<float> forward, backward = c.d_x;
    for (std::int64_t t = 0; t < c.tokens; ++t) {
      std::vector<float> y(static_cast<std::size_t>(rows));
      engine::ops::matmul_forward(ops::rows(c.x, cols, t), c.w.weight, y, 1);
      append(forward, y);
      engine::ops::matmul_backward(ops::rows(c.d_y, rows, t), c.w.weight,
                                   std::span(backward).subspan(static_cast<std::size_t>(t * cols),
                                                               static_cast<std::size_t>(cols)),
                                   1);
    }
    EXPECT_TRUE(same_bits(forward, c.forward())) << c.name();
    EXPECT_TRUE(same_bits(backward, c.backward())) << c.name();
  });
}

TEST(Matmul, BackwardByBandsHasTheBitsOfTheWhole) {
  for_every_case([](const Case& c) {
    std::vector<float> d_x = c.d_x;
    const std::int64_t row_bytes = c.w.kind == WeightKind::kF32    ? 4 * c.w.weight.cols
                                   : c.w.kind == WeightKind::kBf16 ? 2 * c.w.weight.cols
                                                                   : c.w.weight.cols / 2;
    for (std::int64_t first = 0; first < c.w.weight.rows; first += 3) {
      Weight band = c.w.weight;
      band.rows = std::min<std::int64_t>(3, c.w.weight.rows - first);
      band.data = static_cast<const std::byte*>(band.data) + first * row_bytes;
      if (c.w.kind == WeightKind::kMxfp4) band.scale += first * band.cols / 32;
      std::vector<float> d_y;
      for (std::int64_t t = 0; t < c.tokens; ++t) {
        const auto row = ops::rows(c.d_y, c.w.weight.rows, t);
        append(d_y,
               row.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(band.rows)));
      }
      engine::ops::matmul_backward(d_y, band, d_x, c.tokens);
    }
    EXPECT_TRUE(same_bits(d_x, c.backward())) << c.name();
  });
}

// 2^-130 and its kind in bf16, times 1: nothing is flushed, whatever a library did to the caller's
// mode.
TEST(Matmul, E8SubnormalBf16WeightsAreKept) {
  std::vector<std::uint16_t> bits;
  for (std::uint16_t i = 1; i <= 64; ++i) bits.push_back(i);  // i 2^-133
  const Weight w = {WeightKind::kBf16, bits.data(), nullptr, 64, 1};
  const std::vector<float> one = {1.0f};
  std::vector<float> want;
  for (int i = 1; i <= 64; ++i) want.push_back(std::ldexp(static_cast<float>(i), -133));
  const Comparison kept = same_bits_everywhere([&] {
    std::vector<float> y(64);
    const unsigned mode = _mm_getcsr();
    _mm_setcsr(mode | 0x8040u);
    engine::ops::matmul_forward(one, w, y, 1);
    _mm_setcsr(mode);
    EXPECT_TRUE(same_bits(y, want));
    return y;
  });
  EXPECT_TRUE(kept) << kept.why;
}

TEST(Matmul, PlantedFaults) {
  const Case c(WeightKind::kBf16, 5, 9, 200);
  for (const Fault fault : {Fault::kOneChain, Fault::kEightSums, Fault::kSeparateMultiply}) {
    EXPECT_FALSE(same_bits(c.forward(), plain_forward(c, fault)));
  }
  for (const Fault fault : {Fault::kSeparateMultiply, Fault::kStartAtZero}) {
    EXPECT_FALSE(same_bits(c.backward(), plain_backward(c, fault)));
  }
  // Weights cut to 8 bits of fraction less than they have, as bf16 activations would be.
  Case rounded(WeightKind::kF32, 5, 9, 200);
  for (float& value : rounded.w.f32) {
    value = engine::base::bf16_to_float(engine::base::float_to_bf16(value));
  }
  EXPECT_FALSE(forward_within_bound(rounded, rounded.forward()));
  EXPECT_FALSE(backward_within_bound(rounded, rounded.backward()));
}

}  // namespace
}  // namespace checks::ops
