#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "checks/store/shard_files.h"
#include "engine/model/config.h"

namespace checks {

// The released configuration (docs/model.md sections 1 and 13).
inline nlohmann::json released_config() {
  static const auto text = nlohmann::json::parse(R"({
    "architectures": ["KimiK3ForConditionalGeneration"], "model_type": "kimi_k3",
    "tie_word_embeddings": false, "vision_config": {"hidden_size": 1152, "num_hidden_layers": 27},
    "text_config": {
      "model_type": "kimi_linear", "hidden_size": 7168, "num_hidden_layers": 93, "vocab_size": 163840,
      "rms_norm_eps": 1e-5, "num_attention_heads": 96, "head_dim": 74, "q_lora_rank": 1536,
      "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
      "mla_use_nope": true, "mla_use_output_gate": true, "use_full_rank_gate": true,
      "hidden_act": "situ", "num_experts": 896, "num_experts_per_token": 16, "num_shared_experts": 2,
      "num_expert_group": 1, "topk_group": 1, "topk_method": "noaux_tc",
      "moe_router_activation_func": "sigmoid", "num_nextn_predict_layers": 0,
      "routed_expert_hidden_size": 3584, "moe_intermediate_size": 3072, "routed_scaling_factor": 1.0,
      "moe_renormalize": true, "latent_moe_use_norm": true, "first_k_dense_replace": 1,
      "intermediate_size": 33792, "attn_res_block_size": 12, "activation_situ_beta": 4.0,
      "activation_situ_linear_beta": 25.0,
      "linear_attn_config": {"num_heads": 96, "head_dim": 128, "short_conv_kernel_size": 4,
                             "gate_lower_bound": -5.0, "full_attn_layers": [], "kda_layers": []},
      "quantization_config": {
        "quant_method": "compressed-tensors", "format": "mxfp4-pack-quantized",
        "quantization_status": "compressed",
        "config_groups": {"group_0": {
          "input_activations": null,
          "weights": {"group_size": 32, "num_bits": 4, "type": "float", "symmetric": true,
                      "scale_dtype": "torch.uint8"}}},
        "ignore": ["re:.*self_attn.*", "re:.*shared_experts.*",
                   "re:.*mlp\\.(gate|up|gate_up|down)_proj.*", "re:.*lm_head.*",
                   "re:.*vision_tower.*", "re:.*mm_projector.*"]}}})");
  nlohmann::json config = text;
  nlohmann::json& linear = config["text_config"]["linear_attn_config"];
  for (int n = 1; n <= 93; ++n) {
    linear[n % 4 == 0 || n == 93 ? "full_attn_layers" : "kda_layers"].push_back(n);
  }
  return config;
}

// The message with which it is refused; empty if it is accepted.
inline std::string refusal(const nlohmann::json& config) {
  return error_of([&] { engine::model::parse_config(config.dump(), "DIR/config.json"); });
}

}  // namespace checks
