#include "engine/model/config.h"

#include <algorithm>

#include "engine/base/error.h"
#include "engine/base/sha256.h"
#include "engine/model/config_source.h"
#include "engine/ops/attn_res.h"
#include "engine/ops/kda.h"
#include "engine/store/file.h"

namespace engine::model {
namespace {

// Bounds that keep every product of two widths and a byte count far inside 64 bits, whatever a
// hostile file says; the released model stays a hundredfold below them.
constexpr std::int64_t kMaxExtent = 1 << 24;
constexpr std::int64_t kMaxLayers = 10'000;
constexpr std::int64_t kMaxWidth = std::int64_t{1} << 31;
constexpr std::int64_t kMaxConfigBytes = 16 << 20;
constexpr std::int64_t kMaxChosen = 64;
constexpr std::int64_t kQuantGroup = 32;

// 0 stands for a field that has a finding: no valid extent is 0, and no comparison below finds
// fault with it.
std::int64_t extent_of(ConfigSource& source, const Field& field, std::int64_t high = kMaxExtent) {
  return source.integer(field, 1, high).value_or(0);
}

void read_attention(ConfigSource& source, Config& config) {
  const auto extent = [&](const Field& field) { return extent_of(source, field); };
  // text_config.head_dim means something else: these two are taken from nowhere but here.
  config.kda_heads = extent({.text = "kda_num_heads", .linear = "num_heads"});
  config.kda_width = extent({.text = "kda_head_dim", .linear = "head_dim"});
  config.conv_kernel =
      extent({.text = "short_conv_kernel_size", .linear = "short_conv_kernel_size"});
  config.mla_heads = extent({"num_attention_heads"});
  config.q_lora_rank = extent({"q_lora_rank"});
  config.kv_lora_rank = extent({"kv_lora_rank"});
  config.nope_width = extent({"qk_nope_head_dim"});
  config.rope_width = extent({"qk_rope_head_dim"});
  config.value_width = extent({"v_head_dim"});

  // Absent, the older family computes -exp(A) softplus instead: another model, not a default.
  const Field bound = {.text = "gate_lower_bound", .linear = "gate_lower_bound"};
  const std::optional<float> lower = source.number(bound);
  config.gate_lower_bound = lower.value_or(0.0f);
  if (lower && !(*lower < 0.0f)) {
    source.refuse(bound, fmt::format("is {}, not below 0", *lower));
  }
}

void read_mlp(ConfigSource& source, Config& config) {
  const auto extent = [&](const Field& field) { return extent_of(source, field); };
  config.experts = extent({"num_experts"});
  config.chosen = extent_of(source, {"num_experts_per_token"},
                            config.experts > 0 ? std::min(kMaxChosen, config.experts) : kMaxChosen);
  config.shared_experts = extent({"num_shared_experts"});
  config.latent = extent({"routed_expert_hidden_size"});
  config.inner = extent({"moe_intermediate_size"});
  config.routed_scaling = source.positive({"routed_scaling_factor"});
  config.renormalize = source.flag_or({"moe_renormalize"}, true);
  config.latent_norm = source.flag_or({"latent_moe_use_norm"}, true);
  config.dense_layers =
      source.integer({"first_k_dense_replace"}, 0, config.layers > 0 ? config.layers : kMaxLayers)
          .value_or(0);
  config.dense_inner = extent({"intermediate_size"});
  config.situ_beta = source.positive({.text = "activation_situ_beta", .alias = "situ_beta"});
  config.situ_linear_beta =
      source.positive({.text = "activation_situ_linear_beta", .alias = "situ_linear_beta"});
}

// The lists count layers from ONE: taken as zero-based, every MLA layer would be its neighbour.
void read_layer_kinds(ConfigSource& source, Config& config) {
  const Field full = {.text = "full_attn_layers", .linear = "full_attn_layers"};
  const Field kda = {.text = "kda_layers", .linear = "kda_layers"};
  const std::int64_t last = config.layers > 0 ? config.layers : kMaxLayers;
  const auto mla_list = source.layers(full, last, true);
  const auto kda_list = source.layers(kda, last, false);
  if (config.layers == 0 || !mla_list) return;
  config.is_mla.assign(static_cast<std::size_t>(config.layers), false);
  for (const std::int64_t layer : *mla_list)
    config.is_mla[static_cast<std::size_t>(layer - 1)] = true;

  if (!kda_list) return;
  std::vector<bool> is_kda(config.is_mla.size(), false);
  for (const std::int64_t layer : *kda_list) is_kda[static_cast<std::size_t>(layer - 1)] = true;
  for (std::size_t n = 0; n < is_kda.size(); ++n) {
    if (is_kda[n] != config.is_mla[n]) continue;
    source.refuse(kda, fmt::format("and full_attn_layers {} layer {} (counted from 1)",
                                   is_kda[n] ? "both list" : "both miss", n + 1));
    return;
  }
}

// What no field says by itself.
void check_together(ConfigSource& source, const Config& config) {
  for (const auto& [field, value] : {std::pair{Field{"routed_expert_hidden_size"}, config.latent},
                                     std::pair{Field{"moe_intermediate_size"}, config.inner}}) {
    if (value % kQuantGroup != 0) {
      source.refuse(field, fmt::format("is {}, not a multiple of {}, the width of an MXFP4 group",
                                       value, kQuantGroup));
    }
  }
  if (config.kda_width > 0 && config.kda_width < config.kda_heads) {
    source.refuse(
        {.text = "kda_head_dim", .linear = "head_dim"},
        fmt::format("is {}, less than num_heads {}: A_log [head_dim] holds one value a head",
                    config.kda_width, config.kda_heads));
  }
  const auto limit = [&](const Field& field, std::int64_t width) {
    if (width > kMaxWidth) {
      source.refuse(field, fmt::format("makes a width of {}, more than {}", width, kMaxWidth));
    }
  };
  limit({.text = "kda_num_heads", .linear = "num_heads"}, config.kda_inner());
  limit({"num_attention_heads"},
        std::max({config.mla_query(), config.mla_key_value(), config.mla_output()}));
  limit({"num_shared_experts"}, config.shared_inner());
  if (config.kda_width > ops::kKdaMaxWidth) {
    source.refuse({.text = "kda_head_dim", .linear = "head_dim"},
                  fmt::format("is {}, more than {}: a block of the state must fit on a stack",
                              config.kda_width, ops::kKdaMaxWidth));
  }
  if (config.block > 0 && config.bank_entries() + 1 > ops::kMaxSources) {
    source.refuse({"attn_res_block_size"},
                  fmt::format("is {}: {} layers leave {} bank entries, more than {}", config.block,
                              config.layers, config.bank_entries(), ops::kMaxSources - 1));
  }
}

// What docs/model.md section 13 says of the released model and this program takes for granted.
void judge_facts(ConfigSource& source, Config& config) {
  source.require_if_present("num_expert_group", 1);
  source.require_if_present("topk_group", 1);
  source.require_if_present("topk_method", "noaux_tc");
  source.require_if_present("moe_router_activation_func", "sigmoid");
  source.require_if_present("mla_use_nope", true);
  source.require_if_present("mla_use_output_gate", true);
  source.require_if_present("use_full_rank_gate", true);
  source.require_if_present("hidden_act", "situ");
  source.require_if_present("num_nextn_predict_layers", 0);
  source.require_if_present("tie_word_embeddings", false);
  for (const auto& [path, block] : source.blocks("quantization_config")) {
    if (block->is_null()) continue;
    if (!block->is_object()) {
      source.report(path + " is not an object");
      continue;
    }
    check_quantization(*block, path, source);
    config.quantization_stated = true;
  }
}

Config read_config(ConfigSource& source) {
  Config config;
  config.layers = extent_of(source, {"num_hidden_layers"}, kMaxLayers);
  config.hidden = extent_of(source, {"hidden_size"});
  config.vocabulary = extent_of(source, {"vocab_size"});
  config.rms_norm_eps = source.positive({"rms_norm_eps"});
  config.block = extent_of(source, {"attn_res_block_size"});
  read_attention(source, config);
  read_layer_kinds(source, config);
  read_mlp(source, config);
  check_together(source, config);
  judge_facts(source, config);
  return config;
}

// Nothing, and findings, if anything is wrong.
std::optional<Config> inspect_text(const std::string& text, const std::string& where,
                                   std::vector<store::Finding>& findings) {
  ConfigSource source(text, where);
  Config config = read_config(source);
  findings = source.take_findings();
  if (!findings.empty()) return std::nullopt;
  config.sha256 = base::sha256_hex(text);
  return config;
}

std::string text_of(const std::filesystem::path& path) {
  return store::read_text(path, kMaxConfigBytes);
}

}  // namespace

Config parse_config(const std::string& text, const std::string& where) {
  std::vector<store::Finding> findings;
  const std::optional<Config> config = inspect_text(text, where, findings);
  store::throw_first_error(findings);
  return *config;
}

Config load_config(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / "config.json";
  return parse_config(text_of(path), path.string());
}

std::optional<Config> inspect_config(const std::filesystem::path& folder,
                                     std::vector<store::Finding>& findings) {
  const std::string path = (folder / "config.json").string();
  std::vector<store::Finding> found;
  std::optional<Config> config;
  try {
    config = inspect_text(text_of(path), path, found);
  } catch (const base::Error& error) {
    found.push_back(store::finding_of(path, error.what()));
  }
  findings.insert(findings.end(), found.begin(), found.end());
  return config;
}

}  // namespace engine::model
