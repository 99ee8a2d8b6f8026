#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/model/adapter_set.h"

namespace engine::measure {

// How much of an adapter a layer has. Zero for a layer without.
struct LayerNorms {
  std::int64_t layer = 0;
  double change = 0.0;    // of what is added to the layer's weights, all targets together
  double gradient = 0.0;  // of A and B, all targets together; as the set holds it now
};

// change^2 = sum over targets of || scale B A ||_F^2, from the products of A's rows and of B's
// columns: sum_ij (A A^T)_ij (B^T B)_ij. In double, sums ascending, targets in kTargetNames' order.
std::vector<LayerNorms> layer_norms(const model::AdapterSet& adapters, std::int64_t layers);

}  // namespace engine::measure
