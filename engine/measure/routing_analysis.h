#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/base/budget.h"
#include "engine/measure/layer_routing.h"
#include "engine/measure/reuse.h"
#include "engine/measure/routing_trace.h"

namespace engine::measure {

// Every quantity is defined, with an example to recompute by hand, in docs/routing.md.

struct DistanceOverlap {
  std::int64_t distance = 0;
  std::int64_t pairs = 0;
  double jaccard = 0.0;
};

struct PrefixPoint {
  std::int64_t tokens = 0;
  std::int64_t distinct = 0;
  double expected_uniform = 0.0;
};

struct LayerAnalysis {
  std::int64_t layer = 0;
  std::int64_t distinct = 0;
  double expected_uniform = 0.0;
  double top1_share = 0.0, topk_share = 0.0, top100_share = 0.0;
  double gini = 0.0;
  double hhi = 0.0;
  double entropy_bits = 0.0;
  double effective_experts = 0.0;  // 2^entropy
  double effective_chosen = 0.0;
  std::int64_t cover80 = 0;
  // Nothing where there is no pair: one token a text; the last layer.
  std::optional<double> next_token_jaccard, next_token_reuse, next_layer_jaccard;
  std::vector<DistanceOverlap> distances;
  std::vector<PrefixPoint> prefix;
  std::vector<CapacityHits> lru;
  std::vector<CapacityHits> hot_sets;  // none with one text
};

// Consecutive layers of the trace, a quarter each, and the means of their values.
struct BandAnalysis {
  std::int64_t first_layer = 0, last_layer = 0;
  std::int64_t layers = 0;
  double distinct = 0.0, top100_share = 0.0, gini = 0.0, entropy_bits = 0.0;
  double effective_chosen = 0.0, cover80 = 0.0;
  std::optional<double> next_token_jaccard, next_layer_jaccard;
};

struct RoutingAnalysis {
  TraceShape shape;
  double chance_jaccard = 0.0;
  std::vector<LayerAnalysis> layers;
  std::vector<BandAnalysis> bands;
  // (layer, expert) pairs: those that cover 80 % of the requests of all layers, those that were
  // used at all, those there are.
  std::int64_t pairs_cover80 = 0, pairs_used = 0, pairs = 0;
  // Sums over layers, each with a memory of its own.
  std::vector<CapacityHits> lru, hot_sets;
  std::int64_t requests = 0;  // of all layers
};

// What is analysed unless it is said otherwise: k, 2k, 4k ... below E, and E.
std::vector<std::int64_t> default_capacities(const TraceShape& shape);
// 1 8 16 24 32 64 96, then 128 192 256 384 512 ..., as far as there are tokens, and all of them.
std::vector<std::int64_t> prefix_lengths(std::int64_t tokens);
// 1 2 4 8 ... within the longest text.
std::vector<std::int64_t> distances_of(const TraceShape& shape);

// `next` is the layer behind it, or null.
LayerAnalysis analyze_layer(const TraceShape& shape, const LayerRouting& routing,
                            const LayerRouting* next, std::span<const std::int64_t> capacities);

std::vector<BandAnalysis> bands_of(std::span<const LayerAnalysis> layers);

// Two layers are in memory at a time.
// Errors    those of RoutingTrace::read, and Error if the budget cannot hold two layers
RoutingAnalysis analyze(const RoutingTrace& trace, std::span<const std::int64_t> capacities,
                        base::RamBudget& budget);

}  // namespace engine::measure
