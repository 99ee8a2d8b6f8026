#pragma once

#include <cstdint>
#include <span>

#include "engine/base/arena.h"
#include "engine/ops/experts.h"

namespace engine::model {

// Which tokens chose which expert: the [T,k] choices of the router turned over.
class RoutingTable {
 public:
  // Carves; nothing is sorted yet.
  RoutingTable(base::Arena& arena, std::int64_t tokens, std::int64_t experts, std::int64_t chosen);

  // Sorts by expert, tokens ascending. A token chooses an expert at most once.
  void build(std::span<const std::int32_t> index, std::span<const float> weight);

  // The tokens of one expert and the weights they give it; empty if nobody chose it.
  ops::ExpertTokens tokens_of(std::int32_t expert) const;
  // Where in [T,k] each of them stands.
  std::span<const std::int32_t> places_of(std::int32_t expert) const;
  std::int64_t largest_group() const;
  std::int64_t distinct() const;

 private:
  std::int64_t chosen_;
  std::span<std::int32_t> begin_;  // [E+1]
  std::span<std::int32_t> token_, place_;
  std::span<float> weight_;
};

}  // namespace engine::model
