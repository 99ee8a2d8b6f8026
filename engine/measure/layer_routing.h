#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace engine::measure {

// What all layers of a trace have in common.
struct TraceShape {
  std::int64_t experts = 0;             // E
  std::int64_t tokens = 0;              // T
  std::int64_t chosen = 0;              // k
  std::vector<std::int64_t> documents;  // borders, 0 ... T: the texts, one after another

  std::int64_t requests() const { return tokens * chosen; }
};

// The choice of one layer. An expert's number means nothing in another layer.
struct LayerRouting {
  std::int64_t layer = 0;
  std::vector<std::int32_t> index;  // [T,k] in the router's order, best first
  std::vector<float> weight;        // [T,k]
};

// Expert numbers of a trace are int16.
inline constexpr std::int64_t kMaxExperts = std::numeric_limits<std::int16_t>::max();

// Every number an expert of the model, no expert twice for a token, weights finite and not
// negative, and their sum for a token above zero.
//
// Errors    Error naming `where`, layer, token and the values that disagree
void require_sound(const TraceShape& shape, const LayerRouting& routing, const std::string& where);

// Experts that were chosen at least once.
std::int64_t distinct_experts(const TraceShape& shape, const LayerRouting& routing);

}  // namespace engine::measure
