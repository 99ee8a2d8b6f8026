#include "engine/train/moments.h"

namespace engine::train {

Moments::Moments(const model::AdapterSet& adapters, base::RamBudget& budget) {
  std::size_t total = 0;
  for (const model::AdapterTensor& tensor : adapters.tensors()) total += tensor.values.size();
  m_ = budget.take<float>("first moments", static_cast<std::int64_t>(total));
  v_ = budget.take<float>("second moments", static_cast<std::int64_t>(total));
  std::size_t used = 0;
  for (const model::AdapterTensor& tensor : adapters.tensors()) {
    const std::size_t count = tensor.values.size();
    tensors_.push_back({tensor.name, tensor.values, tensor.gradient, m_.span().subspan(used, count),
                        v_.span().subspan(used, count)});
    used += count;
  }
}

}  // namespace engine::train
