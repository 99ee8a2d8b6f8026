#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/measure/layer_routing.h"

namespace engine::measure {

// How many pairs of k-sets have i experts in common, i = 0 ... k. All means over pairs come from
// this histogram, so they do not depend on the order of the pairs.
class Overlap {
 public:
  explicit Overlap(std::int64_t chosen) : pairs_with_(static_cast<std::size_t>(chosen) + 1) {}

  void add(std::int64_t common) { ++pairs_with_[static_cast<std::size_t>(common)]; }
  // The pairs of another histogram, of sets of the same size.
  void add(const Overlap& other);
  std::int64_t pairs() const;
  // Mean of |A and B| / |A or B| = i / (2k - i). Nothing if there is no pair.
  std::optional<double> jaccard() const;
  // Mean of |A and B| / k.
  std::optional<double> reuse() const;
  // Share of the pairs that are equal as sets.
  std::optional<double> equal() const;

 private:
  std::vector<std::int64_t> pairs_with_;  // [k+1]
};

// The chosen experts of every token as sets: each row ascending.
class TokenSets {
 public:
  TokenSets(const TraceShape& shape, const LayerRouting& routing);

  std::span<const std::int32_t> of(std::int64_t token) const {
    return std::span(sorted_).subspan(static_cast<std::size_t>(token * chosen_),
                                      static_cast<std::size_t>(chosen_));
  }

 private:
  std::int64_t chosen_;
  std::vector<std::int32_t> sorted_;  // [T,k]
};

std::int64_t common_experts(std::span<const std::int32_t> a, std::span<const std::int32_t> b);

// Token t and token t + distance of the same text, over all t.
Overlap overlap_at_distance(const TraceShape& shape, const TokenSets& sets, std::int64_t distance);

// The same token in two layers, or in two traces.
Overlap overlap_of_tokens(const TraceShape& shape, const TokenSets& a, const TokenSets& b);

// The mean Jaccard index of two k-sets drawn at random from E: what unrelated choices would show.
// With i in common, i = max(0, 2k - E) ... k, in proportion to C(k,i) C(E-k,k-i).
double chance_jaccard(std::int64_t experts, std::int64_t chosen);

}  // namespace engine::measure
