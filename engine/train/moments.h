#pragma once

#include <span>
#include <vector>

#include "engine/base/budget.h"
#include "engine/model/adapter_set.h"
#include "engine/train/adamw.h"

namespace engine::train {

// Both moments of every tensor of an adapter set, zero at first, bound to its values and gradients;
// where its gradients are: in memory or on disk.
class Moments {
 public:
  // Errors    Error if the budget or the disk cannot hold them
  Moments(const model::AdapterSet& adapters, base::RamBudget& budget);

  // In the set's order, which is native-name order.
  std::span<const AdamwTensor> tensors() const { return tensors_; }

 private:
  base::Buffer<float> m_;
  base::Buffer<float> v_;
  store::ScratchFloats m_on_disk_, v_on_disk_;
  std::vector<AdamwTensor> tensors_;
};

}  // namespace engine::train
