#pragma once

#include <cstdint>
#include <span>
#include <variant>
#include <vector>

#include "engine/model/expert_source.h"
#include "engine/model/half.h"
#include "engine/model/layer_weights.h"
#include "engine/model/moe_mlp.h"

namespace engine::model {

// One decoder layer (docs/model.md section 6) in two halves, attention and MLP: the unit that is in
// memory. Both have the same frame: a mix of the bank and the running residual, a norm, a sublayer
// whose output is added to the residual. The mix feeds the sublayer only; what is added to is the
// residual itself.

struct AttentionHalf {
  MixWeights mix;
  std::variant<KdaWeights, MlaWeights> attention;
};

struct MlpHalf {
  MixWeights mix;
  std::variant<DenseBands, MoeWeights> mlp;
};

AttentionHalf load_attention_half(WeightLoader& loader, const Config& config, std::int64_t layer);
// Of a dense MLP the mix alone: its matrices come band by band, see LayerStream.
MlpHalf load_mlp_half(WeightLoader& loader, const Config& config, std::int64_t layer);

// The bank as a half sees it: its entries, oldest first, each [T,H]. Never derived from the layer
// number here: a half takes the bank it is given.
using Bank = std::span<const float* const>;
using BankGradient = std::span<float* const>;

// x = mix(bank, h), or h where the bank is empty; h (in/out) becomes h + attention(norm(x)), or
// just the attention's output at a block boundary, where the caller has put h into the bank for all
// that follows.
// Shape     h [T,H]; bank: the entries BEFORE this layer's own snapshot
void attention_half_forward(const HalfContext& context, const AttentionHalf& half, Bank bank,
                            bool boundary, std::span<float> h);

// h: the residual that entered. d_h (in/out): dL/d(residual that left) becomes dL/d(residual that
// entered), without what the bank entry made of it still has to bring. d_bank (+=).
void attention_half_backward(const HalfContext& context, const AttentionHalf& half, Bank bank,
                             bool boundary, std::span<const float> h, BankGradient d_bank,
                             std::span<float> d_h);

// r (in/out) becomes r + mlp(norm(mix(bank, r))). The bank includes this layer's own snapshot, if
// it is a boundary. `record` is written for a MoE layer.
MoeStatistics mlp_half_forward(const HalfContext& context, const MlpHalf& half,
                               const ExpertSource& experts, Bank bank, const MoeRecord& record,
                               std::span<float> r);

// r: the residual that entered this half. d_r (in/out). d_bank (+=).
void mlp_half_backward(const HalfContext& context, const MlpHalf& half, const ExpertSource& experts,
                       Bank bank, const MoeRecord& record, std::span<const float> r,
                       BankGradient d_bank, std::span<float> d_r);

}  // namespace engine::model
