#include "engine/model/layer_weights.h"

#include "engine/base/error.h"

namespace engine::model {

std::string layer_prefix(std::int64_t layer) {
  return fmt::format("language_model.model.layers.{}.", layer);
}

MixWeights load_attention_mix(WeightLoader& loader, const Config& config, std::int64_t layer) {
  const std::string prefix = layer_prefix(layer);
  return {loader.vector(prefix + "self_attention_res_norm.weight", config.hidden),
          loader.vector(prefix + "self_attention_res_proj.weight", config.hidden),
          loader.vector(prefix + "input_layernorm.weight", config.hidden)};
}

MixWeights load_mlp_mix(WeightLoader& loader, const Config& config, std::int64_t layer) {
  const std::string prefix = layer_prefix(layer);
  return {loader.vector(prefix + "mlp_res_norm.weight", config.hidden),
          loader.vector(prefix + "mlp_res_proj.weight", config.hidden),
          loader.vector(prefix + "post_attention_layernorm.weight", config.hidden)};
}

MixWeights load_output_mix(WeightLoader& loader, const Config& config) {
  const std::string prefix = "language_model.model.";
  return {loader.vector(prefix + "output_attn_res_norm.weight", config.hidden),
          loader.vector(prefix + "output_attn_res_proj.weight", config.hidden),
          loader.vector(prefix + "norm.weight", config.hidden)};
}

KdaWeights load_kda(WeightLoader& loader, const Config& config, std::int64_t layer) {
  const std::string prefix = layer_prefix(layer) + "self_attn.";
  const std::int64_t inner = config.kda_inner();
  const std::int64_t hidden = config.hidden;
  KdaWeights w;
  w.q = loader.matrix(prefix + "q_proj.weight", inner, hidden);
  w.k = loader.matrix(prefix + "k_proj.weight", inner, hidden);
  w.v = loader.matrix(prefix + "v_proj.weight", inner, hidden);
  w.g = loader.matrix(prefix + "g_proj.weight", inner, hidden);
  w.o = loader.matrix(prefix + "o_proj.weight", hidden, inner);
  w.f_a = loader.matrix(prefix + "f_a_proj.weight", config.kda_width, hidden);
  w.f_b = loader.matrix(prefix + "f_b_proj.weight", inner, config.kda_width);
  w.b = loader.matrix(prefix + "b_proj.weight", config.kda_heads, hidden);
  w.q_conv = loader.vector(prefix + "q_conv1d.weight", inner * config.conv_kernel);
  w.k_conv = loader.vector(prefix + "k_conv1d.weight", inner * config.conv_kernel);
  w.v_conv = loader.vector(prefix + "v_conv1d.weight", inner * config.conv_kernel);
  w.a_log = loader.vector(prefix + "A_log", config.kda_width);
  w.dt_bias = loader.vector(prefix + "dt_bias", inner);
  w.o_norm = loader.vector(prefix + "o_norm.weight", config.kda_width);
  return w;
}

MlaWeights load_mla(WeightLoader& loader, const Config& config, std::int64_t layer) {
  const std::string prefix = layer_prefix(layer) + "self_attn.";
  const std::int64_t hidden = config.hidden;
  MlaWeights w;
  w.q_a = loader.matrix(prefix + "q_a_proj.weight", config.q_lora_rank, hidden);
  w.q_b = loader.matrix(prefix + "q_b_proj.weight", config.mla_query(), config.q_lora_rank);
  w.kv_a = loader.matrix(prefix + "kv_a_proj_with_mqa.weight",
                         config.kv_lora_rank + config.rope_width, hidden);
  w.kv_b = loader.matrix(prefix + "kv_b_proj.weight", config.mla_key_value(), config.kv_lora_rank);
  w.g = loader.matrix(prefix + "g_proj.weight", config.mla_output(), hidden);
  w.o = loader.matrix(prefix + "o_proj.weight", hidden, config.mla_output());
  w.q_a_norm = loader.vector(prefix + "q_a_layernorm.weight", config.q_lora_rank);
  w.kv_a_norm = loader.vector(prefix + "kv_a_layernorm.weight", config.kv_lora_rank);
  return w;
}

namespace {

DenseWeights load_glu(WeightLoader& loader, const std::string& prefix, std::int64_t hidden,
                      std::int64_t inner) {
  return {loader.matrix(prefix + "gate_proj.weight", inner, hidden),
          loader.matrix(prefix + "up_proj.weight", inner, hidden),
          loader.matrix(prefix + "down_proj.weight", hidden, inner)};
}

}  // namespace

DenseMatrix dense_matrix(const Config& config, std::int64_t layer, DensePart part) {
  const std::string prefix = layer_prefix(layer) + "mlp.";
  switch (part) {
    case DensePart::kGate:
      return {prefix + "gate_proj.weight", config.dense_inner, config.hidden};
    case DensePart::kUp:
      return {prefix + "up_proj.weight", config.dense_inner, config.hidden};
    case DensePart::kDown:
      break;
  }
  return {prefix + "down_proj.weight", config.hidden, config.dense_inner};
}

DenseBands bands_of(const DenseWeights& w) {
  const auto whole = [](const ops::Weight& matrix) {
    return BandedMatrix{1, [matrix](std::int64_t) { return matrix; }};
  };
  return {whole(w.gate), whole(w.up), whole(w.down)};
}

MoeWeights load_moe(WeightLoader& loader, const Config& config, std::int64_t layer) {
  const std::string prefix = layer_prefix(layer) + "block_sparse_moe.";
  MoeWeights w;
  w.router = loader.matrix(prefix + "gate.weight", config.experts, config.hidden);
  w.correction_bias = loader.vector(prefix + "gate.e_score_correction_bias", config.experts);
  w.latent_down =
      loader.matrix(prefix + "routed_expert_down_proj.weight", config.latent, config.hidden);
  w.latent_up =
      loader.matrix(prefix + "routed_expert_up_proj.weight", config.hidden, config.latent);
  if (config.latent_norm) {
    w.latent_norm = loader.vector(prefix + "routed_expert_norm.weight", config.latent);
  }
  w.shared = load_glu(loader, prefix + "shared_experts.", config.hidden, config.shared_inner());
  return w;
}

}  // namespace engine::model
