#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "engine/base/budget.h"
#include "engine/measure/routing_trace.h"

namespace engine::measure {

// One layer of two traces, p and q being their usage shares; docs/routing.md.
struct LayerComparison {
  std::int64_t layer = 0;
  // Token against the same token; nothing where the traces are of different texts.
  std::optional<double> token_jaccard;
  std::optional<double> same_set;         // share of tokens whose sets are equal
  std::optional<double> same_first;       // share of tokens whose first expert is the same
  std::optional<double> weight_distance;  // mean of half the sum of |w - w'|, weights summing to 1
  std::optional<std::int64_t>
      first_other;               // the first token whose set differs; nothing if none does
  double usage_overlap = 0.0;    // sum over experts of min(p, q)
  double divergence_bits = 0.0;  // Jensen-Shannon, 0 ... 1
  std::int64_t distinct_here = 0, distinct_there = 0, distinct_both = 0;
};

struct RoutingComparison {
  // Both manifests give every text's digest, and all are equal.
  bool same_texts = false;
  // Whether both are of one checkpoint, by the digests of config and headers; nothing where a
  // manifest does not give them. An adapter may differ: that is what one compares for.
  std::optional<bool> same_checkpoint;
  std::vector<LayerComparison> layers;
  // Means over layers.
  std::optional<double> token_jaccard, same_set, same_first, weight_distance;
  double usage_overlap = 0.0, divergence_bits = 0.0;
};

LayerComparison compare_layers(const TraceShape& here_shape, const LayerRouting& here,
                               const TraceShape& there_shape, const LayerRouting& there,
                               bool same_texts);

// Errors    Error naming both files and the two values: experts, experts a token, or layers differ
RoutingComparison compare(const RoutingTrace& here, const RoutingTrace& there,
                          base::RamBudget& budget);

}  // namespace engine::measure
