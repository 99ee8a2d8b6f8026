// The attention residual: the mixture of bank and running residual that a sub-module gets to see.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "oracle/rmsnorm.h"
#include "oracle/softmax.h"

namespace oracle {

// Per token, over the sources s_0 … s_m (bank entries oldest first, the running residual last):
//   c_i = Σ_j (s_i[j] / sqrt(mean(s_i²) + eps)) · norm[j] · proj[j]    scored on NORMALISED keys,
//   y   = Σ_i softmax(c)_i · s_i                                       the RAW sources averaged
// No temperature. Averaging the normalised keys is the tempting wrong version.
//
// Shape   every source [T,H]   norm, proj [H]   y [T,H] (=)
// Source  docs/model.md section 5
template <class S>
std::vector<S> attn_res(const std::vector<std::span<const S>>& sources,
                        std::span<const double> norm, std::span<const double> proj, double eps) {
  const size_t hidden = norm.size();
  std::vector<double> query(hidden);  // exact in double: 24 + 24 bits
  for (size_t j = 0; j < hidden; ++j) query[j] = norm[j] * proj[j];

  std::vector<S> y(sources[0].size());
  std::vector<S> score(sources.size()), column(sources.size());
  for (size_t t = 0; t < y.size(); t += hidden) {
    for (size_t i = 0; i < sources.size(); ++i) {
      const std::span<const S> s = sources[i].subspan(t, hidden);
      Accumulator<S> dot;
      for (size_t j = 0; j < hidden; ++j) dot.add(query[j], s[j]);
      // An engine may form norm·proj, or key·norm first: up to 3 roundings more than the products
      // counted by `dot`.
      score[i] = dot.result(3) * inverse_root(s, static_cast<double>(hidden), eps);
    }
    const std::vector<S> p = softmax(std::span<const S>(score));
    for (size_t j = 0; j < hidden; ++j) {
      for (size_t i = 0; i < sources.size(); ++i) column[i] = sources[i][t + j];
      y[t + j] = weighted_mean(std::span<const S>(p), std::span<const S>(column));
    }
  }
  return y;
}

}  // namespace oracle
