// One decoder layer: which operations on which weights, in which order.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "oracle/attn_res.h"
#include "oracle/checkpoint.h"
#include "oracle/experts.h"
#include "oracle/kda.h"
#include "oracle/lora.h"
#include "oracle/matmul.h"
#include "oracle/mla.h"
#include "oracle/rmsnorm.h"
#include "oracle/router.h"
#include "oracle/short_conv.h"
#include "oracle/trace.h"

namespace oracle {

// The weights and adapters of one layer, by their names within it.
template <class S>
class LayerParts {
 public:
  LayerParts(const Checkpoint& checkpoint, int64_t layer, const Adapters<S>& adapters)
      : checkpoint_(checkpoint), adapters_(adapters), layer_(layer) {}

  const Config& config() const { return checkpoint_.config(); }
  int64_t layer() const { return layer_; }

  Weights tensor(const std::string& name, const std::vector<int64_t>& shape) const {
    return checkpoint_.tensor(full(name), shape);
  }
  Weights vector(const std::string& name, int64_t n) const { return tensor(name, {n}); }
  GluWeights expert(int64_t e) const {
    const auto [latent, inner] = std::pair(config().latent, config().expert_inner);
    const std::string prefix = full(fmt::format("block_sparse_moe.experts.{}.", e));
    return {checkpoint_.mxfp4(prefix + "w1", inner, latent),
            checkpoint_.mxfp4(prefix + "w3", inner, latent),
            checkpoint_.mxfp4(prefix + "w2", latent, inner)};
  }

  // y = x Wᵀ, plus the adapter of `module` if one is named and there
  std::vector<S> project(const std::string& name, std::span<const S> x, int64_t out, int64_t in,
                         const std::string& module = "") const {
    std::vector<S> y = matmul<S, double>(*tensor(name, {out, in}), x, out, in);
    if (!module.empty()) add_lora<S>(y, x, lora(module, out, in), out, in);
    return y;
  }
  std::vector<S> norm(const std::string& name, std::span<const S> x, int64_t n) const {
    return rmsnorm<S>(x, *vector(name, n), config().eps);
  }

  Lora<S> lora(const std::string& module, int64_t out, int64_t in) const {
    const std::string prefix = fmt::format("layers.{}.{}.lora_", layer_, module);
    const auto a = adapters_.tensors.find(prefix + "A");
    const auto b = adapters_.tensors.find(prefix + "B");
    if (a == adapters_.tensors.end() && b == adapters_.tensors.end()) return {};
    const int64_t rank = adapters_.rank;
    if (a == adapters_.tensors.end() || b == adapters_.tensors.end() ||
        static_cast<int64_t>(a->second.size()) != rank * in ||
        static_cast<int64_t>(b->second.size()) != out * rank) {
      throw std::invalid_argument(
          fmt::format("{}A, B are not [{}, {}], [{}, {}]", prefix, rank, in, out, rank));
    }
    return {a->second, b->second, rank, adapters_.alpha / static_cast<double>(rank)};
  }
  GluLora<S> glu_lora(const std::string& kind, int64_t width, int64_t inner) const {
    return {lora(kind + "_gate", inner, width), lora(kind + "_up", inner, width),
            lora(kind + "_down", width, inner)};
  }

