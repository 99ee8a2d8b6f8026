#pragma once

#include <cstdint>
#include <span>

#include "engine/model/expert_source.h"
#include "engine/model/half.h"
#include "engine/model/layer_weights.h"

namespace engine::model {

// What the forward sweep keeps of a MoE layer so that the backward sweep needs neither a second
// choice nor a third read of an expert.
struct MoeRecord {
  std::span<std::int32_t> index;  // [T,k] the choice, in descending selection score
  std::span<float> routed;        // [T,L] sum_e w_e y_e, adapters included, before its norm
};

struct MoeStatistics {
  std::int64_t distinct_experts = 0;
  float smallest_gap = 0.0f;
};

// docs/model.md section 9. `out` [T,H] (=), record (=).
// Shape     x [T,H] after post_attention_layernorm
// Cost      every distinct expert is asked for once
MoeStatistics moe_forward(const HalfContext& context, const MoeWeights& w,
                          const ExpertSource& experts, std::span<const float> x,
                          const MoeRecord& record, std::span<float> out);

// d_x [T,H] (=) and the adapters' gradients (+=), from the stored choice.
// Cost      every distinct expert is asked for once
void moe_backward(const HalfContext& context, const MoeWeights& w, const ExpertSource& experts,
                  std::span<const float> x, const MoeRecord& record, std::span<const float> d_out,
                  std::span<float> d_x);

}  // namespace engine::model
