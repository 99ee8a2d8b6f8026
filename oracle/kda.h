// Kimi Delta Attention: the decay gate and the gated delta-rule recurrence.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "oracle/documents.h"
#include "oracle/kda_bound.h"
#include "oracle/scalar.h"

namespace oracle {

// g = lower_bound · σ( e^(A_log[h]) · (z + dt_bias) )
//
// The logarithm of the decay: alpha = e^g is in (e^lower_bound, 1], one per KEY channel.
// A_log has one entry PER HEAD, though it is stored in a vector of length D with a zero tail.
//
// Shape   z [T,heads,dim]   dt_bias [heads,dim]   a_log [>= heads]   g [T,heads,dim] (=)
// Source  docs/model.md section 7, step 5
template <class S>
std::vector<S> decay_gate(std::span<const S> z, std::span<const double> dt_bias,
                          std::span<const double> a_log, double lower_bound, int64_t heads,
                          int64_t dim) {
  std::vector<S> rate;
  for (int64_t h = 0; h < heads; ++h) rate.push_back(exp(S(a_log[h])));
  const S lowest = rounded_constant<S>(lower_bound);
  std::vector<S> g(z.size());
  for (size_t j = 0; j < z.size(); ++j) {
    const size_t channel = j % (heads * dim);
    g[j] = lowest * sigmoid(rate[channel / dim] * (z[j] + S(dt_bias[channel])));
  }
  return g;
}

// For every document and head, from S_0 = 0 (the first document: from `state`, if given):
//   S~  = diag(e^(g_t)) S_{t-1}                  decay first ...
//   S_t = S~ + beta_t k_t (v_t - S~ᵀ k_t)ᵀ       ... then the delta write, against S~, not S_{t-1}
//   o_t = S_tᵀ q_t                               reads the state just written
//
// Shape   q, k, g [T,heads,key]   v [T,heads,value]   beta [T,heads]   o [T,heads,value] (=)
//         state [heads,key,value] (in/out), or null: in, what the first document starts from; out,
//         what the last one ends with
// Source  docs/model.md section 7, step 6; Kimi Linear, arXiv 2510.26692
template <class S>
std::vector<S> kda_recurrence(std::span<const S> q, std::span<const S> k, std::span<const S> v,
                              std::span<const S> g, std::span<const S> beta, KdaShape shape,
                              std::span<const int64_t> doc_begin, std::vector<S>* state = nullptr) {
  const auto [heads, key, value] = shape;
  const int64_t tokens = static_cast<int64_t>(beta.size()) / heads;
  const std::vector<int64_t> start = document_starts(doc_begin, tokens);
  std::vector<S> o(tokens * heads * value);
  for (int64_t h = 0; h < heads; ++h) {
    std::vector<S> memory(key * value, S(0));
    if (state) std::copy_n(state->begin() + h * key * value, key * value, memory.begin());
    for (int64_t t = 0; t < tokens; ++t) {
      if (start[t] == t && t > 0) std::fill(memory.begin(), memory.end(), S(0));
      const S* q_t = &q[(t * heads + h) * key];
      const S* k_t = &k[(t * heads + h) * key];
      const S* g_t = &g[(t * heads + h) * key];
      const S* v_t = &v[(t * heads + h) * value];
      std::vector<Accumulator<S>> recalled(value), read(value);
      for (int64_t i = 0; i < key; ++i) {
        const S alpha = exp(g_t[i]);
        for (int64_t c = 0; c < value; ++c) {
          S& m = memory[i * value + c];
          m *= alpha;
          recalled[c].add(k_t[i], m);
        }
      }
      std::vector<S> correction(value);
      for (int64_t c = 0; c < value; ++c)
        correction[c] = beta[t * heads + h] * (v_t[c] - recalled[c].result());
      for (int64_t i = 0; i < key; ++i) {
        for (int64_t c = 0; c < value; ++c) {
          S& m = memory[i * value + c];
          m += k_t[i] * correction[c];
          read[c].add(q_t[i], m);
        }
      }
      for (int64_t c = 0; c < value; ++c) o[(t * heads + h) * value + c] = read[c].result();
    }
    if (state) std::copy(memory.begin(), memory.end(), state->begin() + h * key * value);
  }
  return o;
}

}  // namespace oracle
