#include "engine/model/recipes.h"

#include <cmath>
#include <string>
#include <utility>

#include "engine/base/error.h"

namespace engine::model {

namespace {

using base::Dtype;

// Appends the tensors of one prefix.
class Run {
 public:
  Run(std::vector<Recipe>& recipes, std::string prefix)
      : recipes_(recipes), prefix_(std::move(prefix)) {}

  // BF16 [rows, cols] whose product with inputs of spread one has spread `gain`.
  void matrix(const char* name, std::int64_t rows, std::int64_t cols, double gain) {
    add(name, Dtype::kBf16, {rows, cols}, Draw::kNormal, 0.0,
        gain / std::sqrt(static_cast<double>(cols)));
  }
  void norm(const char* name, std::int64_t width, Dtype dtype = Dtype::kBf16) {
    add(name, dtype, {width}, Draw::kUniform, 0.7, 1.3);
  }
  Recipe& uniform(const char* name, std::vector<std::int64_t> shape, double low, double high) {
    return add(name, Dtype::kF32, std::move(shape), Draw::kUniform, low, high);
  }
  void expert_matrix(const char* name, std::int64_t rows, std::int64_t cols, double gain) {
    const std::string stem = std::string(name) + ".weight_";
    add(stem + "packed", Dtype::kU8, {rows, cols / 2}, Draw::kCodes, 0.0, 0.0);
    add(stem + "scale", Dtype::kU8, {rows, cols / 32}, Draw::kScales,
        gain / std::sqrt(static_cast<double>(cols)), 0.0);
  }
  // Norm and projection whose product scores the sources of an attention residual: scores of spread
  // about one, so that the softmax over the sources is neither flat nor decided.
  void residual_mix(const char* stem, std::int64_t width) {
    add(std::string(stem) + "_norm.weight", Dtype::kBf16, {width}, Draw::kUniform, 0.7, 1.3);
    add(std::string(stem) + "_proj.weight", Dtype::kBf16, {1, width}, Draw::kNormal, 0.0,
        1.0 / std::sqrt(static_cast<double>(width)));
  }

 private:
  Recipe& add(const std::string& name, Dtype dtype, std::vector<std::int64_t> shape, Draw draw,
              double a, double b) {
    recipes_.push_back({{prefix_ + name, dtype, std::move(shape)}, draw, a, b});
    return recipes_.back();
  }

