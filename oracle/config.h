// config.json: the sizes of a Kimi K3 text model. Released files are nested (text_config,
// linear_attn_config), flat ones work too. Nothing has a default but the three switches that the
// format calls optional.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

#include "oracle/strict_json.h"

namespace oracle {

struct Config {
  int64_t hidden, layers, vocab;
  double eps;
  int64_t kda_heads, kda_dim, conv_taps;
  double gate_lower_bound;
  int64_t mla_heads, q_rank, kv_rank, nope, rope, value;
  int64_t experts, top_k, shared_experts, latent, expert_inner;
  double routed_scale;
  bool renormalize, latent_norm;
  int64_t dense_layers, dense_inner;
  int64_t block;  // layers between two entries of the residual bank
  double beta1, beta2;
  std::vector<int64_t> full_attention;  // ONE-based, as stored

  bool is_mla(int64_t layer) const {
    return std::find(full_attention.begin(), full_attention.end(), layer + 1) !=
           full_attention.end();
  }
  bool is_dense(int64_t layer) const { return layer < dense_layers; }
  bool is_boundary(int64_t layer) const { return layer % block == 0; }
};

// Looks a field up in every place where it may stand; two places that disagree are an error.
class ConfigReader {
 public:
  ConfigReader(const nlohmann::json& root, std::string where) : where_(std::move(where)) {
    if (!root.is_object()) fail("not a JSON object");
    outer_ = {&root};
    if (const auto it = root.find("text_config"); it != root.end() && it->is_object())
      outer_.push_back(&*it);
    for (const auto* place : outer_) {
      const auto it = place->find("linear_attn_config");
      if (it != place->end() && it->is_object()) kda_.push_back(&*it);
    }
  }

  // A field of the model: `name`, or its flat alias.
  const nlohmann::json* find(const std::string& name, const std::string& alias = "") const {
    const nlohmann::json* found = nullptr;
    for (const auto* place : outer_) {
      merge(found, *place, name);
      merge(found, *place, alias);
    }
    return found;
  }
  // A field of the KDA block: `name` within linear_attn_config only, or its flat alias outside
  // (text_config.head_dim is something else, so num_heads and head_dim have kda_* aliases).
  const nlohmann::json* find_kda(const std::string& name, const std::string& alias) const {
    const nlohmann::json* found = nullptr;
    for (const auto* place : kda_) merge(found, *place, name);
    for (const auto* place : outer_) merge(found, *place, alias);
    return found;
  }

  int64_t count(const nlohmann::json* field, const std::string& name, int64_t least = 1) const {
    if (!field) fail(name + " is missing");
    if (!field->is_number_integer() || field->get<int64_t>() < least ||
        field->get<int64_t>() > int64_t{1} << 31) {
      fail(fmt::format("{} is {}, not an integer from {} up", name, field->dump(), least));
    }
    return field->get<int64_t>();
  }
  int64_t count(const std::string& name, int64_t least = 1) const {
    return count(find(name), name, least);
  }
  double real(const nlohmann::json* field, const std::string& name) const {
    if (!field) fail(name + " is missing");
    if (!field->is_number() || !std::isfinite(field->get<double>()))
      fail(name + " is no finite number");
    return field->get<double>();
  }
  bool flag(const std::string& name, bool otherwise) const {
    const auto* field = find(name);
    if (field && !field->is_boolean()) fail(name + " is neither true nor false");
    return field ? field->get<bool>() : otherwise;
  }
  // A field that changes the formulas or the encoding: only one value is supported.
  void only(const std::string& name, const nlohmann::json& supported) const {
    refuse_other(name, find(name), supported);
  }
  void only_quantization(const std::string& name, const nlohmann::json& supported) const {
    for (const auto* place : outer_) {
      const auto block = place->find("quantization_config");
      if (block == place->end() || !block->is_object() || !block->contains(name)) continue;
      refuse_other("quantization_config." + name, &(*block)[name], supported);
    }
  }
  [[noreturn]] void fail(const std::string& what) const {
    throw std::runtime_error(where_ + ": " + what);
  }

