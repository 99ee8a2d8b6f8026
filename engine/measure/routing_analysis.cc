#include "engine/measure/routing_analysis.h"

#include <algorithm>
#include <cassert>
#include <iterator>

#include "engine/measure/overlap.h"
#include "engine/measure/usage.h"

namespace engine::measure {
namespace {

constexpr std::int64_t kBands = 4;

std::vector<PrefixPoint> prefix_curve(const TraceShape& shape, const LayerRouting& routing) {
  std::vector<PrefixPoint> curve;
  std::vector<bool> seen(static_cast<std::size_t>(shape.experts));
  std::int64_t distinct = 0;
  std::size_t at = 0;
  for (const std::int64_t tokens : prefix_lengths(shape.tokens)) {
    for (; at < static_cast<std::size_t>(tokens * shape.chosen); ++at) {
      const auto expert = static_cast<std::size_t>(routing.index[at]);
      distinct += seen[expert] ? 0 : 1;
      seen[expert] = true;
    }
    curve.push_back({tokens, distinct, expected_distinct(shape.experts, shape.chosen, tokens)});
  }
  return curve;
}

void add(std::vector<CapacityHits>& sum, const std::vector<CapacityHits>& hits) {
  if (sum.empty()) {
    sum = hits;
    return;
  }
  for (std::size_t i = 0; i < hits.size(); ++i) sum[i].hits += hits[i].hits;
}

// Mean over the layers that have the value.
template <class Value>
std::optional<double> mean(std::span<const LayerAnalysis> layers, const Value& value) {
  double sum = 0.0;
  std::int64_t count = 0;
  for (const LayerAnalysis& layer : layers) {
    const std::optional<double> found = value(layer);
    if (!found) continue;
    sum += *found;
    ++count;
  }
  if (count == 0) return std::nullopt;
  return sum / static_cast<double>(count);
}

BandAnalysis band_of(std::span<const LayerAnalysis> layers) {
  const auto of = [&](auto member) {
    return mean(layers, [&](const LayerAnalysis& layer) -> std::optional<double> {
      return static_cast<double>(layer.*member);
    });
  };
  const auto maybe = [&](auto member) {
    return mean(layers, [&](const LayerAnalysis& layer) { return layer.*member; });
  };
  BandAnalysis band;
  band.first_layer = layers.front().layer;
  band.last_layer = layers.back().layer;
  band.layers = static_cast<std::int64_t>(layers.size());
  band.distinct = *of(&LayerAnalysis::distinct);
  band.top100_share = *of(&LayerAnalysis::top100_share);
  band.gini = *of(&LayerAnalysis::gini);
  band.entropy_bits = *of(&LayerAnalysis::entropy_bits);
  band.effective_chosen = *of(&LayerAnalysis::effective_chosen);
  band.cover80 = *of(&LayerAnalysis::cover80);
  band.next_token_jaccard = maybe(&LayerAnalysis::next_token_jaccard);
  band.next_layer_jaccard = maybe(&LayerAnalysis::next_layer_jaccard);
  return band;
}

}  // namespace

std::vector<std::int64_t> default_capacities(const TraceShape& shape) {
  std::vector<std::int64_t> capacities;
  for (std::int64_t c = shape.chosen; c < shape.experts; c *= 2) capacities.push_back(c);
  capacities.push_back(shape.experts);
  return capacities;
}

std::vector<std::int64_t> prefix_lengths(std::int64_t tokens) {
  std::vector<std::int64_t> lengths{1, 8, 16, 24, 32, 64, 96};
  for (std::int64_t length = 128; length < tokens; length *= 2) {
    lengths.push_back(length);
    lengths.push_back(length + length / 2);
  }
  std::erase_if(lengths, [&](std::int64_t length) { return length >= tokens; });
  lengths.push_back(tokens);
  return lengths;
}

std::vector<std::int64_t> distances_of(const TraceShape& shape) {
  std::int64_t longest = 0;
  for (std::size_t d = 0; d + 1 < shape.documents.size(); ++d) {
    longest = std::max(longest, shape.documents[d + 1] - shape.documents[d]);
  }
  std::vector<std::int64_t> distances;
  for (std::int64_t distance = 1; distance < longest; distance *= 2) distances.push_back(distance);
  return distances;
}

LayerAnalysis analyze_layer(const TraceShape& shape, const LayerRouting& routing,
                            const LayerRouting* next, std::span<const std::int64_t> capacities) {
  assert(next == nullptr || next->layer > routing.layer);
  const std::vector<std::int64_t> counts = count_usage(shape, routing);
  LayerAnalysis a;
  a.layer = routing.layer;
  a.distinct = distinct_experts(shape, routing);
  a.expected_uniform = expected_distinct(shape.experts, shape.chosen, shape.tokens);
  a.top1_share = top_share(counts, 1);
  a.topk_share = top_share(counts, shape.chosen);
  a.top100_share = top_share(counts, 100);
  a.gini = gini(counts);
  a.hhi = hhi(counts);
  a.entropy_bits = entropy_bits(counts);
  a.effective_experts = power_of_two(a.entropy_bits);
  a.effective_chosen = effective_chosen(shape, routing);
  a.cover80 = cover80(counts);

  const TokenSets sets(shape, routing);
  for (const std::int64_t distance : distances_of(shape)) {
    const Overlap overlap = overlap_at_distance(shape, sets, distance);
    a.distances.push_back({distance, overlap.pairs(), *overlap.jaccard()});
    if (distance > 1) continue;
    a.next_token_jaccard = overlap.jaccard();
    a.next_token_reuse = overlap.reuse();
  }
  if (next != nullptr) {
    a.next_layer_jaccard = overlap_of_tokens(shape, sets, TokenSets(shape, *next)).jaccard();
  }
  a.prefix = prefix_curve(shape, routing);
  a.lru = lru_hits(routing.index, shape.experts, capacities);
  a.hot_sets = hot_set_hits(shape, routing, capacities);
  return a;
}

std::vector<BandAnalysis> bands_of(std::span<const LayerAnalysis> layers) {
  std::vector<BandAnalysis> bands;
  const auto count = static_cast<std::int64_t>(layers.size());
  for (std::int64_t band = 0; band < kBands; ++band) {
    const std::int64_t first = band * count / kBands;
    const std::int64_t last = (band + 1) * count / kBands;
    if (first == last) continue;  // fewer layers than bands
    bands.push_back(band_of(
        layers.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(last - first))));
  }
  return bands;
}

