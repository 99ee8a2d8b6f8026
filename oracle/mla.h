// The attention core of an MLA layer: causal, within the document, without any positional term.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "oracle/documents.h"
#include "oracle/softmax.h"

namespace oracle {

struct MlaShape {
  int64_t heads, nope, rope, value;  // Hm, Dn, Dr, Dv
};

// For every head, with key_s = [k_nope_s ; kr_s] and s from the document's first token to t:
//   score_s = (q_t · key_s) (nope + rope)^-1/2
//   o_t     = Σ_s softmax(score)_s v_s
// Both parts of the key count in the scale: nope^-1/2 is the tempting wrong version. kr is one
// vector for all heads, neither normalised nor rotated.
//
// Shape   q [T,heads,nope+rope]   kv [T,heads,nope+value], key first   kr [T,rope]
//         o [T,heads,value] (=)
// Source  docs/model.md section 8, step 4
template <class S>
std::vector<S> mla_attention(std::span<const S> q, std::span<const S> kv, std::span<const S> kr,
                             MlaShape shape, std::span<const int64_t> doc_begin) {
  const auto [heads, nope, rope, value] = shape;
  const int64_t tokens = static_cast<int64_t>(q.size()) / (heads * (nope + rope));
  const std::vector<int64_t> start = document_starts(doc_begin, tokens);
  const S scale = S(1) / sqrt(S(static_cast<double>(nope + rope)));
  std::vector<S> o(tokens * heads * value);
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t h = 0; h < heads; ++h) {
      const S* query = &q[(t * heads + h) * (nope + rope)];
      std::vector<S> score;
      for (int64_t s = start[t]; s <= t; ++s) {
        const S* key = &kv[(s * heads + h) * (nope + value)];
        Accumulator<S> dot;
        for (int64_t i = 0; i < nope; ++i) dot.add(query[i], key[i]);
        for (int64_t i = 0; i < rope; ++i) dot.add(query[nope + i], kr[s * rope + i]);
        score.push_back(dot.result() * scale);
      }
      const std::vector<S> p = softmax(std::span<const S>(score));
      std::vector<S> column(p.size());
      for (int64_t c = 0; c < value; ++c) {
        for (size_t s = 0; s < p.size(); ++s) {
          column[s] = kv[((start[t] + s) * heads + h) * (nope + value) + nope + c];
        }
        o[(t * heads + h) * value + c] =
            weighted_mean(std::span<const S>(p), std::span<const S>(column));
      }
    }
  }
  return o;
}

}  // namespace oracle
