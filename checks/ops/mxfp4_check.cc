#include <gtest/gtest.h>
#include <xmmintrin.h>

#include <cmath>
#include <string>
#include <vector>

#include "checks/ops/op_case.h"
#include "engine/ops/matmul.h"
#include "engine/ops/mxfp4.h"

namespace checks::ops {
namespace {

using engine::ops::Mxfp4Scan;
using engine::ops::Weight;
using engine::ops::WeightKind;

struct Packed {
  std::int64_t rows = 0, cols = 0;
  std::vector<std::uint8_t> codes, scales;

  // Every group holds `code` in all places under the scale byte s.
  static Packed constant(std::int64_t rows, std::int64_t cols, int code, int s) {
    return {rows, cols,
            std::vector<std::uint8_t>(static_cast<std::size_t>(rows * cols / 2),
                                      static_cast<std::uint8_t>(code | (code << 4))),
            std::vector<std::uint8_t>(static_cast<std::size_t>(rows * cols / 32),
                                      static_cast<std::uint8_t>(s))};
  }
  Weight weight() const { return {WeightKind::kMxfp4, codes.data(), scales.data(), rows, cols}; }
  std::vector<float> decoded() const {
    std::vector<float> all(static_cast<std::size_t>(rows * cols));
    for (std::int64_t o = 0; o < rows; ++o) {
      engine::ops::mxfp4_row(weight(), o,
                             std::span(all).subspan(static_cast<std::size_t>(o * cols),
                                                    static_cast<std::size_t>(cols)));
    }
    return all;
  }
};

Packed swapped_nibbles(Packed w) {
  for (auto& byte : w.codes) byte = static_cast<std::uint8_t>((byte >> 4) | (byte << 4));
  return w;
}

Packed released_sample(const std::filesystem::path& fixtures, std::vector<float>& want) {
  const auto fixture = read_fixture_json(fixtures / "mxfp4.json");
  const auto bytes = [&](const char* name) {
    const auto& data = at(fixture, name).data;
    std::vector<std::uint8_t> out;
    for (const double value : data) out.push_back(static_cast<std::uint8_t>(value));
    return out;
  };
  want = at(fixture, "expected").f32();
  return {at(fixture, "packed").shape[0], 2 * at(fixture, "packed").shape[1], bytes("packed"),
          bytes("scales")};
}

TEST(Mxfp4, ReleasedExpert) {
  CHECKS_NEED(fixtures, reference_fixtures());
  std::vector<float> want;
  const Packed w = released_sample(fixtures, want);
  // Exact, but for the sign of zero, which JSON's writer did not keep: -0 == 0.
  const auto exact = [](double) { return 0.0; };
  const std::vector<double> wanted = widen(want);
  const Comparison right = compare(w.decoded(), wanted, exact);
  EXPECT_TRUE(right) << right.why;
  EXPECT_FALSE(compare(swapped_nibbles(w).decoded(), wanted, exact));
  const Comparison everywhere = same_bits_everywhere([&] { return w.decoded(); });
  EXPECT_TRUE(everywhere) << everywhere.why;
  const Mxfp4Scan scan = scan_mxfp4(w.weight());
  EXPECT_EQ(scan.nan_groups, 0);
  EXPECT_EQ(scan.overflow_at, -1);
}

// Every code under every scale byte, against 2^(s-127) by ldexp.
TEST(Mxfp4, EveryCodeUnderEveryScale) {
  static constexpr double kMagnitude[] = {0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0};
  Packed w{254, 32, {}, {}};
  std::vector<double> want;
  for (int s = 0; s < 254; ++s) {
    w.scales.push_back(static_cast<std::uint8_t>(s == 253 ? 255 : s));
    for (int i = 0; i < 16; ++i) {
      // Codes 2i and 2i + 1, modulo 16: the even column in the low nibble.
      const int even = 2 * i % 16;
      w.codes.push_back(static_cast<std::uint8_t>(even | ((even + 1) << 4)));
      for (const int code : {even, even + 1}) {
        const double magnitude = s == 253 ? 0.0 : std::ldexp(kMagnitude[code & 7], s - 127);
        want.push_back(code < 8 ? magnitude : -magnitude);
      }
    }
  }
  const Comparison exact = compare(w.decoded(), want, [](double) { return 0.0; });
  EXPECT_TRUE(exact) << exact.why;
  const Comparison everywhere = same_bits_everywhere([&] { return w.decoded(); });
  EXPECT_TRUE(everywhere) << everywhere.why;
}

// y = W x for a vector of one value; forward and backward, one token and several.
void expect_products(const Packed& w, float x, float want) {
  for (const std::int64_t tokens : {1, 9}) {
    const Comparison bits = same_bits_everywhere([&] {
      const std::vector<float> input(static_cast<std::size_t>(tokens * w.cols), x);
      std::vector<float> y(static_cast<std::size_t>(tokens * w.rows));
      engine::ops::matmul_forward(input, w.weight(), y, tokens);
      EXPECT_EQ(y, std::vector<float>(y.size(), want)) << tokens << " tokens";
      return y;
    });
    EXPECT_TRUE(bits) << bits.why;
  }
}

TEST(Mxfp4, E2SubnormalScaleIsNotZero) {
  // 128 products of 2^118 and 4 * 2^-127.
  expect_products(Packed::constant(3, 128, 6, 0), 0x1p118f, 1.0f);
  // The same backwards: 128 rows, one chain.
  const Packed w = Packed::constant(128, 32, 6, 0);
  std::vector<float> d_x(32);
  engine::ops::matmul_backward(std::vector<float>(128, 0x1p118f), w.weight(), d_x, 1);
  EXPECT_EQ(d_x, std::vector<float>(32, 1.0f));
}

TEST(Mxfp4, E4SubnormalProductsAreExactWhateverTheCallersMode) {
  const Packed w = Packed::constant(2, 64, 1, 0);
  EXPECT_EQ(w.decoded(), std::vector<float>(128, 0x1p-128f));
  const unsigned mode = _mm_getcsr();
  _mm_setcsr(mode | 0x8040u);  // flush to zero, denormals are zero: what a library may leave behind
  const std::vector<float> decoded = w.decoded();
  expect_products(w, 1.0f, 0x1p-122f);
  EXPECT_EQ(_mm_getcsr() & 0xFFC0u, (mode | 0x8040u) & 0xFFC0u) << "the mode was not given back";
  _mm_setcsr(mode);
  EXPECT_EQ(decoded, std::vector<float>(128, 0x1p-128f));
}

TEST(Mxfp4, E6ScaleBytesAreUnsigned) {
  EXPECT_EQ(Packed::constant(1, 32, 2, 200).decoded(), std::vector<float>(32, 0x1p73f));
}

TEST(Mxfp4, NanScaleMakesItsGroupZero) {
  Packed w = Packed::constant(2, 64, 7, 127);
  w.scales[1] = 255;
  std::vector<float> want(128, 6.0f);
  std::fill(want.begin() + 32, want.begin() + 64, 0.0f);
  EXPECT_EQ(w.decoded(), want);
}

TEST(Mxfp4, Scan) {
  Packed w = Packed::constant(100, 4096, 7, 120);  // 12,800 scale bytes: several blocks of the scan
  EXPECT_EQ(scan_mxfp4(w.weight()).overflow_at, -1);
  const auto set_group = [&](std::size_t g, int s, int code) {
    w.scales[g] = static_cast<std::uint8_t>(s);
    std::fill_n(w.codes.begin() + static_cast<std::ptrdiff_t>(16 * g), 16,
                static_cast<std::uint8_t>(code | (code << 4)));
  };
  set_group(0, 255, 0);
  set_group(4095, 255, 8);  // -0 is no value
  set_group(4096, 255, 0);
  w.codes[16 * 4096 + 15] = 0x90;  // one code of 32
  set_group(12799, 255, 1);
  set_group(7, 252, 7);
  set_group(8, 253, 5);
  set_group(9, 254, 3);
  Mxfp4Scan scan = scan_mxfp4(w.weight());
  EXPECT_EQ(scan.nan_groups, 4);
  EXPECT_EQ(scan.nan_groups_with_codes, 2);
  EXPECT_EQ(scan.overflow_at, -1);
  // Each pair that overflows float32, and with either sign; the first place is named.
  for (const auto& [s, code] :
       {std::pair{253, 6}, {253, 7}, {254, 4}, {254, 5}, {254, 6}, {254, 7}}) {
    for (const int sign : {0, 8}) {
      set_group(9000, s, code | sign);
      set_group(10000, s, code | sign);
      EXPECT_EQ(scan_mxfp4(w.weight()).overflow_at, 9000) << s << " " << code;
      EXPECT_TRUE(std::isinf(w.decoded()[9000 * 32]));
    }
  }
  for (const auto& [s, code] : {std::pair{253, 5}, {254, 3}}) {
    set_group(9000, s, code);
    EXPECT_TRUE(std::isfinite(w.decoded()[9000 * 32])) << s << " " << code;
  }
}

TEST(Mxfp4, PlantedFaults) {
  Packed w{2, 64, {}, {121, 122, 120, 0}};
  for (int i = 0; i < 64; ++i) w.codes.push_back(static_cast<std::uint8_t>(37 * i + 11));
  const std::vector<float> right = w.decoded();
  EXPECT_FALSE(same_bits(swapped_nibbles(w).decoded(), right));
  Packed signed_scale = w;
  signed_scale.scales[0] = static_cast<std::uint8_t>(121 ^ 128);
  EXPECT_FALSE(same_bits(signed_scale.decoded(), right));
  // Scale byte 0 by the shift alone: the last group would vanish.
  std::vector<float> flushed = right;
  std::fill(flushed.begin() + 96, flushed.end(), 0.0f);
  EXPECT_FALSE(same_bits(flushed, right));
  // A scale for every 16 columns, or the neighbour's.
  Packed shifted = w;
  std::swap(shifted.scales[0], shifted.scales[1]);
  EXPECT_FALSE(same_bits(shifted.decoded(), right));
}

}  // namespace
}  // namespace checks::ops
