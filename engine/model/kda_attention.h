#pragma once

#include <cstdint>
#include <span>

#include "engine/model/half.h"
#include "engine/model/layer_weights.h"

namespace engine::model {

// What a KDA sublayer computes on its way (docs/model.md section 7), all that its backward wants.
// [T,P] unless said; P = Hk D.
struct KdaActivations {
  std::span<float> q_in, k_in, v_in;        // projections, inputs of the convolutions
  std::span<float> q_conv, k_conv, v;       // after convolution and SiLU
  std::span<float> q, k;                    // after the L2 norm; q scaled by D^-1/2
  std::span<float> q_inv, k_inv;            // [T,Hk]
  std::span<float> beta;                    // [T,Hk]
  std::span<float> bottleneck;              // [T,D]
  std::span<float> z, g, alpha;             // decay
  std::span<float> states;                  // [chunks,Hk,D,D]
  std::span<float> o, o_norm, gate, gated;  // recurrence output, normed, gate, product
  std::span<float> o_inv;                   // [T,Hk]
  LowRank q_low, v_low;                     // [T,R] adapters

  explicit KdaActivations(const HalfContext& context);
};

// All but the output projection.
// Shape     x [T,H] after input_layernorm
void kda_attention_inner(const HalfContext& context, const KdaWeights& w, std::span<const float> x,
                         const KdaActivations& a);

// out [T,H] (=)
void kda_attention_forward(const HalfContext& context, const KdaWeights& w,
                           std::span<const float> x, std::span<float> out);

// Recomputes the inner part, then d_x [T,H] (=) and the adapters' gradients (+=).
void kda_attention_backward(const HalfContext& context, const KdaWeights& w,
                            std::span<const float> x, std::span<const float> d_out,
                            std::span<float> d_x);

}  // namespace engine::model
