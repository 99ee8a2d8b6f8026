#pragma once

#include <cstdint>
#include <span>

#include "engine/ops/situ_glu.h"
#include "engine/ops/weight.h"

namespace engine::ops {

// One routed expert: w1 gate [I,L], w2 down [L,I], w3 up [I,L].
struct ExpertWeights {
  Weight w1, w2, w3;
};

// The tokens that chose this expert, ascending, and the weight each gave it (n of both).
struct ExpertTokens {
  std::span<const std::int32_t> token;
  std::span<const float> weight;
};

// What one expert reads and adds to, over the whole batch. The adapters of the routed experts are
// one set per layer: their gate and up terms depend on the token only and come in ready-made, their
// down term is linear and is applied once, by the caller, to `inner_sum`; see
// docs/training.md section 2.
struct ExpertsForward {
  std::span<const float> z;           // [T,L]
  std::span<const float> delta_gate;  // [T,I] scale B A z, or empty
  std::span<const float> delta_up;    // [T,I] or empty
  SituBetas betas;
  std::span<float> inner_sum;  // [T,I] (+=) sum_e w_e a_e, or empty
  std::span<float> routed;     // [T,L] (+=) sum_e w_e W2 a_e
};

// Floats of scratch for n tokens of one expert.
std::int64_t expert_scratch(std::int64_t n, std::int64_t latent, std::int64_t inner) noexcept;

// a = situ_glu(w1 z + delta_gate, w3 z + delta_up);  inner_sum += w a;  routed += w (w2 a)
//
// Order     a token's sums grow expert by expert in the order of the calls: (shard, offset), each
//           term by one fma; nothing depends on the other tokens of the batch
void expert_forward(const ExpertWeights& expert, const ExpertTokens& tokens,
                    const ExpertsForward& batch, std::span<float> scratch) noexcept;

struct ExpertsBackward {
  std::span<const float> z;           // [T,L]
  std::span<const float> delta_gate;  // [T,I] or empty
  std::span<const float> delta_up;    // [T,I] or empty
  SituBetas betas;
  std::span<const float> d_routed;    // [T,L] G
  std::span<const float> delta_down;  // [T,I] scale A^T B^T G of the down adapter, or empty
  std::span<float> inner_sum;         // [T,I] (+=) or empty
  std::span<float> d_gate_sum;        // [T,I] (+=) sum_e d_g_e, or empty
  std::span<float> d_up_sum;          // [T,I] (+=) sum_e d_u_e, or empty
  std::span<float> d_z;               // [T,L] (+=) sum_e W1^T d_g_e + W3^T d_u_e
};

// Five products, not six: tau = W2^T G + delta_down gives both d_a = w tau and d_w = <tau, a>.
//
// Shape     d_weight [n] (=)
// Accuracy  <tau, a> in double, rounded once
// Order     as forward; an expert's d_z is one chain from +0 over W1's rows, then W3's, then added
void expert_backward(const ExpertWeights& expert, const ExpertTokens& tokens,
                     const ExpertsBackward& batch, std::span<float> scratch,
                     std::span<float> d_weight) noexcept;

}  // namespace engine::ops
