#pragma once

#include <cstdint>

namespace engine::ops {

// sum of term(i), i = 0..n-1, in double. A product of two float32 values is exact in double, so
// sums of squares and inner products round only here.
//
// Order     16 partial sums from +0, term i to sum i mod 16, ascending; then the tree (r,r+8),
// (r,r+4),
//           (r,r+2), (r,r+1). Sixteen chains, so that a compiler may use vectors without changing a
//           bit
template <class Term>
double double_sum(std::int64_t n, Term term) noexcept {
  constexpr int kChains = 16;
  double partial[kChains] = {};
  std::int64_t i = 0;
  for (; i + kChains <= n; i += kChains) {
    for (int r = 0; r < kChains; ++r) partial[r] += term(i + r);
  }
  for (int r = 0; i + r < n; ++r) partial[r] += term(i + r);
  for (int half = kChains / 2; half > 0; half /= 2) {
    for (int r = 0; r < half; ++r) partial[r] += partial[r + half];
  }
  return partial[0];
}

inline double double_dot(const float* x, const float* y, std::int64_t n) noexcept {
  return double_sum(n, [=](std::int64_t i) { return static_cast<double>(x[i]) * y[i]; });
}

}  // namespace engine::ops
