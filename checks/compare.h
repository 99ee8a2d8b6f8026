#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace checks {

// Errors in units of the wanted value's last place as float32, counted: none, up to half a unit, up
// to 1, 2, 4, ... 2^19, and the rest.
inline constexpr std::size_t kUlpBins = 23;
using UlpHistogram = std::array<std::int64_t, kUlpBins>;

struct Comparison {
  bool holds = false;
  double worst = 0.0;      // largest |got - want| / allowed; infinity if something is not finite
  std::int64_t at = -1;    // where
  std::string why;         // empty if it holds, else the first reason with index and both values
  UlpHistogram ulps = {};  // of all elements compared
  explicit operator bool() const { return holds; }
};

// "0:12 0.5:100 1:3 more:1": the bins that are not empty, by their upper end.
std::string to_text(const UlpHistogram& ulps);

// The one comparison of this project. Holds only if the sizes agree and are not zero, all three are
// finite, and every element is WITHIN: |got - want| <= allowed. So NaN answers no. A `want` that is
// zero in more than nine elements of ten is mistrusted, not passed: a wrong program finds zeros
// easily. Data that really is mostly zero says so with `sparse`, and then every zero must be met
// exactly.
enum class Content { kDense, kSparse };
Comparison compare(std::span<const double> got, std::span<const double> want,
                   std::span<const double> allowed, Content content = Content::kDense);

// The same with float32 results and an allowance computed from the wanted value.
Comparison compare(std::span<const float> got, std::span<const double> want,
                   const std::function<double(double want)>& allowed,
                   Content content = Content::kDense);

// Equal bits, the comparison for threads, budgets, instruction sets, packing and resume. The same
// mistrust of emptiness, and NaN is refused even where both have it: then both are wrong.
Comparison same_bits(std::span<const float> got, std::span<const float> want);

// ||got - want|| / ||want||; infinity if sizes differ, anything is not finite, or want is zero.
double relative_norm_error(std::span<const double> got, std::span<const double> want);

template <class T>
std::vector<double> widen(std::span<const T> values) {
  return std::vector<double>(values.begin(), values.end());
}
template <class T>
std::vector<double> widen(const std::vector<T>& values) {
  return std::vector<double>(values.begin(), values.end());
}

}  // namespace checks
