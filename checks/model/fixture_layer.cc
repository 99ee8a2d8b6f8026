#include "checks/model/fixture_layer.h"

#include <fmt/format.h>

#include <numeric>
#include <stdexcept>

namespace checks {

namespace model = engine::model;

model::Config fixture_config() {
  model::Config c;
  c.hidden = 128;
  c.layers = 13;
  c.vocabulary = 256;
  c.rms_norm_eps = 1e-5f;
  c.kda_heads = 4;
  c.kda_width = 16;
  c.conv_kernel = 4;
  c.gate_lower_bound = -5.0f;
  c.mla_heads = 4;
  c.q_lora_rank = 64;
  c.kv_lora_rank = 32;
  c.nope_width = 24;
  c.rope_width = 8;
  c.value_width = 16;
  c.experts = 8;
  c.chosen = 2;
  c.shared_experts = 2;
  c.latent = 64;
  c.inner = 48;
  c.dense_layers = 1;
  c.dense_inner = 96;
  c.block = 3;
  c.situ_beta = 4.0f;
  c.situ_linear_beta = 25.0f;
  c.is_mla.assign(13, false);
  for (const std::size_t layer : {3, 7, 11, 12}) c.is_mla[layer] = true;
  return c;
}

FixtureLayers::FixtureLayers(const NamedTensors& tensors) {
  for (const auto& [name, tensor] : tensors) values_[name] = {tensor.shape, tensor.f32()};
}

std::span<const float> FixtureLayers::vector(const std::string& name) const {
  const auto found = values_.find(name);
  if (found == values_.end()) throw std::runtime_error("the fixture has no " + name);
  return found->second.data;
}

engine::ops::Weight FixtureLayers::matrix(const std::string& name) const {
  const std::span<const float> data = vector(name);
  const std::vector<std::int64_t>& shape = values_.at(name).shape;
  return {engine::ops::WeightKind::kF32, data.data(), nullptr, shape.at(0), shape.at(1)};
}

model::AttentionHalf FixtureLayers::attention(const model::Config& config, std::int64_t layer,
                                              const std::string& prefix) const {
  model::AttentionHalf half;
  half.mix = {vector(prefix + "self_attention_res_norm_weight"),
              vector(prefix + "self_attention_res_proj_weight"),
              vector(prefix + "input_layernorm_weight")};
  const std::string p = prefix + "self_attn_";
  if (config.is_mla[static_cast<std::size_t>(layer)]) {
    half.attention = model::MlaWeights{matrix(p + "q_a_proj_weight"),
                                       matrix(p + "q_b_proj_weight"),
                                       matrix(p + "kv_a_proj_with_mqa_weight"),
                                       matrix(p + "kv_b_proj_weight"),
                                       matrix(p + "g_proj_weight"),
                                       matrix(p + "o_proj_weight"),
                                       vector(p + "q_a_layernorm_weight"),
                                       vector(p + "kv_a_layernorm_weight")};
  } else {
    half.attention = model::KdaWeights{
        matrix(p + "q_proj_weight"),   matrix(p + "k_proj_weight"),   matrix(p + "v_proj_weight"),
        matrix(p + "g_proj_weight"),   matrix(p + "o_proj_weight"),   matrix(p + "f_a_proj_weight"),
        matrix(p + "f_b_proj_weight"), matrix(p + "b_proj_weight"),   vector(p + "q_conv1d_weight"),
        vector(p + "k_conv1d_weight"), vector(p + "v_conv1d_weight"), vector(p + "A_log"),
        vector(p + "dt_bias"),         vector(p + "o_norm_weight")};
  }
  return half;
}

model::MlpHalf FixtureLayers::mlp(const model::Config& config, std::int64_t layer,
                                  const std::string& prefix) const {
  model::MlpHalf half;
  half.mix = {vector(prefix + "mlp_res_norm_weight"), vector(prefix + "mlp_res_proj_weight"),
              vector(prefix + "post_attention_layernorm_weight")};
  const std::string p = prefix + "mlp_";
  if (config.is_dense(layer)) {
    half.mlp = model::bands_of({matrix(p + "gate_proj_weight"), matrix(p + "up_proj_weight"),
                                matrix(p + "down_proj_weight")});
  } else {
    half.mlp = model::MoeWeights{matrix(p + "gate_weight"),
                                 vector(p + "e_score_correction_bias"),
                                 matrix(p + "down_weight"),
                                 matrix(p + "up_weight"),
                                 vector(p + "norm_weight"),
                                 {matrix(p + "shared_w1_weight"), matrix(p + "shared_w3_weight"),
                                  matrix(p + "shared_w2_weight")}};
  }
  return half;
}

model::ExpertSource FixtureLayers::experts(const model::Config& config,
                                           const std::string& prefix) const {
  model::ExpertSource source;
  source.order.resize(static_cast<std::size_t>(config.experts));
  std::iota(source.order.begin(), source.order.end(), 0);
  source.load = [this, prefix](std::int32_t expert) {
    const std::string p = fmt::format("{}mlp_experts_{}_", prefix, expert);
    return engine::ops::ExpertWeights{matrix(p + "w1_weight"), matrix(p + "w2_weight"),
                                      matrix(p + "w3_weight")};
  };
  return source;
}

void fixture_layer_forward(const FixtureLayers& layers, const model::Config& config,
                           std::int64_t layer, const std::string& prefix,
                           std::vector<std::vector<float>>& bank, std::vector<float>& h,
                           model::CarriedState* carried) {
  const std::int64_t tokens = static_cast<std::int64_t>(h.size()) / config.hidden;
  const std::vector<std::int64_t> documents = {0, tokens};
  std::vector<std::byte> block(std::size_t{1} << 24);
  engine::base::Arena arena(block);
  const model::HalfContext context{config, layer, tokens, documents, nullptr, arena, {}, carried};
  const auto views = [&bank] {
    std::vector<const float*> entries;
    for (const auto& entry : bank) entries.push_back(entry.data());
    return entries;
  };
  const bool boundary = config.is_boundary(layer);
  const std::vector<const float*> before = views();
  const std::vector<float> entered = h;
  model::attention_half_forward(context, layers.attention(config, layer, prefix), before, boundary,
                                h);
  if (boundary) bank.push_back(entered);
  const std::vector<const float*> after = views();
  std::vector<std::int32_t> index(static_cast<std::size_t>(tokens * config.chosen));
  std::vector<float> routed(static_cast<std::size_t>(tokens * config.latent));
  model::mlp_half_forward(context, layers.mlp(config, layer, prefix),
                          layers.experts(config, prefix), after, {index, routed}, h);
}

}  // namespace checks
