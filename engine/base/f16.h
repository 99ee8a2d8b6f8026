#pragma once

#include <bit>
#include <cstdint>

namespace engine::base {

// The way back is f16_to_float of engine/base/dtype.h.
// Rounds to nearest, ties to even; beyond 65504 + half a step infinity; NaN stays NaN.
constexpr std::uint16_t float_to_f16(float x) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t sign = (bits >> 16) & 0x8000u;
  const std::uint32_t magnitude = bits & 0x7FFFFFFFu;
  const auto with_sign = [&](std::uint32_t half) {
    return static_cast<std::uint16_t>(sign | half);
  };
  if (magnitude > 0x7F800000u) return with_sign(0x7E00u);
  if (magnitude >= 0x477FF000u) return with_sign(0x7C00u);
  // Below 2^-14 a step is 2^-24, which is the step of a float beside one half.
  if (magnitude < 0x38800000u) {
    return with_sign(std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) -
                     std::bit_cast<std::uint32_t>(0.5f));
  }
  return with_sign(((magnitude + 0xFFFu + ((magnitude >> 13) & 1u)) >> 13) - (112u << 10));
}

}  // namespace engine::base