  std::vector<Recipe>& recipes_;
  std::string prefix_;
};

// The decay is exp(lb sigmoid(exp(A_log) (z + dt_bias))) with z of spread 1/2: these ranges leave
// most channels near one, so that states remember, and drive some to exp(lb).
void kda(Run run, const Config& c) {
  const std::int64_t p = c.kda_inner();
  run.matrix("q_proj.weight", p, c.hidden, 1.0);
  run.matrix("k_proj.weight", p, c.hidden, 1.0);
  run.matrix("v_proj.weight", p, c.hidden, 1.0);
  run.uniform("q_conv1d.weight", {p, 1, c.conv_kernel}, -0.7, 0.7);
  run.uniform("k_conv1d.weight", {p, 1, c.conv_kernel}, -0.7, 0.7);
  run.uniform("v_conv1d.weight", {p, 1, c.conv_kernel}, -0.7, 0.7);
  run.uniform("A_log", {c.kda_width}, -0.75, 1.25).drawn = c.kda_heads;
  run.uniform("dt_bias", {p}, -6.0, 1.0);
  run.matrix("f_a_proj.weight", c.kda_width, c.hidden, 1.0);
  run.matrix("f_b_proj.weight", p, c.kda_width, 0.5);
  run.matrix("b_proj.weight", c.kda_heads, c.hidden, 1.0);
  run.matrix("g_proj.weight", p, c.hidden, 1.0);
  run.norm("o_norm.weight", c.kda_width, Dtype::kF32);
  run.matrix("o_proj.weight", c.hidden, p, 1.0);
}

void mla(Run run, const Config& c) {
  run.matrix("q_a_proj.weight", c.q_lora_rank, c.hidden, 1.0);
  run.norm("q_a_layernorm.weight", c.q_lora_rank);
  run.matrix("q_b_proj.weight", c.mla_query(), c.q_lora_rank, 2.0);
  run.matrix("kv_a_proj_with_mqa.weight", c.kv_lora_rank + c.rope_width, c.hidden, 1.0);
  run.norm("kv_a_layernorm.weight", c.kv_lora_rank);
  run.matrix("kv_b_proj.weight", c.mla_key_value(), c.kv_lora_rank, 1.0);
  run.matrix("g_proj.weight", c.mla_output(), c.hidden, 1.0);
  run.matrix("o_proj.weight", c.hidden, c.mla_output(), 2.0);
}

void glu(Run run, std::int64_t hidden, std::int64_t inner) {
  run.matrix("gate_proj.weight", inner, hidden, 1.5);
  run.matrix("up_proj.weight", inner, hidden, 2.0);
  run.matrix("down_proj.weight", hidden, inner, 0.5);
}

// Scores are sigmoids of logits of spread 1.5: far enough apart to choose clearly, not saturated.
void moe(Run run, const Config& c) {
  run.matrix("gate.weight", c.experts, c.hidden, 1.5);
  run.uniform("gate.e_score_correction_bias", {c.experts}, -0.05, 0.05);
  run.matrix("routed_expert_down_proj.weight", c.latent, c.hidden, 1.0);
  run.matrix("routed_expert_up_proj.weight", c.hidden, c.latent, 0.7);
  run.norm("routed_expert_norm.weight", c.latent);
}

std::string prefix_of(std::int64_t layer) {
  return fmt::format("language_model.model.layers.{}.", layer);
}

}  // namespace

std::vector<Recipe> layer_recipes(const Config& config, std::int64_t layer) {
  std::vector<Recipe> recipes;
  const std::string prefix = prefix_of(layer);
  Run run(recipes, prefix);
  run.norm("input_layernorm.weight", config.hidden);
  if (config.is_mla[layer]) {
    mla(Run(recipes, prefix + "self_attn."), config);
  } else {
    kda(Run(recipes, prefix + "self_attn."), config);
  }
  run.norm("post_attention_layernorm.weight", config.hidden);
  run.residual_mix("self_attention_res", config.hidden);
  run.residual_mix("mlp_res", config.hidden);
  if (config.is_dense(layer)) {
    glu(Run(recipes, prefix + "mlp."), config.hidden, config.dense_inner);
  } else {
    moe(Run(recipes, prefix + "block_sparse_moe."), config);
    glu(Run(recipes, prefix + "block_sparse_moe.shared_experts."), config.hidden,
        config.shared_inner());
  }
  return recipes;
}

std::vector<Recipe> expert_recipes(const Config& config, std::int64_t layer, std::int64_t expert) {
  std::vector<Recipe> recipes;
  Run run(recipes, fmt::format("{}block_sparse_moe.experts.{}.", prefix_of(layer), expert));
  run.expert_matrix("w1", config.inner, config.latent, 1.5);
  run.expert_matrix("w2", config.latent, config.inner, 1.0);
  run.expert_matrix("w3", config.inner, config.latent, 2.0);
  return recipes;
}

void make_holes(std::vector<Recipe>& recipes) {
  for (Recipe& recipe : recipes) {
    const std::string& name = recipe.spec.name;
    recipe.hole = !name.ends_with("norm.weight") && !name.ends_with("_res_proj.weight") &&
                  name.find(".block_sparse_moe.gate.") == std::string::npos;
  }
}

std::vector<Recipe> model_recipes(const Config& config) {
  std::vector<Recipe> recipes;
  Run run(recipes, "language_model.");
  // Rows of the embedding have spread one, whatever their width; logits have spread one.
  run.matrix("model.embed_tokens.weight", config.vocabulary, config.hidden,
             std::sqrt(static_cast<double>(config.hidden)));
  run.norm("model.norm.weight", config.hidden);
  run.residual_mix("model.output_attn_res", config.hidden);
  run.matrix("lm_head.weight", config.vocabulary, config.hidden, 1.0);
  return recipes;
}

}  // namespace engine::model
