#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "engine/ops/experts.h"

namespace engine::model {

// The routed experts of one layer, wherever they lie. The MoE asks for each at most once a sweep,
// in `order`, and is done with one before it asks for the next.
struct ExpertSource {
  std::vector<std::int32_t> order;  // all experts by (shard, offset): the order of accumulation
  std::function<ops::ExpertWeights(std::int32_t expert)> load;
  // Told by the forward pass what it will load, in that order, as soon as it knows. May be empty.
  std::function<void(std::span<const std::int32_t> experts)> announce = nullptr;
};

}  // namespace engine::model
