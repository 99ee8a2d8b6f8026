// Softmax and the weighted mean under it, shared by the attention residual and the attention core.
#pragma once

#include <cmath>
#include <span>
#include <vector>

#include "oracle/bound.h"
#include "oracle/dual.h"
#include "oracle/scalar.h"

namespace oracle {

template <class S>
double largest_real(std::span<const S> x) {
  double m = real_part(x[0]);
  for (const S& v : x) m = std::fmax(m, real_part(v));
  return m;
}

// p_i = e^(c_i - m) / Σ_j e^(c_j - m),  m = max c. m is a constant: softmax does not change with
// it, value or derivative.
template <class S>
std::vector<S> softmax(std::span<const S> c) {
  const S m(largest_real(c));
  std::vector<S> p;
  Accumulator<S> sum;
  for (const S& v : c) {
    p.push_back(exp(v - m));
    sum.add(p.back());
  }
  const S total = sum.result();
  for (S& v : p) v /= total;
  return p;
}

// How far float32 may be off in the sum of its own probabilities: every one is E_i / Z (1 + δ) with
// Z = Σ E_i up to rounding.
inline double softmax_sum_error(size_t n) {
  return gamma(2 * sum_roundings(static_cast<double>(n)) + 4) +
         static_cast<double>(n) * kSmallestNormal;
}

// With every exponent moved by d_i, |d_i| <= δ_i, probability i is p_i e^(d_i) / Σ_j p_j e^(d_j).
// It is largest with its own exponent up and all others down, smallest the other way round. (The
// generic operators bound numerator and denominator apart, and so lose that a probability near 1
// hardly moves: its error is that of the others.)
inline std::vector<Bound> softmax(std::span<const Bound> c) {
  const double m = largest_real(c);
  double widest = 0;
  for (const Bound& v : c) widest = std::fmax(widest, v.err);
  std::vector<Bound> p;
  std::vector<double> delta;
  double total = 0;
  for (const Bound& v : c) {
    p.emplace_back(std::exp(v.value - m));
    total += p.back().value;
    // The score's own error; the rounding of c - m; the error of exp, as a change of its argument.
    delta.push_back(v.err + kUnit * (std::fabs(v.value - m) + 2 * widest) + 1.01 * kElementary);
  }
  const bool small = widest < 100;  // else e^δ might overflow, and nothing is known
  double up = 0;
  double down = 0;
  for (size_t i = 0; i < p.size(); ++i) {
    p[i].value /= total;
    if (small) up += p[i].value * std::exp(delta[i]);
    if (small) down += p[i].value * std::exp(-delta[i]);
  }
  for (size_t i = 0; i < p.size(); ++i) {
    const double v = p[i].value;
    double moved = std::fmax(v, 1 - v);
    if (small) {
      const double raised = v * std::exp(delta[i]);
      const double lowered = v * std::exp(-delta[i]);
      const double others_down = std::fmax(down - lowered, 0.0);
      const double others_up = std::fmax(up - raised, 0.0);
      moved = std::fmax(raised / (raised + others_down) - v, v - lowered / (lowered + others_up));
    }
    const double total_error = moved + softmax_sum_error(p.size()) * (v + moved) + kSmallestNormal;
    p[i] = closed(v, total_error + 0x1p-50, 1);  // 2^-50: the differences above are taken in double
  }
  return p;
}

// dp_i = p_i (dc_i - Σ_j p_j dc_j), with p from the tight bound.
template <int N>
std::vector<Dual<Bound, N>> softmax(std::span<const Dual<Bound, N>> c) {
  std::vector<Bound> values;
  for (const auto& v : c) values.push_back(v.value);
  const std::vector<Bound> p = softmax(std::span<const Bound>(values));
  std::vector<Dual<Bound, N>> out(p.begin(), p.end());
  for (int n = 0; n < N; ++n) {
    Accumulator<Bound> mean;
    for (size_t i = 0; i < p.size(); ++i) {
      if (!is_nothing(c[i].tangent[n])) mean.add(p[i], c[i].tangent[n]);
    }
    for (size_t i = 0; i < p.size(); ++i)
      out[i].tangent[n] = p[i] * (c[i].tangent[n] - mean.result());
  }
  return out;
}

// Σ_i p_i x_i of probabilities p that came from softmax above
template <class S>
S weighted_mean(std::span<const S> p, std::span<const S> x) {
  Accumulator<S> sum;
  for (size_t i = 0; i < p.size(); ++i) sum.add(p[i], x[i]);
  return sum.result();
}

// Both the exact and the computed p sum to 1 (up to rounding), so any constant may be subtracted
// from x before its errors are counted:
//   Σ (p~_i - p_i) x_i = Σ (p~_i - p_i)(x_i - y) + y (Σ p~_i - 1)
// Sources that agree then cost nothing.
inline Bound weighted_mean(std::span<const Bound> p, std::span<const Bound> x) {
  double mean = 0;
  for (size_t i = 0; i < p.size(); ++i) mean += p[i].value * x[i].value;
  double moved = std::fabs(mean) * softmax_sum_error(p.size());
  double magnitude = 0;
  for (size_t i = 0; i < p.size(); ++i) {
    moved += p[i].magnitude() * x[i].err + p[i].err * std::fabs(x[i].value - mean);
    magnitude += p[i].magnitude() * x[i].magnitude();
  }
  const double n = static_cast<double>(p.size());
  return closed(mean, moved + gamma(sum_roundings(n)) * magnitude + n * kSubnormal, magnitude);
}

template <int N>
Dual<Bound, N> weighted_mean(std::span<const Dual<Bound, N>> p, std::span<const Dual<Bound, N>> x) {
  std::vector<Bound> p_value, x_value;
  Accumulator<Dual<Bound, N>> sum;
  for (size_t i = 0; i < p.size(); ++i) {
    sum.add(p[i], x[i]);
    p_value.push_back(p[i].value);
    x_value.push_back(x[i].value);
  }
  Dual<Bound, N> y = sum.result();
  y.value = weighted_mean(std::span<const Bound>(p_value), std::span<const Bound>(x_value));
  return y;
}

}  // namespace oracle