 private:
  void refuse_other(const std::string& name, const nlohmann::json* field,
                    const nlohmann::json& supported) const {
    if (field && *field != supported) {
      fail(fmt::format("{} is {}, only {} is supported", name, field->dump(), supported.dump()));
    }
  }
  void merge(const nlohmann::json*& found, const nlohmann::json& place,
             const std::string& name) const {
    const auto it = place.find(name);
    if (name.empty() || it == place.end()) return;
    if (found && *found != *it)
      fail(fmt::format("{} is both {} and {}", name, found->dump(), it->dump()));
    found = &*it;
  }
  std::string where_;
  std::vector<const nlohmann::json*> outer_, kda_;
};

// Errors  throws std::runtime_error naming the file and the field
// Source  docs/model.md sections 1 and 13
inline Config parse_config(const std::string& text, const std::string& where) {
  const nlohmann::json root = parse_strict_json(text, where);
  const ConfigReader r(root, where);
  Config c;
  c.hidden = r.count("hidden_size");
  c.layers = r.count("num_hidden_layers");
  c.vocab = r.count("vocab_size");
  c.eps = r.real(r.find("rms_norm_eps"), "rms_norm_eps");
  c.kda_heads = r.count(r.find_kda("num_heads", "kda_num_heads"), "kda_num_heads");
  c.kda_dim = r.count(r.find_kda("head_dim", "kda_head_dim"), "kda_head_dim");
  c.conv_taps = r.count(r.find_kda("short_conv_kernel_size", "short_conv_kernel_size"),
                        "short_conv_kernel_size");
  c.gate_lower_bound =
      r.real(r.find_kda("gate_lower_bound", "gate_lower_bound"), "gate_lower_bound");
  c.mla_heads = r.count("num_attention_heads");
  c.q_rank = r.count("q_lora_rank");
  c.kv_rank = r.count("kv_lora_rank");
  c.nope = r.count("qk_nope_head_dim");
  c.rope = r.count("qk_rope_head_dim", 0);
  c.value = r.count("v_head_dim");
  c.experts = r.count("num_experts");
  c.top_k = r.count("num_experts_per_token");
  c.shared_experts = r.count("num_shared_experts");
  c.latent = r.count("routed_expert_hidden_size");
  c.expert_inner = r.count("moe_intermediate_size");
  c.routed_scale = r.real(r.find("routed_scaling_factor"), "routed_scaling_factor");
  c.renormalize = r.flag("moe_renormalize", true);
  c.latent_norm = r.flag("latent_moe_use_norm", true);
  c.dense_layers = r.count("first_k_dense_replace", 0);
  c.dense_inner = r.count("intermediate_size");
  c.block = r.count("attn_res_block_size");
  c.beta1 = r.real(r.find("activation_situ_beta", "situ_beta"), "activation_situ_beta");
  c.beta2 = r.real(r.find("activation_situ_linear_beta", "situ_linear_beta"),
                   "activation_situ_linear_beta");

  const auto* full = r.find_kda("full_attn_layers", "full_attn_layers");
  if (!full || !full->is_array()) r.fail("full_attn_layers is missing or no list");
  for (const auto& entry : *full) {
    const int64_t layer = r.count(&entry, "an entry of full_attn_layers");
    if (layer > c.layers || c.is_mla(layer - 1)) {
      r.fail(fmt::format("full_attn_layers holds {} twice or beyond {}", layer, c.layers));
    }
    c.full_attention.push_back(layer);
  }

  if (c.gate_lower_bound >= 0) r.fail("gate_lower_bound is not negative");
  if (c.eps < 0) r.fail("rms_norm_eps is negative");
  if (c.beta1 <= 0 || c.beta2 <= 0) r.fail("a SiTU beta is not positive");
  if (c.top_k > c.experts || c.top_k > 64)
    r.fail("num_experts_per_token exceeds num_experts or 64");
  if (c.kda_heads > c.kda_dim) r.fail("more KDA heads than head_dim: A_log has one entry a head");
  for (const auto& [name, supported] : std::vector<std::pair<std::string, nlohmann::json>>{
           {"num_expert_group", 1},
           {"topk_group", 1},
           {"topk_method", "noaux_tc"},
           {"moe_router_activation_func", "sigmoid"},
           {"mla_use_nope", true},
           {"mla_use_output_gate", true},
           {"use_full_rank_gate", true},
           {"hidden_act", "situ"},
           {"num_nextn_predict_layers", 0},
           {"tie_word_embeddings", false}}) {
    r.only(name, supported);
  }
  r.only_quantization("quant_method", "compressed-tensors");
  r.only_quantization("format", "mxfp4-pack-quantized");
  r.only_quantization("group_size", 32);
  r.only_quantization("num_bits", 4);
  return c;
}

inline std::string read_text(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw std::runtime_error(path.string() + ": cannot be opened");
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace oracle
