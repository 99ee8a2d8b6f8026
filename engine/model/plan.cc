#include "engine/model/plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/base/budget.h"
#include "engine/model/expert_reader.h"
#include "engine/model/head.h"
#include "engine/model/layer.h"

namespace engine::model {
namespace {

constexpr std::int64_t kFloat = sizeof(float);

template <class Load>
std::int64_t measure_weights(const store::ShardReader& reader, const Load& load) {
  base::Arena arena;
  WeightLoader loader(reader, arena);
  load(loader);
  return static_cast<std::int64_t>(arena.peak_bytes());
}

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

Plan plan_sweep(const store::ShardReader& reader, const Config& config, const Batch& batch,
                const AdapterSet* adapters, bool backward) {
  Plan plan;
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    AttentionHalf attention;
    MlpHalf mlp;
    const std::int64_t attention_bytes = measure_weights(reader, [&](WeightLoader& loader) {
      attention = load_attention_half(loader, config, layer);
    });
    const std::int64_t mlp_bytes = measure_weights(
        reader, [&](WeightLoader& loader) { mlp = load_mlp_half(loader, config, layer); });
    plan.weights_bytes = std::max({plan.weights_bytes, attention_bytes, mlp_bytes});
    base::Arena arena;
    const HalfContext context{config, layer, batch.size(), batch.documents, adapters, arena, {}};
    plan.activations_bytes =
        std::max(plan.activations_bytes, measure_layer(context, attention, mlp, backward));
  }
  plan.weights_bytes = std::max(plan.weights_bytes, Head::band_bytes(reader, config));
  const std::int64_t mix_bytes =
      measure_weights(reader, [&](WeightLoader& loader) { load_output_mix(loader, config); });
  plan.weights_bytes = std::max(plan.weights_bytes, mix_bytes);

  const std::int64_t wide = batch.size() * config.hidden * kFloat;
  plan.residual_bytes = backward ? 3 * wide : wide;
  plan.bank_bytes = config.bank_entries() * wide * (backward ? 2 : 1);
  plan.record_bytes = batch.size() * (config.chosen + config.latent) * kFloat;
  plan.expert_bytes = ExpertReader::bytes(config);
  base::Arena arena;
  const Head head(reader, config, batch.size(), arena);
  plan.head_bytes = static_cast<std::int64_t>(arena.peak_bytes());
  return plan;
}

std::int64_t Plan::total_bytes() const {
  return adapter_bytes + weights_bytes + activations_bytes + expert_bytes + residual_bytes +
         bank_bytes + record_bytes + head_bytes;
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
  line("residual and its gradient", residual_bytes);
  line("bank and its gradients", bank_bytes);
  line("routing of one layer", record_bytes);
  line("logits of a band and loss state", head_bytes);
  line("sum", total_bytes());
  return text;
}

}  // namespace engine::model
