#include "engine/model/model.h"

#include <cassert>
#include <optional>
#include <utility>

#include "engine/model/checkpoint_layout.h"
#include "engine/model/decoder.h"
#include "engine/model/sweep.h"
#include "engine/store/packed_copy.h"

namespace engine::model {

struct Model::State {
  store::ShardReader reader;
  Config config;
  base::RamBudget& budget;
  ModelOptions options;
  std::optional<LayerBlocks> blocks;
};

Model::Model(const std::filesystem::path& folder, base::RamBudget& budget, ModelOptions options)
    : state_(new State{store::ShardReader(folder, options.reads), load_config(folder), budget,
                       options, std::nullopt}) {
  store::throw_first_error(check_layout(state_->config, state_->reader));
  if (!options.pack.empty()) {
    store::ReadSettings elsewhere = options.reads;
    elsewhere.throttle = nullptr;  // which is the checkpoint's device
    auto copy = std::make_unique<store::PackedCopy>(options.pack, state_->reader,
                                                    state_->config.sha256, elsewhere);
    copy->require_verified();
    state_->reader.use(std::move(copy), options.pack_lost);
  }
  state_->blocks.emplace(state_->reader, state_->config, state_->options.dense_band_rows);
}

Model::~Model() = default;

const Config& Model::config() const { return state_->config; }

const store::ShardReader& Model::shards() const { return state_->reader; }

Plan Model::plan(ops::Documents documents, const AdapterSet* adapters, bool backward) const {
  Plan plan = plan_sweep(*state_->blocks, state_->config, documents, adapters, backward);
  plan.spend(state_->budget.free_bytes());
  return plan;
}

void Model::require_budget(ops::Documents documents, const AdapterSet* adapters, bool backward,
                           std::int64_t adapter_bytes) const {
  Plan needed = plan_sweep(*state_->blocks, state_->config, documents, adapters, backward);
  needed.adapter_bytes = adapter_bytes;
  const base::RamBudget& budget = state_->budget;
  if (static_cast<std::uint64_t>(needed.total_bytes()) <= budget.free_bytes()) return;
  throw base::Error(
      "memory budget: a sweep over {} tokens needs {}, {} of {} are free\nneeded:\n{}held "
      "already:\n{}",
      documents.back(), base::format_bytes(static_cast<std::uint64_t>(needed.total_bytes())),
      base::format_bytes(budget.free_bytes()), base::format_bytes(budget.limit_bytes()),
      needed.table(), budget.table());
}

SweepResult Model::forward(const Batch& batch, const AdapterSet* adapters,
                           const SweepHooks& hooks) {
  require_budget(batch.documents, adapters, false);
  return Sweep(state_->reader, *state_->blocks, state_->config, state_->budget, state_->options,
               batch, adapters, false, hooks)
      .run();
}

std::unique_ptr<Decoder> Model::decode(const AdapterSet* adapters, std::int64_t prompt,
                                       std::int64_t most) {
  return std::make_unique<Decoder>(state_->reader, *state_->blocks, state_->config, state_->budget,
                                   state_->options, adapters, Decoder::Length{prompt, most});
}

SweepResult Model::forward_backward(const Batch& batch, AdapterSet& adapters,
                                    const SweepHooks& hooks) {
  require_budget(batch.documents, &adapters, true);
  return Sweep(state_->reader, *state_->blocks, state_->config, state_->budget, state_->options,
               batch, &adapters, true, hooks)
      .run();
}

void Model::forward_layer(std::int64_t layer, const Batch& batch,
                          std::span<const std::vector<float>> bank, std::span<float> h,
                          const AdapterSet* adapters, Trace* trace) {
  assert(layer >= 0 && layer < state_->config.layers);
  SweepHooks hooks;
  hooks.trace = trace;
  Sweep(state_->reader, *state_->blocks, state_->config, state_->budget, state_->options, batch,
        adapters, false, hooks)
      .forward_layer(layer, bank, h);
}

SweepResult Model::forward_backward_layer(std::int64_t layer, const Batch& batch,
                                          std::span<const std::vector<float>> bank,
                                          std::span<float> h, std::span<float> d_h,
                                          AdapterSet& adapters) {
  assert(layer >= 0 && layer < state_->config.layers);
  require_budget(batch.documents, &adapters, true);
  return Sweep(state_->reader, *state_->blocks, state_->config, state_->budget, state_->options,
               batch, &adapters, true, {})
      .forward_backward_layer(layer, bank, h, d_h);
}

}  // namespace engine::model
