#pragma once

#include <cstdint>
#include <span>

#include "engine/model/half.h"
#include "engine/model/layer_weights.h"

namespace engine::model {

// What a KDA sublayer computes on its way (docs/model.md section 7), as far as its backward wants it
// and cannot have it again for a few operations an element. [T,P] unless said; P = Hk D.
struct KdaActivations {
  std::span<float> q_in, k_in, v_in;  // projections, inputs of the convolutions
  std::span<float> q, k, v;           // after convolution and SiLU; q and k after the L2 norm,
                                      // q scaled by D^-1/2
  std::span<float> q_inv, k_inv;      // [T,Hk]
  std::span<float> beta;              // [T,Hk]
  std::span<float> bottleneck;        // [T,D]
  std::span<float> z, alpha;          // decay
  std::span<float> states;            // [chunks,Hk,D,D]
  std::span<float> o, o_norm, gate;   // recurrence output, normed, output gate
  std::span<float> o_inv;             // [T,Hk]
  LowRank q_low, v_low;               // [T,R] adapters

  explicit KdaActivations(const HalfContext& context);
};

// All but the gated product and the output projection.
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
