#include "engine/model/plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/base/budget.h"
#include "engine/model/expert_stream.h"
#include "engine/model/head.h"
#include "engine/model/layer.h"

namespace engine::model {
namespace {

constexpr std::int64_t kFloat = sizeof(float);

// Enough that a device with a queue is busy; it wants few large reads, or many small ones.
constexpr std::int64_t kExpertsAhead = 8;
constexpr std::int64_t kHalvesAhead = 1;

// Runs both directions of both halves of a layer on a measuring arena. A bank of one entry: the mix
// takes no memory of the arena, however long the bank.
std::int64_t measure_layer(const HalfContext& context, const AttentionHalf& attention,
                           const MlpHalf& mlp, bool backward) {
  const float* const entry = nullptr;
  float* const d_entry = nullptr;
  const Bank bank(&entry, 1);
  const BankGradient d_bank(&d_entry, 1);
  if (backward) {
    attention_half_backward(context, attention, bank, false, {}, d_bank, {});
    mlp_half_backward(context, mlp, {}, bank, {}, {}, d_bank, {});
  }
  attention_half_forward(context, attention, bank, false, {});
  mlp_half_forward(context, mlp, {}, bank, {}, {});
  return static_cast<std::int64_t>(context.arena.peak_bytes());
}

}  // namespace

Plan plan_sweep(const LayerBlocks& blocks, const Config& config, ops::Documents documents,
                const AdapterSet* adapters, bool backward, CarriedState* carried) {
  Plan plan;
  const std::int64_t tokens = documents.back();
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    base::Arena nowhere;
    const AttentionHalf attention = blocks.load_attention(layer, nowhere);
    const MlpHalf mlp = blocks.load_mlp(layer, nowhere);
    base::Arena arena;
    const HalfContext context{config, layer, tokens, documents, adapters, arena, {}, carried};
    plan.activations_bytes =
        std::max(plan.activations_bytes, measure_layer(context, attention, mlp, backward));
  }
  plan.weights_bytes = blocks.slot_bytes();
  const std::int64_t wide = tokens * config.hidden * kFloat;
  plan.residual_bytes = backward ? 3 * wide : wide;
  plan.bank_bytes = config.bank_entries() * wide * (backward ? 2 : 1);
  plan.record_bytes = tokens * (config.chosen + config.latent) * kFloat;
  plan.expert_bytes = ExpertStream::slot_bytes(config);
  base::Arena arena;
  const Head head(config, tokens, arena);
  plan.head_bytes = static_cast<std::int64_t>(arena.peak_bytes());

  const std::int64_t chosen = std::min(config.experts, tokens * config.chosen);
  plan.expert_slots_useful = std::min(1 + kExpertsAhead, std::max<std::int64_t>(chosen, 1));
  plan.weights_slots_useful = 1 + kHalvesAhead;
  if (backward) {
    const std::int64_t with_experts = config.layers - config.dense_layers;
    plan.expert_slots_useful = std::max<std::int64_t>(with_experts * chosen, 1);
    plan.weights_slots_useful = static_cast<std::int64_t>(blocks.count());
  }
  if (carried != nullptr) {
    plan.carried_bytes = carried->bytes();
    plan.repeated = true;
    plan.expert_slots_useful =
        std::max<std::int64_t>((config.layers - config.dense_layers) * config.experts, 1);
    plan.weights_slots_useful = static_cast<std::int64_t>(blocks.count());
  }
  return plan;
}

std::int64_t Plan::weights_ahead() const { return std::min(kHalvesAhead, weights_slots - 1); }
std::int64_t Plan::experts_ahead() const { return std::min(kExpertsAhead, expert_slots - 1); }

void Plan::spend(std::uint64_t bytes) {
  const auto grow = [&](std::int64_t& slots, std::int64_t each, std::int64_t most) {
    const auto used = static_cast<std::uint64_t>(total_bytes());
    if (used >= bytes || most <= slots) return;
    slots = std::min(
        most, slots + static_cast<std::int64_t>((bytes - used) / static_cast<std::uint64_t>(each)));
  };
  grow(expert_slots, expert_bytes, std::min(1 + kExpertsAhead, expert_slots_useful));
  grow(weights_slots, weights_bytes, std::min(1 + kHalvesAhead, weights_slots_useful));
  if (repeated) grow(weights_slots, weights_bytes, weights_slots_useful);
  grow(expert_slots, expert_bytes, expert_slots_useful);
  grow(weights_slots, weights_bytes, weights_slots_useful);
}

std::int64_t Plan::least_bytes() const {
  return adapter_bytes + weights_bytes + activations_bytes + expert_bytes + residual_bytes +
         bank_bytes + record_bytes + head_bytes + carried_bytes;
}

std::int64_t Plan::total_bytes() const {
  return least_bytes() + (weights_slots - 1) * weights_bytes + (expert_slots - 1) * expert_bytes;
}

std::string Plan::table() const {
  std::string text;
  const auto line = [&](const char* name, std::int64_t bytes) {
    text += fmt::format("  {:<40} {:>12}\n", name,
                        base::format_bytes(static_cast<std::uint64_t>(bytes)));
  };
  if (adapter_bytes > 0) line("adapters, gradients, moments", adapter_bytes);
  line("weights of half a layer", weights_bytes);
  line("activations of half a layer", activations_bytes);
  line("one expert", expert_bytes);
  const auto slots = [&](const char* name, std::int64_t count, std::int64_t bytes) {
    if (count > 0) line(fmt::format("{} {}", count, name).c_str(), count * bytes);
  };
  slots("halves read ahead", weights_ahead(), weights_bytes);
  slots(halves_kept_name(), weights_slots - 1 - weights_ahead(), weights_bytes);
  slots("experts read ahead", experts_ahead(), expert_bytes);
  slots(experts_kept_name(), expert_slots - 1 - experts_ahead(), expert_bytes);
  line("residual and its gradient", residual_bytes);
  line("bank and its gradients", bank_bytes);
  line("routing of one layer", record_bytes);
  line("logits of a band and loss state", head_bytes);
  if (carried_bytes > 0) line("carried from token to token", carried_bytes);
  line("sum", total_bytes());
  return text;
}

}  // namespace engine::model
