#pragma once

// What the sixteen codes of MXFP4 stand for under each of its 256 scales: E2M1(code) * 2^(scale-127).
//
// A table and not a product, because beside the arithmetic of a weight that is used once the product
// would cost a tenth, and because a product with scale 0 is a subnormal, for which processors stop
// for more than a hundred cycles. Only the rows of the scales that occur come into a cache.
//
// Kernel sources may include it: what it holds is data, made by the compiler, and no code.
//
// Accuracy  exact; beyond float32's range infinity, as the product would round
// Source    OCP Microscaling Formats 1.0, sections 5.3.3 and 5.4

#include <bit>
#include <cstdint>
#include <limits>

namespace engine::base {

// The products of one scale, by code (bit 3 is its sign). The lower half of each float32 is zero; `low`
// and `high` are the two bytes of the upper half, for processors that look up bytes best.
struct alignas(64) Mxfp4Products {
  float values[16];
  std::uint8_t low[16], high[16];
};

struct AllMxfp4Products {
  Mxfp4Products of[256];
};

consteval AllMxfp4Products make_mxfp4_products() {
  constexpr float kMagnitudes[8] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};
  AllMxfp4Products table{};
  for (std::uint32_t s = 0; s < 256; ++s) {
    // Scale 0 is a subnormal that `s << 23` would make 0, and 255, NaN by the format, makes its group
    // zero as the C reference does.
    const std::uint32_t bits = s == 0 ? 0x00400000u : s == 255 ? 0u : s << 23;
    for (std::uint32_t code = 0; code < 16; ++code) {
      const double exact = static_cast<double>(kMagnitudes[code & 7]) * std::bit_cast<float>(bits);
      const float product = exact > std::numeric_limits<float>::max()
                                ? std::numeric_limits<float>::infinity()
                                : static_cast<float>(exact);
      const float value = (code & 8) != 0 ? -product : product;
      const auto value_bits = std::bit_cast<std::uint32_t>(value);
      if ((value_bits & 0xFFFF) != 0) throw "two bytes do not hold it";  // does not compile
      table.of[s].values[code] = value;
      table.of[s].low[code] = static_cast<std::uint8_t>(value_bits >> 16);
      table.of[s].high[code] = static_cast<std::uint8_t>(value_bits >> 24);
    }
  }
  return table;
}

inline constexpr AllMxfp4Products kMxfp4Products = make_mxfp4_products();

}  // namespace engine::base