RoutingAnalysis analyze(const RoutingTrace& trace, std::span<const std::int64_t> capacities,
                        base::RamBudget& budget) {
  const TraceShape& shape = trace.shape();
  // Besides two layers as read: sorted sets of both, 4 bytes a request each; of a layer's reuse, a
  // sum of 8.
  const base::Charge held(
      budget, "two layers of the trace",
      2 * trace.bytes_of_a_layer() + static_cast<std::uint64_t>(shape.requests()) * (4 + 4 + 8));
  RoutingAnalysis analysis;
  analysis.shape = shape;
  analysis.chance_jaccard = chance_jaccard(shape.experts, shape.chosen);
  std::vector<std::int64_t> pairs;
  LayerRouting here = trace.read(0);
  for (std::size_t i = 0; i < trace.layers().size(); ++i) {
    const bool last = i + 1 == trace.layers().size();
    LayerRouting next = last ? LayerRouting{} : trace.read(i + 1);
    analysis.layers.push_back(analyze_layer(shape, here, last ? nullptr : &next, capacities));
    add(analysis.lru, analysis.layers.back().lru);
    add(analysis.hot_sets, analysis.layers.back().hot_sets);
    std::ranges::copy(count_usage(shape, here), std::back_inserter(pairs));
    here = std::move(next);
  }
  analysis.bands = bands_of(analysis.layers);
  analysis.pairs = static_cast<std::int64_t>(pairs.size());
  analysis.pairs_used = analysis.pairs - std::count(pairs.begin(), pairs.end(), 0);
  analysis.pairs_cover80 = cover80(pairs);
  analysis.requests = shape.requests() * static_cast<std::int64_t>(analysis.layers.size());
  return analysis;
}

}  // namespace engine::measure
