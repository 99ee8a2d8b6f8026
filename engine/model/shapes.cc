#include "engine/model/shapes.h"

#include <charconv>
#include <nlohmann/json.hpp>
#include <vector>

#include "engine/base/error.h"

namespace engine::model {

namespace {

using Json = nlohmann::ordered_json;

// What all shapes have in common with the release.
Config released() {
  Config config;
  config.rms_norm_eps = 1e-5f;
  config.conv_kernel = 4;
  config.gate_lower_bound = -5.0f;
  config.shared_experts = 2;
  config.dense_layers = 1;
  config.situ_beta = 4.0f;
  config.situ_linear_beta = 25.0f;
  return config;
}

// MLA in every fourth layer and in the last one.
std::vector<bool> every_fourth_and_last(std::int64_t layers) {
  std::vector<bool> is_mla(static_cast<std::size_t>(layers));
  for (std::int64_t n = 0; n < layers; ++n) is_mla[n] = (n + 1) % 4 == 0 || n + 1 == layers;
  return is_mla;
}

Config tiny() {
  Config config = released();
  config.layers = 13;
  config.is_mla = every_fourth_and_last(config.layers);  // 3 7 11 12
  config.block = 4;
  config.hidden = 128;
  config.vocabulary = 512;
  config.kda_heads = 4;
  config.kda_width = 32;
  config.mla_heads = 4;
  config.q_lora_rank = 64;
  config.kv_lora_rank = 48;
  config.nope_width = 32;
  config.rope_width = 16;
  config.value_width = 32;
  config.experts = 16;
  config.chosen = 4;
  config.latent = 64;
  config.inner = 96;
  config.dense_inner = 320;
  return config;
}

Config small() {
  Config config = tiny();
  config.hidden = 512;
  config.vocabulary = 4096;
  config.kda_width = 64;
  config.q_lora_rank = 192;
  config.kv_lora_rank = 128;
  config.nope_width = 64;
  config.rope_width = 32;
  config.value_width = 48;
  config.experts = 32;
  config.latent = 256;
  config.inner = 352;
  config.dense_inner = 1280;
  return config;
}

Config medium() {
  Config config = released();
  config.layers = 26;
  config.is_mla = every_fourth_and_last(config.layers);
  config.is_mla[24] = true;  // as in the release, the last two layers are both MLA
  config.block = 12;
  config.hidden = 1024;
  config.vocabulary = 8192;
  config.kda_heads = 8;
  config.kda_width = 128;
  config.mla_heads = 8;
  config.q_lora_rank = 384;
  config.kv_lora_rank = 256;
  config.nope_width = 128;
  config.rope_width = 64;
  config.value_width = 128;
  config.experts = 64;
  config.chosen = 8;
  config.latent = 512;
  config.inner = 736;
  config.dense_inner = 4096;
  return config;
}

Config full() {
  Config config = released();
  config.layers = 93;
  config.is_mla = every_fourth_and_last(config.layers);
  config.block = 12;
  config.hidden = 7168;
  config.vocabulary = 163840;
  config.kda_heads = 96;
  config.kda_width = 128;
  config.mla_heads = 96;
  config.q_lora_rank = 1536;
  config.kv_lora_rank = 512;
  config.nope_width = 128;
  config.rope_width = 64;
  config.value_width = 128;
  config.experts = 896;
  config.chosen = 16;
  config.latent = 3584;
  config.inner = 3072;
  config.dense_inner = 33792;
  return config;
}

// The block of the release: MXFP4 for what `ignore` leaves, which is the routed experts.
Json quantization() {
  return {{"quant_method", "compressed-tensors"},
          {"format", "mxfp4-pack-quantized"},
          {"quantization_status", "compressed"},
          {"config_groups",
           {{"group_0",
             {{"format", "mxfp4-pack-quantized"},
              {"targets", Json::array({"Linear"})},
              {"input_activations", nullptr},
              {"output_activations", nullptr},
              {"weights",
               {{"num_bits", 4},
                {"type", "float"},
                {"symmetric", true},
                {"strategy", "group"},
                {"group_size", 32},
                {"scale_dtype", "torch.uint8"},
                {"dynamic", false}}}}}}},
          {"ignore", Json::array({"re:.*self_attn.*", "re:.*shared_experts.*",
                                  "re:.*mlp\\.(gate|up|gate_up|down)_proj.*", "re:.*lm_head.*",
                                  "re:.*vision_tower.*", "re:.*mm_projector.*"})},
          {"kv_cache_scheme", nullptr}};
}

// The double whose text is the float's own: 1e-05, not 9.999999747378752e-06.
double as_written(float value) {
  const std::string text = fmt::format("{}", value);
  double number = 0.0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

}  // namespace

CheckpointShape checkpoint_shape(std::string_view name) {
  if (name == "tiny") return {tiny(), 4};
  if (name == "small") return {small(), 5};
  if (name == "medium") return {medium(), 9};
  if (name == "full-sparse") return {full(), 96, true};
  throw base::Error("there is no shape '{}': tiny, small, medium or full-sparse", name);
}

std::string config_json(const Config& config) {
  std::vector<std::int64_t> full;
  std::vector<std::int64_t> kda;
  for (std::int64_t n = 0; n < config.layers; ++n) (config.is_mla[n] ? full : kda).push_back(n + 1);
  const Json linear = {{"num_heads", config.kda_heads},
                       {"head_dim", config.kda_width},
                       {"short_conv_kernel_size", config.conv_kernel},
                       {"gate_lower_bound", as_written(config.gate_lower_bound)},
                       {"use_full_rank_gate", true},
                       {"full_attn_layers", full},
                       {"kda_layers", kda}};
  const Json text = {{"model_type", "kimi_linear"},
                     {"hidden_size", config.hidden},
                     {"num_hidden_layers", config.layers},
                     {"vocab_size", config.vocabulary},
                     {"rms_norm_eps", as_written(config.rms_norm_eps)},
                     {"hidden_act", "situ"},
                     {"activation_situ_beta", as_written(config.situ_beta)},
                     {"activation_situ_linear_beta", as_written(config.situ_linear_beta)},
                     {"attn_res_block_size", config.block},
                     {"linear_attn_config", linear},
                     {"num_attention_heads", config.mla_heads},
                     {"q_lora_rank", config.q_lora_rank},
                     {"kv_lora_rank", config.kv_lora_rank},
                     {"qk_nope_head_dim", config.nope_width},
                     {"qk_rope_head_dim", config.rope_width},
                     {"v_head_dim", config.value_width},
                     {"mla_use_nope", true},
                     {"mla_use_output_gate", true},
                     {"intermediate_size", config.dense_inner},
                     {"first_k_dense_replace", config.dense_layers},
                     {"num_experts", config.experts},
                     {"num_experts_per_token", config.chosen},
                     {"num_shared_experts", config.shared_experts},
                     {"routed_expert_hidden_size", config.latent},
                     {"moe_intermediate_size", config.inner},
                     {"moe_renormalize", config.renormalize},
                     {"latent_moe_use_norm", config.latent_norm},
                     {"routed_scaling_factor", as_written(config.routed_scaling)},
                     {"moe_router_activation_func", "sigmoid"},
                     {"num_expert_group", 1},
                     {"topk_group", 1},
                     {"topk_method", "noaux_tc"},
                     {"num_nextn_predict_layers", 0},
                     {"quantization_config", quantization()}};
  // The release keeps its 256 control ids at the end of the vocabulary.
  const Json whole = {{"architectures", Json::array({"KimiK3ForConditionalGeneration"})},
                      {"model_type", "kimi_k3"},
                      {"bos_token_id", config.vocabulary - 256},
                      {"eos_token_id", config.vocabulary - 254},
                      {"pad_token_id", config.vocabulary - 1},
                      {"tie_word_embeddings", false},
                      {"text_config", text}};
  return whole.dump(2) + '\n';
}

}  // namespace engine::model
