#pragma once

#include <bit>
#include <cstdint>
#include <optional>
#include <string_view>

namespace engine::base {

// The element types that a checkpoint may hold.
enum class Dtype : std::uint8_t { kU8, kBf16, kF16, kF32 };

constexpr std::int64_t size_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::kU8:
      return 1;
    case Dtype::kBf16:
    case Dtype::kF16:
      return 2;
    case Dtype::kF32:
      return 4;
  }
  return 0;
}

constexpr std::string_view name_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::kU8:
      return "U8";
    case Dtype::kBf16:
      return "BF16";
    case Dtype::kF16:
      return "F16";
    case Dtype::kF32:
      return "F32";
  }
  return "";
}

constexpr std::optional<Dtype> dtype_named(std::string_view name) {
  for (const Dtype dtype : {Dtype::kU8, Dtype::kBf16, Dtype::kF16, Dtype::kF32}) {
    if (name == name_of(dtype)) return dtype;
  }
  return std::nullopt;
}

// Exact.
constexpr float bf16_to_float(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

// Rounds to nearest, ties to even; NaN stays NaN.
constexpr std::uint16_t float_to_bf16(float x) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(x);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return static_cast<std::uint16_t>((bits >> 16) | 0x40u);
  return static_cast<std::uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}

// Exact, subnormals included.
constexpr float f16_to_float(std::uint16_t bits) {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000u) << 16;
  const std::uint32_t exponent = (bits >> 10) & 0x1Fu;
  const std::uint32_t fraction = bits & 0x3FFu;
  if (exponent == 0) {
    const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(magnitude) | sign);
  }
  const std::uint32_t biased = exponent == 31 ? 255u : exponent + 112u;
  return std::bit_cast<float>(sign | (biased << 23) | (fraction << 13));
}

}  // namespace engine::base
