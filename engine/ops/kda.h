#pragma once

#include <cstdint>
#include <span>

#include "engine/ops/documents.h"
#include "engine/ops/kda_kernel_table.h"

namespace engine::ops {

struct KdaShape {
  std::int64_t heads = 0;  // H
  std::int64_t width = 0;  // D, key and value width of a head, at most kKdaMaxWidth
};

// Tokens between two saved states. Part of no result: only of memory and recomputation.
inline constexpr std::int64_t kKdaChunk = 64;

// Saved states of a batch: one for every chunk, chunks starting at every document's first token.
std::int64_t kda_chunks(Documents documents) noexcept;

// g = bound * sigmoid(exp(a_log[h]) (z + dt_bias)),  alpha = exp(g), per key channel.
// a_log has one entry per HEAD, not per channel. bound (gate_lower_bound) is negative.
//
// Shape     z [T,H,D]   a_log [>= H]   dt_bias [H,D]   g, alpha [T,H,D] (=)
void kda_gate_forward(std::span<const float> z, std::span<const float> a_log,
                      std::span<const float> dt_bias, float bound, KdaShape shape,
                      std::span<float> g, std::span<float> alpha) noexcept;

// d_z = d_g bound sigmoid' exp(a_log[h])
//
// Shape     d_g, z [T,H,D]   d_z [T,H,D] (=)
void kda_gate_backward(std::span<const float> d_g, std::span<const float> z,
                       std::span<const float> a_log, std::span<const float> dt_bias, float bound,
                       KdaShape shape, std::span<float> d_z) noexcept;

// What the recurrence reads. q is normalised and scaled by D^-1/2 already, k is normalised.
struct KdaInputs {
  std::span<const float> q, k, v;  // [T,H,D]
  std::span<const float> alpha;    // [T,H,D]
  std::span<const float> beta;     // [T,H]
};

// For every head and document, S = 0 at its start (or `state`), then for t in order:
//   S' = diag(alpha_t) S_{t-1}                      decay first ...
//   S_t = S' + beta_t k_t (v_t - S'^T k_t)^T        ... then the delta write
//   o_t = S_t^T q_t                                 reads the state just written
//
// Shape     S [H,D,D] key-major   state [H,D,D] (in/out, or empty): before the first document on
//           entry, after the last on return   saved [chunks,H,D,D] (=) or empty   o [T,H,D] (=)
// Saves     S before the first token of every chunk
// Accuracy  float32; bound in docs/numerics.md, enforced by checks/ops/kda_check.cc
// Order     sums over key rows (S'^T k, S^T q): one fma chain from +0, ascending; the write is
//           fma(k_i, beta e_j, S'_ij). Nothing depends on chunks, threads or other documents
// Source    Kimi Linear, arXiv 2510.26692; docs/model.md section 7
void kda_forward(const KdaInputs& in, Documents documents, KdaShape shape, std::span<float> state,
                 std::span<float> saved, std::span<float> o) noexcept;

struct KdaGradients {
  std::span<float> d_q, d_k, d_v;  // [T,H,D] (=)
  std::span<float> d_g;            // [T,H,D] (=), g = log alpha: d_g = alpha d_alpha
  std::span<float> d_beta;         // [T,H] (=)
};

// Floats of scratch that kda_backward wants: the states inside one chunk, for every thread.
std::int64_t kda_backward_scratch(KdaShape shape, int threads) noexcept;

// The exact gradient of the recurrence, chunk by chunk from the last, states inside a chunk
// recomputed from `saved`. With e = v - S'^T k and G the running dL/dS, for t = T-1..0:
//   G = G + q d_o^T;  d_q = S d_o;  r = G^T k;  d_beta = <r, e>;  d_v = beta r
//   d_k = G (beta e) - S' d_v;  dS' = G - k d_v^T;  d_g = rowsum(dS' S');  G = diag(alpha) dS'
// d_g = alpha d_alpha needs S' only. Dividing by a cumulative decay to get at S_{t-1}, the tempting
// shortcut, is 0/0 after some twenty tokens of alpha = e^-5.
//
// Shape     d_o [T,H,D]   saved as forward left it   d_state [H,D,D] (in/out, or empty): dL/dS
//           after the last token on entry, dL/dS before the first on return. d_q, d_k, d_v may be
//           q, k, v, and d_g alpha: a token's gradients are written once its inputs have been read
// Order     sums over key rows (r) as in forward; sums over value columns: 16 partial sums from +0,
//           column j to sum j mod 16, fma in ascending j, then the tree
//           (r,r+8),(r,r+4),(r,r+2),(r,r+1); d_k is the difference of two such sums
// Cost      one state a token of the chunk in scratch, and the forward pass of the chunk again
void kda_backward(const KdaInputs& in, std::span<const float> saved, Documents documents,
                  KdaShape shape, std::span<const float> d_o, std::span<float> d_state,
                  std::span<float> scratch, const KdaGradients& out) noexcept;

}  // namespace engine::ops
