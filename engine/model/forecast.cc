#include "engine/model/forecast.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstdlib>
#include <string_view>

#include "engine/model/expert_stream.h"
#include "engine/ops/cross_entropy.h"

namespace engine::model {
namespace {

// x^n by squaring; a library's pow would be a dependency for nothing.
double power(double x, std::int64_t n) {
  double result = 1.0;
  for (; n > 0; n /= 2, x *= x) {
    if (n % 2 == 1) result *= x;
  }
  return result;
}

// Bytes of the trunk, by what is read as one.
struct Trunk {
  std::vector<std::uint64_t> attention, mlp;  // [layers]
  std::uint64_t output_mix = 0, head = 0;
  std::uint64_t dense_again = 0;  // gate and up of dense layers, see glu_backward
};

Trunk trunk_of(const store::ShardReader& shards, const Config& config) {
  constexpr std::string_view kModel = "language_model.model.", kLayers = "layers.";
  const auto layers = static_cast<std::size_t>(config.layers);
  Trunk trunk{std::vector<std::uint64_t>(layers), std::vector<std::uint64_t>(layers)};
  for (const store::TensorEntry& entry : shards.entries()) {
    std::string_view name = entry.name;
    if (name == "language_model.lm_head.weight") trunk.head += entry.bytes;
    if (!name.starts_with(kModel)) continue;
    name.remove_prefix(kModel.size());
    if (!name.starts_with(kLayers)) {
      if (!name.starts_with("embed_tokens")) trunk.output_mix += entry.bytes;
      continue;
    }
    name.remove_prefix(kLayers.size());
    const std::size_t point = name.find('.');
    const auto layer = static_cast<std::size_t>(std::atoll(name.data()));
    name.remove_prefix(point + 1);
    if (name.starts_with("block_sparse_moe.experts.")) continue;
    const bool attention = name.starts_with("self_att") || name.starts_with("input_layernorm");
    (attention ? trunk.attention : trunk.mlp)[layer] += entry.bytes;
    if (name == "mlp.gate_proj.weight" || name == "mlp.up_proj.weight") {
      trunk.dense_again += entry.bytes;
    }
  }
  return trunk;
}

// Multiply-adds a token: up, and in all.
struct Products {
  double up = 0.0, all = 0.0;
  // times: up; recomputed on the way down, unless nothing there needs the result; and its gradient.
  void add(std::int64_t rows, std::int64_t cols, double times, double share = 1.0) {
    const double once = static_cast<double>(rows) * static_cast<double>(cols) * share;
    up += once;
    all += once * times;
  }
  void add_glu(std::int64_t inner, std::int64_t width, double share = 1.0) {
    add(2 * inner, width, 3, share);
    add(width, inner, 2, share);
  }
};

Products attention_products(const Config& c, std::int64_t layer, std::int64_t tokens) {
  Products sum;
  if (c.is_mla[static_cast<std::size_t>(layer)]) {
    sum.add(c.q_lora_rank, c.hidden, 3);
    sum.add(c.mla_query(), c.q_lora_rank, 3);
    sum.add(c.kv_lora_rank + c.rope_width, c.hidden, 3);
    sum.add(c.mla_key_value(), c.kv_lora_rank, 3);
    sum.add(c.mla_output(), c.hidden, 3);
    sum.add(c.hidden, c.mla_output(), 2);
    // Scores and values, half of all pairs; the gradient is twice the forward.
    sum.add(c.mla_heads * (c.nope_width + c.rope_width + c.value_width), tokens, 4, 0.5);
    return sum;
  }
  sum.add(4 * c.kda_inner() + c.kda_width + c.kda_heads, c.hidden, 3);
  sum.add(c.kda_inner(), c.kda_width, 3);
  sum.add(c.hidden, c.kda_inner(), 2);
  // Decay, read, write, read of the state; the gradient is three times as much.
  sum.add(c.kda_inner(), c.kda_width, 5, 4.0);
  return sum;
}

Products mlp_products(const Config& c, std::int64_t layer) {
  Products sum;
  if (c.is_dense(layer)) {
    sum.add_glu(c.dense_inner, c.hidden);
    return sum;
  }
  sum.add(c.experts + c.latent, c.hidden, 3);
  sum.add(c.hidden, c.latent, 2);
  sum.add_glu(c.shared_inner(), c.hidden);
  sum.add_glu(c.inner, c.latent, static_cast<double>(c.chosen));
  return sum;
}

// What is wanted first after the turn, blocks in that order; a slot keeps one.
std::uint64_t saved_trunk(const Trunk& trunk, const Config& config, std::int64_t kept) {
  const std::int64_t bands = (config.vocabulary + ops::kVocabBand - 1) / ops::kVocabBand;
  std::uint64_t saved = 0;
  // A head of one band follows itself.
  if (bands == 1) saved += trunk.head;
  const std::int64_t kept_bands = bands == 1 ? 0 : std::min(kept, bands);
  saved += trunk.head / static_cast<std::uint64_t>(bands) * static_cast<std::uint64_t>(kept_bands);
  kept -= kept_bands;
  if (kept-- > 0) saved += trunk.output_mix;
  for (auto layer = static_cast<std::size_t>(config.layers); layer-- > 0;) {
    if (kept-- > 0) saved += trunk.mlp[layer];
    if (kept-- > 0) saved += trunk.attention[layer];
  }
  return saved;
}

}  // namespace

double distinct_experts(std::span<const double> share, std::int64_t tokens) {
  double sum = 0.0;
  for (const double p : share) sum += 1.0 - power(1.0 - p, tokens);
  return sum;
}

double distinct_experts_if_even(const Config& config, std::int64_t tokens) {
  const double share = static_cast<double>(config.chosen) / static_cast<double>(config.experts);
  return static_cast<double>(config.experts) * (1.0 - power(1.0 - share, tokens));
}

StepWork step_work(const store::ShardReader& shards, const Config& config,
                   const AdapterSet& outline, const Plan& plan, std::int64_t tokens,
                   std::int64_t sequences, std::span<const double> distinct) {
  assert(static_cast<std::int64_t>(distinct.size()) == config.layers);
  const Trunk trunk = trunk_of(shards, config);
  const std::int64_t all = tokens * sequences;
  const double flops = 2.0 * static_cast<double>(all);  // of a product a token
  StepWork work;
  double experts = 0.0, up = 0.0;
  // Head, and of an adapter: up, recomputed, the gradient of its input, its own gradient.
  double products =
      static_cast<double>(config.vocabulary) * static_cast<double>(config.hidden) * 3 +
      4.0 * static_cast<double>(outline.parameters());
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    const auto at = static_cast<std::size_t>(layer);
    const Products attention = attention_products(config, layer, tokens);
    const Products mlp = mlp_products(config, layer);
    work.up_attention.flops += flops * attention.up;
    work.up_attention.trunk_bytes += trunk.mlp[at];
    work.up_mlp.flops += flops * mlp.up;
    work.up_mlp.trunk_bytes += trunk.attention[at];
    products += attention.all + mlp.all;
    up += attention.up + mlp.up;
    experts += distinct[at];
  }
  const std::uint64_t layers = work.up_attention.trunk_bytes + work.up_mlp.trunk_bytes;
  const auto one = static_cast<double>(ExpertStream::bytes(config));
  const auto bytes_of = [&](double count) {
    return static_cast<std::uint64_t>(std::llround(count * one));
  };
  work.flops = flops * products;
  work.trunk_bytes = 2 * (layers + trunk.output_mix + trunk.head) + trunk.dense_again;
  work.embedding_bytes =
      static_cast<std::uint64_t>(std::min(all, config.vocabulary) * config.hidden * 2);
  work.saved_trunk_bytes = saved_trunk(trunk, config, plan.weights_slots - 1);
  work.saved_expert_bytes = bytes_of(std::min(static_cast<double>(plan.expert_slots - 1), experts));
  // Rounded once: what is left below for the way down must not come out negative.
  work.up_mlp.expert_bytes = bytes_of(experts);
  work.expert_bytes = 2 * work.up_mlp.expert_bytes;
  work.rest = {flops * (products - up), work.trunk_bytes - layers - work.saved_trunk_bytes,
               work.expert_bytes - work.up_mlp.expert_bytes - work.saved_expert_bytes};
  return work;
}

const char* StepTime::bound_by() const {
  if (processor >= std::max(disk, fast_disk)) return "the processor";
  return disk >= fast_disk ? "the disk" : "the fast disk";
}

StepTime step_time(const StepWork& work, const Machine& machine) {
  const bool two = machine.fast_disk_bytes > 0.0;
  StepTime time;
  for (const StepPhase& phase : {work.up_attention, work.up_mlp, work.rest}) {
    const auto trunk = static_cast<double>(phase.trunk_bytes);
    const double slow =
        (static_cast<double>(phase.expert_bytes) + (two ? 0.0 : trunk)) / machine.disk_bytes;
    const double fast = two ? trunk / machine.fast_disk_bytes : 0.0;
    const double processor = phase.flops / machine.flops;
    time.disk += slow;
    time.fast_disk += fast;
    time.processor += processor;
    time.seconds += std::max({slow, fast, processor});
  }
  // Before all else, and from the same disk as the experts.
  const double embedding = static_cast<double>(work.embedding_bytes) / machine.disk_bytes;
  time.disk += embedding;
  time.seconds += embedding;
  return time;
}

}  // namespace engine::model
