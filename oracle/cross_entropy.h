// The loss of one position.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "oracle/softmax.h"

namespace oracle {

// log Σ_j e^(x_j)
template <class S>
S log_sum_exp(std::span<const S> x) {
  const S m(largest_real(x));
  Accumulator<S> sum;
  for (const S& v : x) sum.add(exp(v - m));
  return m + log(sum.result());
}

// Moving every x_j by at most e_j moves it by at most log Σ p_j e^(e_j): an average of the errors,
// not their sum.
inline Bound log_sum_exp(std::span<const Bound> x) {
  const double m = largest_real(x);
  double widest = 0;
  for (const Bound& v : x) widest = std::fmax(widest, v.err);
  double sum = 0;
  double grown = 0;  // Σ e^(x_j - m) (e^(δ_j) - 1)
  for (const Bound& v : x) {
    const double e = std::exp(v.value - m);
    const double rounding = kUnit * (std::fabs(v.value - m) + 2 * widest) + 1.01 * kElementary;
    sum += e;
    grown += e * std::expm1(v.err + rounding);
  }
  const double n = static_cast<double>(x.size());
  // Shrinking by δ moves the logarithm by no more than growing does (Jensen).
  const double terms = std::log1p(grown / sum);
  const double adding = -std::log1p(-gamma(sum_roundings(n))) + n * kSmallestNormal;
  const double value = std::log(sum);
  // The engine's m may be another score within 2 widest of ours: lse does not change with it, the
  // logarithm itself does.
  const double taking_log =
      kElementary * (std::fabs(value) + terms + adding + 2 * widest) + kSmallestNormal;
  return rounded(m + value, terms + adding + taking_log, 1);
}

template <int N>
Dual<Bound, N> log_sum_exp(std::span<const Dual<Bound, N>> x) {
  std::vector<Bound> values;
  for (const auto& v : x) values.push_back(v.value);
  const std::vector<Bound> p = softmax(std::span<const Bound>(values));
  Dual<Bound, N> r(log_sum_exp(std::span<const Bound>(values)));
  for (int n = 0; n < N; ++n) {
    Accumulator<Bound> sum;
    for (size_t j = 0; j < p.size(); ++j) {
      if (!is_nothing(x[j].tangent[n])) sum.add(p[j], x[j].tangent[n]);
    }
    r.tangent[n] = sum.result();
  }
  return r;
}

// nll = log Σ_j e^(logit_j) - logit_target, in nats
//
// Shape   logits [V]   target in 0 … V-1 (masked positions are the caller's)
// Source  docs/training.md section 2
template <class S>
S cross_entropy(std::span<const S> logits, int32_t target) {
  return log_sum_exp(logits) - logits[target];
}

}  // namespace oracle
