#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "engine/base/budget.h"
#include "engine/model/head.h"
#include "engine/model/layer.h"
#include "engine/model/model.h"
#include "engine/model/plan.h"
#include "engine/model/weight_streams.h"
#include "engine/store/activation_store.h"

namespace engine::model {

// Of a sweep whose batch is the next tokens of one sequence: what earlier ones left, and the slots
// that they read into. Both or neither.
struct Continuation {
  CarriedState* state = nullptr;
  WeightStreams* streams = nullptr;
};

// One walk over the model, layers 0 ... L-1 and, for a gradient, L-1 ... 0, half a layer in memory
// at a time. Takes everything it needs from the budget when it begins, and what else is free for
// reading ahead and for what is wanted twice; gives it back when it ends.
class Sweep {
 public:
  Sweep(const store::ShardReader& reader, const LayerBlocks& blocks, const Config& config,
        base::RamBudget& budget, const ModelOptions& options, const Batch& batch,
        const AdapterSet* adapters, bool backward, const SweepHooks& hooks,
        const Continuation& continued = {});

  SweepResult run();

  // One layer alone; see Model::forward_layer.
  void forward_layer(std::int64_t layer, std::span<const std::vector<float>> bank,
                     std::span<float> h);
  // See Model::forward_backward_layer.
  SweepResult forward_backward_layer(std::int64_t layer, std::span<const std::vector<float>> bank,
                                     std::span<float> h, std::span<float> d_h);

 private:
  HalfContext context(std::int64_t layer);
  ExpertSource experts(std::int64_t layer);
  Bank bank(std::int64_t entries) const;
  BankGradient bank_gradient(std::int64_t entries);
  MoeRecord record() { return {route_.span(), routed_.span()}; }
  MoeStatistics forward_halves(std::int64_t layer);
  void forward_layer_and_keep(std::int64_t layer, SweepResult& result);
  void enter(std::span<const std::vector<float>> bank, std::span<const float> h);
  void forward_layers(SweepResult& result);
  void score(SweepResult& result);
  void backward_layer(std::int64_t layer);
  void keep(const char* kind, std::int64_t layer, std::span<const float> data);
  void recall(const char* kind, std::int64_t layer, std::span<float> data);
  void trace_value(const std::string& name, std::span<const float> data) const;
  void trace_gradient(const std::string& name, std::span<const float> data) const;

  const store::ShardReader& reader_;
  const Config& config_;
  const Batch& batch_;
  const AdapterSet* adapters_;
  const bool backward_;
  const SweepHooks& hooks_;
  CarriedState* carried_;
  std::optional<store::ActivationStore> store_;

  base::Buffer<std::byte> activations_, head_;
  base::Buffer<float> residual_, entered_, d_residual_;  // [T,H]
  base::Buffer<float> bank_, d_bank_;                    // [entries,T,H]
  base::Buffer<std::int32_t> route_;                     // [T,k]
  base::Buffer<float> routed_;                           // [T,L]
  std::vector<const float*> bank_entries_;
  std::vector<float*> d_bank_entries_;
  base::Arena arena_;
  std::optional<Head> scorer_;

  std::optional<WeightStreams> own_streams_;
  LayerStream* layers_;
  ExpertStream* experts_;
};

}  // namespace engine::model
