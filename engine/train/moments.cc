#include "engine/train/moments.h"

namespace engine::train {

Moments::Moments(const model::AdapterSet& adapters, base::RamBudget& budget) {
  std::size_t total = 0;
  for (const model::AdapterTensor& tensor : adapters.tensors()) total += tensor.values.size();
  const bool on_disk = !adapters.scratch().empty();
  std::span<float> m, v;
  if (on_disk) {
    m_on_disk_ = store::ScratchFloats(adapters.scratch(), static_cast<std::int64_t>(total));
    v_on_disk_ = store::ScratchFloats(adapters.scratch(), static_cast<std::int64_t>(total));
    m = m_on_disk_.span();
    v = v_on_disk_.span();
  } else {
    m_ = budget.take<float>("first moments", static_cast<std::int64_t>(total));
    v_ = budget.take<float>("second moments", static_cast<std::int64_t>(total));
    m = m_.span();
    v = v_.span();
  }
  std::size_t used = 0;
  for (const model::AdapterTensor& tensor : adapters.tensors()) {
    const std::size_t count = tensor.values.size();
    tensors_.push_back({tensor.name, tensor.values, tensor.gradient, m.subspan(used, count),
                        v.subspan(used, count), on_disk});
    used += count;
  }
}

}  // namespace engine::train
