#pragma once

#include <cstdint>
#include <span>

#include "engine/ops/documents.h"

namespace engine::ops {

struct MlaShape {
  std::int64_t heads = 0;  // H
  std::int64_t nope = 0;   // Dn
  std::int64_t rope = 0;   // Dr, the slot shared by all heads; nothing is rotated
  std::int64_t value = 0;  // Dv
};

// Causal attention inside every document, full key = [k_nope ; kr]:
//   score[t][s] = <q_t, key_s> (Dn+Dr)^-1/2, s <= t;  p = softmax(score);  o_t = sum_s p v_s
// The scale counts both parts of the key. No positional term anywhere. There may be fewer queries
// than keys: they are then those of the last Q tokens.
//
// Shape     q [Q,H,Dn+Dr]   kv [T,H,Dn+Dv] (key, then value)   kr [T,Dr]   o [Q,H,Dv] (=)   Q <= T
// Accuracy  scores float32; softmax subtracts the maximum, its denominator in double; p rounded to
//           float32
// Order     a score: 16 partial sums from +0 by fma, columns i of k_nope to sum i mod 16, then
//           columns i of kr likewise, then the tree (r,r+8),(r,r+4),(r,r+2),(r,r+1); the
//           denominator so over s; o: one fma chain from +0 in ascending s
// Cost      one row of scores a thread at a time, never [T,T]
void mla_forward(std::span<const float> q, std::span<const float> kv, std::span<const float> kr,
                 Documents documents, MlaShape shape, std::span<float> scratch,
                 std::span<float> o) noexcept;

// Floats of scratch for forward and backward: rows of scores for every thread, and in backward a
// d_kr for every head.
std::int64_t mla_forward_scratch(std::int64_t tokens, MlaShape shape, int threads) noexcept;
std::int64_t mla_backward_scratch(std::int64_t tokens, MlaShape shape, int threads) noexcept;

// Recomputes scores and probabilities.
//   d_p_s = <d_o_t, v_s>;  d_score_s = p_s (d_p_s - sum_r p_r d_p_r) (Dn+Dr)^-1/2
//   d_q_t = sum_s d_score_s key_s;  d_key_s = sum_t d_score_s q_t;  d_v_s = sum_t p_s d_o_t
//
// Shape     d_o [T,H,Dv]   d_q [T,H,Dn+Dr] (=)   d_kv [T,H,Dn+Dv] (=)   d_kr [T,Dr] (=)
// Accuracy  sum_r p_r d_p_r in double, the rest float32
// Order     d_p as a score; sums over s or t: one fma chain from +0, ascending; d_kr: so inside a
//           head, then the heads' sums added in ascending order
void mla_backward(std::span<const float> d_o, std::span<const float> q, std::span<const float> kv,
                  std::span<const float> kr, Documents documents, MlaShape shape,
                  std::span<float> scratch, std::span<float> d_q, std::span<float> d_kv,
                  std::span<float> d_kr) noexcept;

}  // namespace engine::ops
