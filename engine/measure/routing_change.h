#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/measure/overlap.h"
#include "engine/model/model.h"
#include "engine/model/trace.h"

namespace engine::measure {

// One layer under the base model and under an adapter: token against the same token.
struct LayerChange {
  std::int64_t layer = 0;
  Overlap overlap;
};

// All layers together, each with as many pairs: the mean over layers.
Overlap over_layers(std::span<const LayerChange> layers);

// What an adapter does to the choice of experts: read off the sweeps that score, one under the base
// model and one of the same batch under the adapter, as often as there are batches. Each layer with
// experts has a histogram of experts in common (overlap.h), so how the tokens are batched does not
// matter, and an adapter that changes nothing gives exactly 1.
//
// A token counts once, where its prediction is scored (target >= 0). The tempting wrong version counts
// all that is fed: with chunks that overlap a token would count as often as it is context.
//
// Cost      bytes_of_sweep, until the adapter's sweep is done
class RoutingChange {
 public:
  explicit RoutingChange(const model::Config& config);

  std::uint64_t bytes_of_sweep(std::int64_t tokens) const;
  // Into the hooks of a sweep what listens to it; `this` stays where it is meanwhile, and targets too.
  void watch_base(model::SweepHooks& hooks);
  void watch_adapter(model::SweepHooks& hooks, std::span<const std::int32_t> targets);

  const std::vector<LayerChange>& layers() const { return layers_; }

 private:
  void listen(model::SweepHooks& hooks, std::span<const std::int32_t> targets, bool adapted);
  void keep(std::int64_t layer, std::span<const std::int32_t> targets, bool adapted);

  const model::Config& config_;
  model::Trace trace_;                // of the layer in progress
  std::vector<TokenSets> base_sets_;  // of the sweep under the base model, in the order of layers_
  std::vector<LayerChange> layers_;
};

}  // namespace engine::measure
