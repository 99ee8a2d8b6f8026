#include "engine/model/layer.h"

#include <algorithm>

#include "engine/model/glu_mlp.h"
#include "engine/model/kda_attention.h"
#include "engine/model/mla_attention.h"
#include "engine/ops/attn_res.h"
#include "engine/ops/rmsnorm.h"

namespace engine::model {
namespace {

// Mixed and normed input of a sublayer, [T,H] each, and the norm's inverse roots [T].
struct SublayerInput {
  std::span<float> mixed, normed, inv;

  explicit SublayerInput(const HalfContext& context)
      : mixed(context.floats(context.tokens * context.config.hidden)),
        normed(context.floats(context.tokens * context.config.hidden)),
        inv(context.floats(context.tokens)) {}
};

std::vector<const float*> sources(Bank bank, std::span<const float> residual) {
  std::vector<const float*> all(bank.begin(), bank.end());
  all.push_back(residual.data());
  return all;
}

void mix_and_norm(const HalfContext& context, const MixWeights& w, Bank bank,
                  std::span<const float> residual, const SublayerInput& input) {
  if (bank.empty()) {
    std::copy(residual.begin(), residual.end(), input.mixed.begin());
  } else {
    ops::attn_res_forward(sources(bank, residual), w.res_norm, w.res_proj,
                          context.config.rms_norm_eps, input.mixed);
  }
  ops::rmsnorm_forward(input.mixed, w.norm, context.config.rms_norm_eps, input.normed, input.inv);
}

// From dL/d(normed) to the residual (+=) and the bank (+=). d_mixed is scratch, then dL/d(mixed).
void mix_and_norm_backward(const HalfContext& context, const MixWeights& w, Bank bank,
                           std::span<const float> residual, const SublayerInput& input,
                           std::span<const float> d_normed, std::span<float> d_mixed,
                           BankGradient d_bank, std::span<float> d_residual) {
  std::fill(d_mixed.begin(), d_mixed.end(), 0.0f);
  ops::rmsnorm_backward(d_normed, input.mixed, w.norm, input.inv, d_mixed);
  if (bank.empty()) {
    for (std::size_t i = 0; i < d_residual.size(); ++i) d_residual[i] += d_mixed[i];
    return;
  }
  std::vector<float*> gradients(d_bank.begin(), d_bank.end());
  gradients.push_back(d_residual.data());
  ops::attn_res_backward(d_mixed, sources(bank, residual), w.res_norm, w.res_proj,
                         context.config.rms_norm_eps, gradients);
}

}  // namespace

AttentionHalf load_attention_half(WeightLoader& loader, const Config& config, std::int64_t layer) {
  AttentionHalf half;
  half.mix = load_attention_mix(loader, config, layer);
  if (config.is_mla[static_cast<std::size_t>(layer)]) {
    half.attention = load_mla(loader, config, layer);
  } else {
    half.attention = load_kda(loader, config, layer);
  }
  return half;
}

MlpHalf load_mlp_half(WeightLoader& loader, const Config& config, std::int64_t layer) {
  MlpHalf half;
  half.mix = load_mlp_mix(loader, config, layer);
  if (config.is_dense(layer)) {
    half.mlp = DenseBands{};
  } else {
    half.mlp = load_moe(loader, config, layer);
  }
  return half;
}

void attention_half_forward(const HalfContext& context, const AttentionHalf& half, Bank bank,
                            bool boundary, std::span<float> h) {
  const base::Arena::Scope scope(context.arena);
  const SublayerInput input(context);
  const std::span<float> out = context.floats(context.tokens * context.config.hidden);
  if (!context.measuring()) mix_and_norm(context, half.mix, bank, h, input);
  if (const auto* kda = std::get_if<KdaWeights>(&half.attention)) {
    kda_attention_forward(context, *kda, input.normed, out);
  } else {
    mla_attention_forward(context, std::get<MlaWeights>(half.attention), input.normed, out);
  }
  if (context.measuring()) return;
  context.tracer.value("attn_res", input.mixed);
  context.tracer.value("attn_in", input.normed);
  context.tracer.value("attn_out", out);
  if (boundary) {
    std::copy(out.begin(), out.end(), h.begin());
  } else {
    for (std::size_t i = 0; i < h.size(); ++i) h[i] += out[i];
  }
}

void attention_half_backward(const HalfContext& context, const AttentionHalf& half, Bank bank,
                             bool boundary, std::span<const float> h, BankGradient d_bank,
                             std::span<float> d_h) {
  const base::Arena::Scope scope(context.arena);
  const SublayerInput input(context);
  const std::span<float> d_normed = context.floats(context.tokens * context.config.hidden);
  if (!context.measuring()) mix_and_norm(context, half.mix, bank, h, input);
  if (const auto* kda = std::get_if<KdaWeights>(&half.attention)) {
    kda_attention_backward(context, *kda, input.normed, d_h, d_normed);
  } else {
    mla_attention_backward(context, std::get<MlaWeights>(half.attention), input.normed, d_h,
                           d_normed);
  }
  const std::span<float> d_mixed = context.floats(context.tokens * context.config.hidden);
  if (context.measuring()) return;
  context.tracer.gradient("attn_out", d_h);
  context.tracer.gradient("attn_in", d_normed);
  // At a boundary the residual restarts: nothing of what entered is carried past the attention.
  if (boundary) std::fill(d_h.begin(), d_h.end(), 0.0f);
  mix_and_norm_backward(context, half.mix, bank, h, input, d_normed, d_mixed, d_bank, d_h);
  context.tracer.gradient("attn_res", d_mixed);
}

MoeStatistics mlp_half_forward(const HalfContext& context, const MlpHalf& half,
                               const ExpertSource& experts, Bank bank, const MoeRecord& record,
                               std::span<float> r) {
  const base::Arena::Scope scope(context.arena);
  const SublayerInput input(context);
  const std::span<float> out = context.floats(context.tokens * context.config.hidden);
  if (!context.measuring()) mix_and_norm(context, half.mix, bank, r, input);
  MoeStatistics statistics;
  if (const auto* dense = std::get_if<DenseBands>(&half.mlp)) {
    glu_forward(context, *dense, context.config.dense_inner, kDenseTargets, input.normed, out);
  } else {
    statistics =
        moe_forward(context, std::get<MoeWeights>(half.mlp), experts, input.normed, record, out);
  }
  if (context.measuring()) return {};
  context.tracer.value("mlp_res", input.mixed);
  context.tracer.value("mlp_in", input.normed);
  context.tracer.value("mlp_out", out);
  for (std::size_t i = 0; i < r.size(); ++i) r[i] += out[i];
  return statistics;
}

void mlp_half_backward(const HalfContext& context, const MlpHalf& half, const ExpertSource& experts,
                       Bank bank, const MoeRecord& record, std::span<const float> r,
                       BankGradient d_bank, std::span<float> d_r) {
  const base::Arena::Scope scope(context.arena);
  const SublayerInput input(context);
  const std::span<float> d_normed = context.floats(context.tokens * context.config.hidden);
  if (!context.measuring()) mix_and_norm(context, half.mix, bank, r, input);
  if (const auto* dense = std::get_if<DenseBands>(&half.mlp)) {
    std::fill(d_normed.begin(), d_normed.end(), 0.0f);
    glu_backward(context, *dense, context.config.dense_inner, kDenseTargets, input.normed, d_r,
                 d_normed);
  } else {
    moe_backward(context, std::get<MoeWeights>(half.mlp), experts, input.normed, record, d_r,
                 d_normed);
  }
  const std::span<float> d_mixed = context.floats(context.tokens * context.config.hidden);
  if (context.measuring()) return;
  context.tracer.gradient("mlp_out", d_r);
  context.tracer.gradient("mlp_in", d_normed);
  mix_and_norm_backward(context, half.mix, bank, r, input, d_normed, d_mixed, d_bank, d_r);
  context.tracer.gradient("mlp_res", d_mixed);
}

}  // namespace engine::model
