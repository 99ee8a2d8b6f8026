#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "engine/store/finding.h"

namespace engine::model {

// The configuration of a Kimi K3 text model; symbols and field names of docs/model.md section 1.
struct Config {
  std::int64_t hidden = 0;          // H   hidden_size
  std::int64_t layers = 0;          // NL  num_hidden_layers
  std::int64_t vocabulary = 0;      // V   vocab_size
  float rms_norm_eps = 0.0f;        // eps
  std::int64_t kda_heads = 0;       // Hk  linear_attn_config.num_heads
  std::int64_t kda_width = 0;       // D   linear_attn_config.head_dim
  std::int64_t conv_kernel = 0;     // Kc  short_conv_kernel_size
  float gate_lower_bound = 0.0f;    // lb, negative
  std::int64_t mla_heads = 0;       // Hm  num_attention_heads
  std::int64_t q_lora_rank = 0;     // Rq
  std::int64_t kv_lora_rank = 0;    // Rkv
  std::int64_t nope_width = 0;      // Dn  qk_nope_head_dim
  std::int64_t rope_width = 0;      // Dr  qk_rope_head_dim
  std::int64_t value_width = 0;     // Dv  v_head_dim
  std::int64_t experts = 0;         // E   num_experts
  std::int64_t chosen = 0;          // k   num_experts_per_token
  std::int64_t shared_experts = 0;  // ns  num_shared_experts
  std::int64_t latent = 0;          // L   routed_expert_hidden_size
  std::int64_t inner = 0;           // I   moe_intermediate_size
  float routed_scaling = 1.0f;      // rs  routed_scaling_factor
  bool renormalize = true;          // moe_renormalize
  bool latent_norm = true;          // latent_moe_use_norm
  std::int64_t dense_layers = 0;    // FD  first_k_dense_replace
  std::int64_t dense_inner = 0;     // Id  intermediate_size
  std::int64_t block = 0;           // B   attn_res_block_size
  float situ_beta = 0.0f;           // beta1
  float situ_linear_beta = 0.0f;    // beta2
  std::vector<bool> is_mla;         // [NL], from the ONE-based full_attn_layers

  std::string sha256;  // of the bytes of config.json
  // Whether a quantization_config says that the experts are MXFP4. If not, nothing but the names
  // weight_packed and weight_scale does, and `lazylora shards` says so.
  bool quantization_stated = false;

  bool is_dense(std::int64_t layer) const { return layer < dense_layers; }
  bool is_boundary(std::int64_t layer) const { return layer % block == 0; }
  // Bank entries present when `layer` starts, before its own snapshot.
  std::int64_t bank_before(std::int64_t layer) const {
    return layer == 0 ? 0 : (layer - 1) / block + 1;
  }
  std::int64_t bank_entries() const { return bank_before(layers); }
  std::int64_t kda_inner() const { return kda_heads * kda_width; }      // P
  std::int64_t shared_inner() const { return shared_experts * inner; }  // SI
  std::int64_t mla_query() const { return mla_heads * (nope_width + rope_width); }
  std::int64_t mla_key_value() const { return mla_heads * (nope_width + value_width); }
  std::int64_t mla_output() const { return mla_heads * value_width; }
};

// Reads FOLDER/config.json, nested (text_config, linear_attn_config) or flat with the aliases of
// docs/model.md section 1.
//
// Errors    Error naming file and field: missing, of the wrong type, out of range, given twice
//           with different values, or present with a value that this program does not compute; and
//           how many fields more are wrong
Config load_config(const std::filesystem::path& folder);

// Nothing, and a finding for every wrong field, where load_config throws.
std::optional<Config> inspect_config(const std::filesystem::path& folder,
                                     std::vector<store::Finding>& findings);

// load_config from text; `where` names it in messages.
Config parse_config(const std::string& text, const std::string& where);

}  // namespace engine::model
