// RMSNorm and L2norm.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "oracle/bound.h"
#include "oracle/dual.h"
#include "oracle/scalar.h"

namespace oracle {

// Of L2norm: a constant of the model, not the configured eps.
inline constexpr double kL2Eps = 1e-6;

// 1 / sqrt(Σ x² / divisor + eps)
template <class S>
S inverse_root(std::span<const S> x, double divisor, double eps) {
  Accumulator<S> squares;
  for (const S& v : x) squares.add(v, v);
  return S(1) / sqrt(squares.result() / S(divisor) + S(eps));
}

// The root is r = ‖(x/√divisor, √eps)‖, so by the triangle inequality it moves by no more than
// ‖e‖/√divisor: a relative error of the size of the relative error of x. Following Σx² through the
// generic operators has every e_j count at its worst against its own x_j, and fails (the root of an
// interval that reaches below zero) as soon as e is of the size of x.
inline Bound inverse_root(std::span<const Bound> x, double divisor, double eps) {
  double squares = 0;
  double squared_errors = 0;
  for (const Bound& v : x) {
    squares += v.value * v.value;
    squared_errors += v.err * v.err;
  }
  const double root = std::sqrt(squares / divisor + eps);
  const double moved = std::sqrt(squared_errors / divisor) / root;  // relative
  // Squares, sum, quotient, eps and its own rounding: a sum and 4 roundings, halved by the root
  // (not used here).
  const double roundings = gamma(sum_roundings(static_cast<double>(x.size())) + 4) + kElementary;
  const double relative = moved < 1 ? (1 + roundings) / (1 - moved) - 1 : kInfinity;
  return known_within(closed(1 / root, relative / root + kSubnormal, 1 / root), 0,
                      1 / std::sqrt(eps), 8);
}

// Differentiated by hand, so that the value keeps the bound above:
//   d(1/r) = -(Σ x ẋ) / (divisor r³)
template <int N>
Dual<Bound, N> inverse_root(std::span<const Dual<Bound, N>> x, double divisor, double eps) {
  std::vector<Bound> values;
  for (const auto& v : x) values.push_back(v.value);
  Dual<Bound, N> r(inverse_root(std::span<const Bound>(values), divisor, eps));
  const Bound slope = r.value * r.value * r.value / divisor;
  for (int n = 0; n < N; ++n) {
    Accumulator<Bound> sum;
    for (const auto& v : x) {
      if (!is_nothing(v.tangent[n])) sum.add(v.value, v.tangent[n]);
    }
    r.tangent[n] = -(slope * sum.result());
  }
  return r;
}

// y = w ⊙ x / sqrt(mean(x²) + eps), for every row
//
// Shape   x [T,n]   w [n]   y [T,n] (=)
// Source  docs/model.md section 4
template <class S>
std::vector<S> rmsnorm(std::span<const S> x, std::span<const double> w, double eps) {
  const size_t n = w.size();
  const double most_roundings = static_cast<double>(n) + 16;
  std::vector<S> y(x.size());
  for (size_t t = 0; t < x.size(); t += n) {
    const S inverse = inverse_root(x.subspan(t, n), static_cast<double>(n), eps);
    for (size_t j = 0; j < n; ++j) {
      // At most √n |w|: one element that holds all of the mean square.
      const double most = std::fabs(w[j]) * std::sqrt(static_cast<double>(n));
      y[t + j] = known_within(w[j] * x[t + j] * inverse, -most, most, most_roundings);
    }
  }
  return y;
}

// y = x / sqrt(Σ x² + 1e-6), for every run of n numbers: the SUM, not the mean
//
// Shape   x [rows,n]   y [rows,n] (=)
// Source  docs/model.md section 4
template <class S>
std::vector<S> l2norm(std::span<const S> x, int64_t n) {
  const double most_roundings = static_cast<double>(n) + 16;
  std::vector<S> y(x.size());
  for (size_t t = 0; t < x.size(); t += n) {
    const S inverse = inverse_root(x.subspan(t, n), 1.0, kL2Eps);
    for (int64_t j = 0; j < n; ++j)
      y[t + j] = known_within(x[t + j] * inverse, -1, 1, most_roundings);
  }
  return y;
}

}  // namespace oracle
