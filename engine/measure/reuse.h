#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/measure/layer_routing.h"

namespace engine::measure {

// Of R requests, how many a memory for `capacity` experts would have met.
struct CapacityHits {
  std::int64_t capacity = 0;
  std::int64_t hits = 0;
};

// Distance of a request: the number of different keys asked for since the same key was asked for
// last, itself counted, so 1 for an immediate repetition. How often each occurs: [distance] for
// 1 ... the number of keys, and at 0 the requests for a key that was never asked for before.
//
// A memory that always throws out the key asked for least recently (LRU) and starts empty holds the
// `capacity` most recent keys: a request is met exactly if its distance is at most `capacity`.
//
// Cost      R log R time, R memory
// Errors    (assert) a key outside 0 ... keys-1
std::vector<std::int64_t> reuse_distances(std::span<const std::int32_t> requests,
                                          std::int64_t keys);

// LRU hits for each capacity. A layer's requests are those of its tokens one by one, each token's k
// in the router's order; the memory is not emptied between texts.
std::vector<CapacityHits> lru_hits(std::span<const std::int32_t> requests, std::int64_t keys,
                                   std::span<const std::int64_t> capacities);

// Static hot sets, leave one out: for each text the `capacity` experts that all OTHER texts use
// most (the lower number first among equals), and how many of the text's own requests they meet;
// summed over texts. Nothing if there is only one text.
std::vector<CapacityHits> hot_set_hits(const TraceShape& shape, const LayerRouting& routing,
                                       std::span<const std::int64_t> capacities);

}  // namespace engine::measure