 private:
  std::string full(const std::string& name) const {
    return fmt::format("language_model.model.layers.{}.{}", layer_, name);
  }
  const Checkpoint& checkpoint_;
  const Adapters<S>& adapters_;
  int64_t layer_;
};

// docs/model.md section 7. x [T,H] -> [T,H]
template <class S>
std::vector<S> kda_layer(const LayerParts<S>& parts, std::span<const S> x,
                         std::span<const int64_t> doc_begin) {
  const Config& c = parts.config();
  const int64_t dim = c.kda_dim, heads = c.kda_heads, width = heads * dim, taps = c.conv_taps;
  const std::string self = "self_attn.";
  const auto convolved = [&](const std::string& name, const std::string& module) {
    const std::vector<S> in =
        parts.project(self + name + "_proj.weight", x, width, c.hidden, module);
    return short_conv<S>(in, *parts.tensor(self + name + "_conv1d.weight", {width, 1, taps}), width,
                         taps, doc_begin);
  };
  std::vector<S> q = l2norm<S>(convolved("q", "q"), dim);
  const std::vector<S> k = l2norm<S>(convolved("k", ""), dim);
  const std::vector<S> v = convolved("v", "v");
  const S scale = S(1) / sqrt(S(static_cast<double>(dim)));
  for (S& e : q) e *= scale;

  std::vector<S> beta = parts.project(self + "b_proj.weight", x, heads, c.hidden);
  for (S& e : beta) e = sigmoid(e);
  const std::vector<S> bottleneck = parts.project(self + "f_a_proj.weight", x, dim, c.hidden);
  const std::vector<S> z = parts.project(self + "f_b_proj.weight", bottleneck, width, dim);
  const std::vector<S> g =
      decay_gate<S>(z, *parts.vector(self + "dt_bias", width), *parts.vector(self + "A_log", dim),
                    c.gate_lower_bound, heads, dim);

  using Rows = std::span<const S>;
  std::vector<S> o =
      kda_recurrence(Rows(q), Rows(k), Rows(v), Rows(g), Rows(beta), {heads, dim, dim}, doc_begin);
  o = parts.norm(self + "o_norm.weight", o, dim);  // norm first, gate second: MLA has no norm here
  const std::vector<S> gate = parts.project(self + "g_proj.weight", x, width, c.hidden);
  for (size_t j = 0; j < o.size(); ++j) o[j] *= sigmoid(gate[j]);
  return parts.project(self + "o_proj.weight", o, c.hidden, width);
}

// docs/model.md section 8. x [T,H] -> [T,H]
template <class S>
std::vector<S> mla_layer(const LayerParts<S>& parts, std::span<const S> x,
                         std::span<const int64_t> doc_begin) {
  const Config& c = parts.config();
  const int64_t heads = c.mla_heads, hidden = c.hidden;
  const std::string self = "self_attn.";
  const std::vector<S> q_latent =
      parts.norm(self + "q_a_layernorm.weight",
                 parts.project(self + "q_a_proj.weight", x, c.q_rank, hidden), c.q_rank);
  const std::vector<S> q =
      parts.project(self + "q_b_proj.weight", q_latent, heads * (c.nope + c.rope), c.q_rank, "q");

  const int64_t width = c.kv_rank + c.rope;
  const std::vector<S> compressed =
      parts.project(self + "kv_a_proj_with_mqa.weight", x, width, hidden);
  std::vector<S> kv_raw, kr;  // kr skips the norm
  for (size_t j = 0; j < compressed.size(); ++j) {
    (static_cast<int64_t>(j) % width < c.kv_rank ? kv_raw : kr).push_back(compressed[j]);
  }
  const std::vector<S> kv_latent = parts.norm(self + "kv_a_layernorm.weight", kv_raw, c.kv_rank);
  const std::vector<S> kv = parts.project(self + "kv_b_proj.weight", kv_latent,
                                          heads * (c.nope + c.value), c.kv_rank, "v");

  std::vector<S> o = mla_attention<S>(q, kv, kr, {heads, c.nope, c.rope, c.value}, doc_begin);
  const std::vector<S> gate = parts.project(self + "g_proj.weight", x, heads * c.value, hidden);
  for (size_t j = 0; j < o.size(); ++j) o[j] *= sigmoid(gate[j]);
  return parts.project(self + "o_proj.weight", o, hidden, heads * c.value);
}

// A dense MLP or the shared experts: bf16 matrices under `prefix`, adapters under `kind`.
template <class S>
std::vector<S> dense_mlp(const LayerParts<S>& parts, std::span<const S> x,
                         const std::string& prefix, const std::string& kind, int64_t inner) {
  const Config& c = parts.config();
  const GluWeights w{parts.tensor(prefix + "gate_proj.weight", {inner, c.hidden}),
                     parts.tensor(prefix + "up_proj.weight", {inner, c.hidden}),
                     parts.tensor(prefix + "down_proj.weight", {c.hidden, inner})};
  return glu_mlp<S>(x, w, parts.glu_lora(kind, c.hidden, inner),
                    {c.hidden, inner, c.beta1, c.beta2});
}

// Where a stage starts from: the field of `given` if that is there and has it, else what was
// computed just now.
template <class S, class Field>
const Field& stage_input(const LayerTrace<S>* given, const LayerTrace<S>& own,
                         Field LayerTrace<S>::*field) {
  return given && !(given->*field).empty() ? given->*field : own.*field;
}

// docs/model.md section 9, MoE. x [T,H] -> [T,H]; fills the routing and the latents of `trace`.
//
// given   see layer_forward
template <class S>
std::vector<S> moe_mlp(const LayerParts<S>& parts, std::span<const S> x,
                       std::span<const int32_t> replay, LayerTrace<S>& trace,
                       const LayerTrace<S>* given = nullptr) {
  const Config& c = parts.config();
  const std::string moe = "block_sparse_moe.";
  Routing<S> routing = route<S>(x, *parts.tensor(moe + "gate.weight", {c.experts, c.hidden}),
                                *parts.vector(moe + "gate.e_score_correction_bias", c.experts),
                                {c.top_k, c.renormalize, c.routed_scale}, replay);
  trace.route_idx = std::move(routing.expert);
  trace.route_w = std::move(routing.weight);
  trace.gap = std::move(routing.gap);
  trace.gap_err = std::move(routing.gap_err);
  trace.moe_z = parts.project(moe + "routed_expert_down_proj.weight", x, c.latent, c.hidden);
  const auto from = [&](auto field) -> const auto& { return stage_input(given, trace, field); };
  using Fields = LayerTrace<S>;
  trace.moe_acc =
      routed_experts<S>(from(&Fields::moe_z), from(&Fields::route_idx), from(&Fields::route_w),
                        c.top_k, c.experts, [&](int64_t e) { return parts.expert(e); },
                        parts.glu_lora("expert", c.latent, c.expert_inner),
                        {c.latent, c.expert_inner, c.beta1, c.beta2});

  std::vector<S> latent = from(&Fields::moe_acc);
  if (c.latent_norm) latent = parts.norm(moe + "routed_expert_norm.weight", latent, c.latent);
  std::vector<S> y =
      parts.project(moe + "routed_expert_up_proj.weight", latent, c.hidden, c.latent);
  const std::vector<S> shared =
      dense_mlp<S>(parts, x, moe + "shared_experts.", "shared", c.shared_experts * c.expert_inner);
  for (size_t j = 0; j < y.size(); ++j) y[j] += shared[j];
  return y;
}

template <class S>
std::vector<S> plus(std::vector<S> a, const std::vector<S>& b) {
  if (a.size() != b.size())
    throw std::invalid_argument(fmt::format("{} numbers added to {}", b.size(), a.size()));
  for (size_t j = 0; j < a.size(); ++j) a[j] += b[j];
  return a;
}

// One layer from given inputs. A boundary layer appends its input to the bank AFTER its first
// mixture, and starts the running residual anew.
//
// given   a trace of this layer, by an engine or the C reference, or part of one: every stage then
//         starts from ITS values instead of from the stage before, so that over Bound the result
//         says what each stage alone may add. A bound of the whole layer from its input is as
//         rigorous and of little use: every matrix product multiplies the worst case by √in more
//         than the error.
// Shape   bank: entries of [T,H] (in/out)   h [T,H]
// Source  docs/model.md section 6
template <class S>
LayerTrace<S> layer_forward(const Checkpoint& checkpoint, int64_t layer,
                            std::vector<std::vector<S>>& bank, const std::vector<S>& h,
                            const Adapters<S>& adapters, const Batch& batch,
                            const Options<S>& options = {}, const LayerTrace<S>* given = nullptr) {
  const Config& c = checkpoint.config();
  const LayerParts<S> parts(checkpoint, layer, adapters);
  const auto mixture = [&](const std::string& which, const std::vector<S>& running) {
    std::vector<std::span<const S>> sources(bank.begin(), bank.end());
    sources.emplace_back(running);
    return attn_res<S>(sources, *parts.vector(which + "_norm.weight", c.hidden),
                       *parts.tensor(which + "_proj.weight", {1, c.hidden}), c.eps);
  };

  LayerTrace<S> trace;
  const auto from = [&](auto field) -> const auto& { return stage_input(given, trace, field); };
  using Fields = LayerTrace<S>;
  const auto added = options.add_to_layer_input.find(layer);
  trace.h_in = added == options.add_to_layer_input.end() ? h : plus(h, added->second);
  trace.attn_res = bank.empty() ? trace.h_in : mixture("self_attention_res", trace.h_in);
  if (c.is_boundary(layer)) {
    const auto entry = options.add_to_bank_entry.find(layer / c.block);
    bank.push_back(entry == options.add_to_bank_entry.end() ? trace.h_in
                                                            : plus(trace.h_in, entry->second));
  }
  trace.attn_in = parts.norm("input_layernorm.weight", from(&Fields::attn_res), c.hidden);
  trace.attn_out = c.is_mla(layer) ? mla_layer<S>(parts, from(&Fields::attn_in), batch.doc_begin)
                                   : kda_layer<S>(parts, from(&Fields::attn_in), batch.doc_begin);
  const std::vector<S> r =
      c.is_boundary(layer) ? from(&Fields::attn_out) : plus(trace.h_in, from(&Fields::attn_out));
  trace.mlp_res = mixture("mlp_res", r);
  trace.mlp_in = parts.norm("post_attention_layernorm.weight", from(&Fields::mlp_res), c.hidden);
  if (c.is_dense(layer)) {
    trace.mlp_out = dense_mlp<S>(parts, from(&Fields::mlp_in), "mlp.", "dense", c.dense_inner);
  } else {
    std::span<const int32_t> replay;
    if (options.replay_routing) replay = options.replay_routing->at(layer);
    if (options.replay_routing && replay.size() != batch.tokens.size() * c.top_k) {
      throw std::invalid_argument(
          fmt::format("layer {}: {} experts to replay", layer, replay.size()));
    }
    trace.mlp_out = moe_mlp<S>(parts, from(&Fields::mlp_in), replay, trace, given);
  }
  trace.h_out = plus(r, from(&Fields::mlp_out));
  return trace;
}

}  // namespace oracle
