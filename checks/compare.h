#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace checks {

struct Comparison {
  bool holds = false;
  double worst = 0.0;    // largest |got - want| / allowed; infinity if something is not finite
  std::int64_t at = -1;  // where
  std::string why;       // empty if it holds, else the first reason with index and both values
  explicit operator bool() const { return holds; }
};

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
