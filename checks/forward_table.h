#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "checks/engine_run.h"
#include "checks/forward_reference.h"

namespace checks {

// Gates of a free-running comparison, layer by layer: docs/numerics.md says where they come from.
inline constexpr double kLeastCosine = 0.999999;
inline constexpr double kLargestDifference =
    1e-3;  // max |difference| over the reference's deviation

struct LayerRow {
  std::int64_t layer = 0;
  std::string kind;  // "KDA dense", "MLA MoE", ...
  double cosine = 0.0;
  double largest_difference = 0.0;
  double deviation_got = 0.0, deviation_want = 0.0;
  double worst = 0.0;                // error over allowed
  std::string worst_stage;           // where in the layer, in the table layer by layer
  std::int64_t routing_differs = 0;  // tokens whose sets of experts differ
  std::int64_t uncertified = 0;      // tokens whose choice the rounding bound does not settle
  std::optional<double> smallest_gap;
  bool compared_routing = false;
  bool holds = false;
};

struct ForwardTable {
  std::vector<LayerRow> free_running;  // engine's whole forward against the reference's
  std::vector<LayerRow>
      layer_by_layer;  // each from the reference's own inputs, its stages within the bound
  std::int64_t argmax_differs = -1;  // positions; -1 without logits in the reference
  double logits_worst = 0.0;         // max |difference| / deviation over the gate
  bool logits_hold = true;
};

// Standard deviation.
double deviation(const std::vector<double>& values);

// Errors    std::runtime_error where the reference does not fit model and ids (require_fit)
ForwardTable compare_forward(Engine& engine, const std::filesystem::path& model,
                             const std::vector<std::int32_t>& ids,
                             const ForwardReference& reference);

}  // namespace checks
