#include <fmt/format.h>

#include "engine/model/checkpoint_layout.h"

namespace engine::model {
namespace {

constexpr std::int64_t kQuantGroup = 32;

class List {
 public:
  explicit List(std::string prefix) : prefix_(std::move(prefix)) {}

  void matrix(const char* name, std::int64_t rows, std::int64_t cols) {
    tensors_.push_back({fmt::format("{}{}.weight", prefix_, name), {rows, cols}, Role::kMatrix});
  }
  void vector(const char* name, std::vector<std::int64_t> shape) {
    tensors_.push_back({prefix_ + name, std::move(shape), Role::kVector});
  }
  std::vector<ExpectedTensor> take() { return std::move(tensors_); }

 private:
  std::string prefix_;
  std::vector<ExpectedTensor> tensors_;
};

void add_kda(List& list, const Config& c) {
  const std::int64_t inner = c.kda_inner();
  for (const char* name : {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"}) {
    list.matrix(name, inner, c.hidden);
  }
  for (const char* name :
       {"self_attn.q_conv1d.weight", "self_attn.k_conv1d.weight", "self_attn.v_conv1d.weight"}) {
    list.vector(name, {inner, 1, c.conv_kernel});
  }
  list.vector("self_attn.A_log", {c.kda_width});  // one a head, then zeros
  list.vector("self_attn.dt_bias", {inner});
  list.matrix("self_attn.f_a_proj", c.kda_width, c.hidden);
  list.matrix("self_attn.f_b_proj", inner, c.kda_width);
  list.matrix("self_attn.b_proj", c.kda_heads, c.hidden);
  list.matrix("self_attn.g_proj", inner, c.hidden);
  list.vector("self_attn.o_norm.weight", {c.kda_width});
  list.matrix("self_attn.o_proj", c.hidden, inner);
}

void add_mla(List& list, const Config& c) {
  list.matrix("self_attn.q_a_proj", c.q_lora_rank, c.hidden);
  list.vector("self_attn.q_a_layernorm.weight", {c.q_lora_rank});
  list.matrix("self_attn.q_b_proj", c.mla_query(), c.q_lora_rank);
  list.matrix("self_attn.kv_a_proj_with_mqa", c.kv_lora_rank + c.rope_width, c.hidden);
  list.vector("self_attn.kv_a_layernorm.weight", {c.kv_lora_rank});
  list.matrix("self_attn.kv_b_proj", c.mla_key_value(), c.kv_lora_rank);
  list.matrix("self_attn.g_proj", c.mla_output(), c.hidden);
  list.matrix("self_attn.o_proj", c.hidden, c.mla_output());
}

void add_moe(List& list, const Config& c) {
  list.matrix("block_sparse_moe.gate", c.experts, c.hidden);
  list.vector("block_sparse_moe.gate.e_score_correction_bias", {c.experts});
  list.matrix("block_sparse_moe.routed_expert_down_proj", c.latent, c.hidden);
  if (c.latent_norm) list.vector("block_sparse_moe.routed_expert_norm.weight", {c.latent});
  list.matrix("block_sparse_moe.routed_expert_up_proj", c.hidden, c.latent);
  list.matrix("block_sparse_moe.shared_experts.gate_proj", c.shared_inner(), c.hidden);
  list.matrix("block_sparse_moe.shared_experts.up_proj", c.shared_inner(), c.hidden);
  list.matrix("block_sparse_moe.shared_experts.down_proj", c.hidden, c.shared_inner());
}

void add_dense(List& list, const Config& c) {
  list.matrix("mlp.gate_proj", c.dense_inner, c.hidden);
  list.matrix("mlp.up_proj", c.dense_inner, c.hidden);
  list.matrix("mlp.down_proj", c.hidden, c.dense_inner);
}

}  // namespace

std::vector<ExpectedTensor> model_tensors(const Config& config) {
  List list("language_model.");
  list.matrix("model.embed_tokens", config.vocabulary, config.hidden);
  list.vector("model.norm.weight", {config.hidden});
  list.vector("model.output_attn_res_norm.weight", {config.hidden});
  list.vector("model.output_attn_res_proj.weight", {1, config.hidden});
  list.matrix("lm_head", config.vocabulary, config.hidden);
  return list.take();
}

std::vector<ExpectedTensor> layer_tensors(const Config& config, std::int64_t layer) {
  List list(fmt::format("language_model.model.layers.{}.", layer));
  list.vector("input_layernorm.weight", {config.hidden});
  list.vector("post_attention_layernorm.weight", {config.hidden});
  list.vector("self_attention_res_norm.weight", {config.hidden});
  list.vector("self_attention_res_proj.weight", {1, config.hidden});
  list.vector("mlp_res_norm.weight", {config.hidden});
  list.vector("mlp_res_proj.weight", {1, config.hidden});
  if (config.is_mla[static_cast<std::size_t>(layer)]) {
    add_mla(list, config);
  } else {
    add_kda(list, config);
  }
  if (config.is_dense(layer)) {
    add_dense(list, config);
  } else {
    add_moe(list, config);
  }
  return list.take();
}

std::array<ExpectedTensor, 6> expert_tensors(const Config& config, std::int64_t layer,
                                             std::int64_t expert) {
  std::array<ExpectedTensor, 6> result;
  std::size_t at = 0;
  for (const char* name : {"w1", "w2", "w3"}) {
    const bool down = name[1] == '2';
    const std::int64_t rows = down ? config.latent : config.inner;
    const std::int64_t cols = down ? config.inner : config.latent;
    const std::string stem = fmt::format(
        "language_model.model.layers.{}.block_sparse_moe.experts.{}.{}.", layer, expert, name);
    result[at++] = {stem + "weight_packed", {rows, cols / 2}, Role::kPacked};
    result[at++] = {stem + "weight_scale", {rows, cols / kQuantGroup}, Role::kScale};
  }
  return result;
}

std::int64_t tensor_count(const Config& config) {
  auto count = static_cast<std::int64_t>(model_tensors(config).size());
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    count += static_cast<std::int64_t>(layer_tensors(config, layer).size());
    if (!config.is_dense(layer)) count += 6 * config.experts;
  }
  return count;
}

}  // namespace engine::model
