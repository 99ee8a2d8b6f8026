#pragma once

#include <cstdint>
#include <span>

#include "engine/model/half.h"
#include "engine/model/layer_weights.h"

namespace engine::model {

// What an MLA sublayer computes on its way (docs/model.md section 8).
struct MlaActivations {
  std::span<float> q_latent, q_normed, q_inv;     // [T,Rq], [T,Rq], [T]
  std::span<float> q;                             // [T,Hm,Dn+Dr]
  std::span<float> kv_all;                        // [T,Rkv+Dr]
  std::span<float> kv_latent, kv_normed, kv_inv;  // [T,Rkv], [T,Rkv], [T]
  std::span<float> kr;                            // [T,Dr]
  std::span<float> kv;                            // [T,Hm,Dn+Dv], carried tokens in front
  std::span<float> o, gate, gated;                // [T,Hm,Dv]
  std::span<float> scratch;
  LowRank q_low, v_low;  // [T,R] adapters

  explicit MlaActivations(const HalfContext& context);
};

// All but the output projection.
// Shape     x [T,H] after input_layernorm
void mla_attention_inner(const HalfContext& context, const MlaWeights& w, std::span<const float> x,
                         const MlaActivations& a);

// out [T,H] (=)
void mla_attention_forward(const HalfContext& context, const MlaWeights& w,
                           std::span<const float> x, std::span<float> out);

// Recomputes the inner part, then d_x [T,H] (=) and the adapters' gradients (+=).
void mla_attention_backward(const HalfContext& context, const MlaWeights& w,
                            std::span<const float> x, std::span<const float> d_out,
                            std::span<float> d_x);

}  // namespace engine::model
