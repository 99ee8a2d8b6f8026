#include "engine/model/mla_attention.h"

#include <algorithm>
#include <utility>

#include "engine/base/parallel.h"
#include "engine/model/carried_state.h"
#include "engine/ops/gate.h"
#include "engine/ops/matmul.h"
#include "engine/ops/mla.h"
#include "engine/ops/rmsnorm.h"

namespace engine::model {
namespace {

ops::MlaShape shape_of(const Config& config) {
  return {config.mla_heads, config.nope_width, config.rope_width, config.value_width};
}

// kv_all [T,Rkv+Dr] <-> latent [T,Rkv] and kr [T,Dr].
void split_rows(std::span<const float> both, std::int64_t left, std::int64_t right,
                std::span<float> left_out, std::span<float> right_out) {
  const std::int64_t rows = static_cast<std::int64_t>(both.size()) / (left + right);
  for (std::int64_t t = 0; t < rows; ++t) {
    const auto row = both.begin() + t * (left + right);
    std::copy(row, row + left, left_out.begin() + t * left);
    std::copy(row + left, row + left + right, right_out.begin() + t * right);
  }
}

void join_rows(std::span<const float> left_in, std::span<const float> right_in, std::int64_t left,
               std::int64_t right, std::span<float> both) {
  const std::int64_t rows = static_cast<std::int64_t>(both.size()) / (left + right);
  for (std::int64_t t = 0; t < rows; ++t) {
    const auto row = both.begin() + t * (left + right);
    std::copy_n(left_in.begin() + t * left, left, row);
    std::copy_n(right_in.begin() + t * right, right, row + left);
  }
}

// The context of all tokens that the present ones look at: themselves, and what is carried.
HalfContext all_seen(const HalfContext& context) {
  HalfContext all = context;
  if (context.carried != nullptr) all.tokens += context.carried->tokens();
  return all;
}

// Puts latents and rope keys behind those that are carried; all of them.
std::pair<std::span<const float>, std::span<const float>> keep(const HalfContext& context,
                                                               const MlaActivations& a) {
  if (context.carried == nullptr) return {a.kv_normed, a.kr};
  const CarriedState::Mla& carried = context.carried->mla(context.layer);
  const auto before = static_cast<std::size_t>(context.carried->tokens());
  const auto tokens = static_cast<std::size_t>(context.tokens);
  const auto append = [&](std::span<const float> rows, std::span<float> to) {
    const std::size_t width = rows.size() / tokens;
    std::copy(rows.begin(), rows.end(), to.subspan(before * width).begin());
    return std::span<const float>(to.first((before + tokens) * width));
  };
  return {append(a.kv_normed, carried.latent), append(a.kr, carried.rope)};
}

}  // namespace

MlaActivations::MlaActivations(const HalfContext& context) {
  const Config& config = context.config;
  const std::int64_t tokens = context.tokens;
  const HalfContext all = all_seen(context);
  q_latent = context.floats(tokens * config.q_lora_rank);
  q_normed = context.floats(tokens * config.q_lora_rank);
  q_inv = context.floats(tokens);
  q = context.floats(tokens * config.mla_query());
  kv_all = context.floats(tokens * (config.kv_lora_rank + config.rope_width));
  kv_latent = context.floats(tokens * config.kv_lora_rank);
  kv_normed = context.floats(tokens * config.kv_lora_rank);
  kv_inv = context.floats(tokens);
  kr = context.floats(tokens * config.rope_width);
  kv = context.floats(all.tokens * config.mla_key_value());
  o = context.floats(tokens * config.mla_output());
  gate = context.floats(tokens * config.mla_output());
  gated = context.floats(tokens * config.mla_output());
  scratch = context.floats(ops::mla_forward_scratch(all.tokens, shape_of(config), base::threads()));
  q_low = carve_adapter(context, Target::kQ);
  v_low = carve_adapter(all, Target::kV);
}

void mla_attention_inner(const HalfContext& context, const MlaWeights& w, std::span<const float> x,
                         const MlaActivations& a) {
  const Config& config = context.config;
  const std::int64_t tokens = context.tokens;
  ops::matmul_forward(x, w.q_a, a.q_latent, tokens);
  ops::rmsnorm_forward(a.q_latent, w.q_a_norm, config.rms_norm_eps, a.q_normed, a.q_inv);
  ops::matmul_forward(a.q_normed, w.q_b, a.q, tokens);
  adapter_forward(context, Target::kQ, a.q_normed, a.q_low, a.q);

  // kr is neither normed nor rotated.
  ops::matmul_forward(x, w.kv_a, a.kv_all, tokens);
  split_rows(a.kv_all, config.kv_lora_rank, config.rope_width, a.kv_latent, a.kr);
  ops::rmsnorm_forward(a.kv_latent, w.kv_a_norm, config.rms_norm_eps, a.kv_normed, a.kv_inv);
  // Keys and values of carried tokens are made anew from their latents: the same rows, so the same
  // bits.
  const HalfContext all = all_seen(context);
  const auto [latent, rope] = keep(context, a);
  const std::int64_t sequence[2] = {0, all.tokens};
  ops::matmul_forward(latent, w.kv_b, a.kv, all.tokens);
  adapter_forward(all, Target::kV, latent, a.v_low, a.kv);

  ops::mla_forward(a.q, a.kv, rope,
                   context.carried == nullptr ? context.documents : ops::Documents(sequence),
                   shape_of(config), a.scratch, a.o);
  // The gate comes before the output projection, and without a norm.
  ops::matmul_forward(x, w.g, a.gate, tokens);
  ops::output_gate_forward(a.o, a.gate, a.gated);
}

void mla_attention_forward(const HalfContext& context, const MlaWeights& w,
                           std::span<const float> x, std::span<float> out) {
  const base::Arena::Scope scope(context.arena);
  const MlaActivations a(context);
  if (context.measuring()) return;
  mla_attention_inner(context, w, x, a);
  ops::matmul_forward(a.gated, w.o, out, context.tokens);
}

void mla_attention_backward(const HalfContext& context, const MlaWeights& w,
                            std::span<const float> x, std::span<const float> d_out,
                            std::span<float> d_x) {
  const base::Arena::Scope scope(context.arena);
  const Config& config = context.config;
  const std::int64_t tokens = context.tokens;
  const MlaActivations a(context);
  const std::span<float> d_gated = context.floats(tokens * config.mla_output());
  const std::span<float> d_o = context.floats(tokens * config.mla_output());
  const std::span<float> d_gate = context.floats(tokens * config.mla_output());
  const std::span<float> d_q = context.floats(tokens * config.mla_query());
  const std::span<float> d_kv = context.floats(tokens * config.mla_key_value());
  const std::span<float> d_kr = context.floats(tokens * config.rope_width);
  const std::span<float> d_normed =
      context.floats(tokens * std::max(config.q_lora_rank, config.kv_lora_rank));
  const std::span<float> d_latent =
      context.floats(tokens * std::max(config.q_lora_rank, config.kv_lora_rank));
  const std::span<float> d_kv_all =
      context.floats(tokens * (config.kv_lora_rank + config.rope_width));
  const std::span<float> scratch =
      context.floats(ops::mla_backward_scratch(tokens, shape_of(config), base::threads()));
  if (context.measuring()) return;
  mla_attention_inner(context, w, x, a);

  std::fill(d_x.begin(), d_x.end(), 0.0f);
  std::fill(d_gated.begin(), d_gated.end(), 0.0f);
  ops::matmul_backward(d_out, w.o, d_gated, tokens);
  ops::output_gate_backward(d_gated, a.o, a.gate, d_o, d_gate);
  ops::matmul_backward(d_gate, w.g, d_x, tokens);
  ops::mla_backward(d_o, a.q, a.kv, a.kr, context.documents, shape_of(config), scratch, d_q, d_kv,
                    d_kr);

  const auto query = static_cast<std::size_t>(tokens * config.q_lora_rank);
  const std::span<float> d_q_normed = d_normed.first(query);
  const std::span<float> d_q_latent = d_latent.first(query);
  std::fill(d_q_normed.begin(), d_q_normed.end(), 0.0f);
  std::fill(d_q_latent.begin(), d_q_latent.end(), 0.0f);
  ops::matmul_backward(d_q, w.q_b, d_q_normed, tokens);
  adapter_backward(context, Target::kQ, d_q, a.q_normed, a.q_low, d_q_normed);
  ops::rmsnorm_backward(d_q_normed, a.q_latent, w.q_a_norm, a.q_inv, d_q_latent);
  ops::matmul_backward(d_q_latent, w.q_a, d_x, tokens);

  const auto key_value = static_cast<std::size_t>(tokens * config.kv_lora_rank);
  const std::span<float> d_kv_normed = d_normed.first(key_value);
  const std::span<float> d_kv_latent = d_latent.first(key_value);
  std::fill(d_kv_normed.begin(), d_kv_normed.end(), 0.0f);
  std::fill(d_kv_latent.begin(), d_kv_latent.end(), 0.0f);
  ops::matmul_backward(d_kv, w.kv_b, d_kv_normed, tokens);
  adapter_backward(context, Target::kV, d_kv, a.kv_normed, a.v_low, d_kv_normed);
  ops::rmsnorm_backward(d_kv_normed, a.kv_latent, w.kv_a_norm, a.kv_inv, d_kv_latent);
  join_rows(d_kv_latent, d_kr, config.kv_lora_rank, config.rope_width, d_kv_all);
  ops::matmul_backward(d_kv_all, w.kv_a, d_x, tokens);
}

}  // namespace engine::model
