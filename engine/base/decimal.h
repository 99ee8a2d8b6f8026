#pragma once

#include <charconv>
#include <cmath>
#include <optional>
#include <string_view>
#include <type_traits>

namespace engine::base {

// The number that all of `text` is in decimal: digits, a minus sign for a signed type, and for a
// floating-point type a point and an exponent. Nothing for anything else: spaces, a plus sign, hex,
// inf, nan, what stands behind the number, and what the type cannot hold. A leading zero is a zero,
// not octal.
template <class Number>
std::optional<Number> parse_decimal(std::string_view text) {
  Number value{};
  const char* end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stopped != end) return std::nullopt;
  if constexpr (std::is_floating_point_v<Number>) {
    if (!std::isfinite(value)) return std::nullopt;
  }
  return value;
}

}  // namespace engine::base
