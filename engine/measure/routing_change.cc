#include "engine/measure/routing_change.h"

#include <cassert>
#include <utility>

namespace engine::measure {

Overlap over_layers(std::span<const LayerChange> layers) {
  assert(!layers.empty());
  Overlap all = layers.front().overlap;
  for (const LayerChange& change : layers.subspan(1)) all.add(change.overlap);
  return all;
}

RoutingChange::RoutingChange(const model::Config& config) : config_(config) {
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    if (!config.is_dense(layer)) layers_.push_back({layer, Overlap(config.chosen)});
  }
}

// A layer's sets under the base model, for every layer; and of the layer in progress choice, weights,
// gap and the sets under the adapter.
std::uint64_t RoutingChange::bytes_of_sweep(std::int64_t tokens) const {
  const auto row = static_cast<std::uint64_t>(config_.chosen) * sizeof(std::int32_t);
  return static_cast<std::uint64_t>(tokens) * (layers_.size() * row + 3 * row + sizeof(float));
}

void RoutingChange::watch_base(model::SweepHooks& hooks) {
  base_sets_.clear();
  listen(hooks, {}, false);
}

void RoutingChange::watch_adapter(model::SweepHooks& hooks, std::span<const std::int32_t> targets) {
  assert(base_sets_.size() == layers_.size());
  listen(hooks, targets, true);
}

void RoutingChange::listen(model::SweepHooks& hooks, std::span<const std::int32_t> targets,
                           bool adapted) {
  trace_ = {};
  trace_.routing_only = true;
  hooks.trace = &trace_;
  hooks.progress = [this, targets, adapted](std::string_view, std::int64_t layer) {
    if (!config_.is_dense(layer)) keep(layer, targets, adapted);
    trace_ = {};
    trace_.routing_only = true;
  };
}

void RoutingChange::keep(std::int64_t layer, std::span<const std::int32_t> targets, bool adapted) {
  LayerRouting routing{layer, std::move(trace_.route_index.at(layer)), {}};
  TraceShape shape;
  shape.chosen = config_.chosen;
  shape.tokens = static_cast<std::int64_t>(routing.index.size()) / config_.chosen;
  TokenSets sets(shape, routing);
  if (!adapted) {
    base_sets_.push_back(std::move(sets));
    return;
  }
  const auto at = static_cast<std::size_t>(layer - layers_.front().layer);
  assert(layers_[at].layer == layer && shape.tokens == static_cast<std::int64_t>(targets.size()));
  for (std::int64_t t = 0; t < shape.tokens; ++t) {
    if (targets[static_cast<std::size_t>(t)] < 0) continue;
    layers_[at].overlap.add(common_experts(base_sets_[at].of(t), sets.of(t)));
  }
  if (at + 1 == layers_.size()) base_sets_.clear();
}

}  // namespace engine::measure
