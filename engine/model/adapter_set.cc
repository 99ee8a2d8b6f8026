#include "engine/model/adapter_set.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cassert>
#include <cmath>

#include "engine/base/parallel.h"
#include "engine/base/rng.h"

namespace engine::model {
namespace {

std::string tensor_name(std::int64_t layer, std::size_t target, char matrix) {
  return fmt::format("layers.{}.{}.lora_{}", layer, kTargetNames[target], matrix);
}

std::vector<std::size_t> target_indices(const AdapterSettings& settings) {
  std::vector<std::size_t> indices;
  for (const std::string& name : settings.targets) {
    const auto found = std::find(kTargetNames.begin(), kTargetNames.end(), name);
    if (found == kTargetNames.end()) {
      throw base::Error("adapter target \"{}\": there is no such target (there are: {})", name,
                        fmt::join(kTargetNames, ", "));
    }
    const auto index = static_cast<std::size_t>(found - kTargetNames.begin());
    if (std::find(indices.begin(), indices.end(), index) != indices.end()) {
      throw base::Error("adapter target \"{}\" is named twice", name);
    }
    indices.push_back(index);
  }
  if (indices.empty()) throw base::Error("no adapter target is named");
  return indices;
}

}  // namespace

AdapterWidths adapter_widths(const Config& config, std::int64_t layer, Target target) {
  const bool mla = config.is_mla[static_cast<std::size_t>(layer)];
  const bool dense = config.is_dense(layer);
  switch (target) {
    case Target::kQ:
      if (mla) return {config.q_lora_rank, config.mla_query()};
      return {config.hidden, config.kda_inner()};
    case Target::kV:
      if (mla) return {config.kv_lora_rank, config.mla_key_value()};
      return {config.hidden, config.kda_inner()};
    case Target::kDenseGate:
    case Target::kDenseUp:
      if (dense) return {config.hidden, config.dense_inner};
      return {};
    case Target::kDenseDown:
      if (dense) return {config.dense_inner, config.hidden};
      return {};
    case Target::kSharedGate:
    case Target::kSharedUp:
      if (dense) return {};
      return {config.hidden, config.shared_inner()};
    case Target::kSharedDown:
      if (dense) return {};
      return {config.shared_inner(), config.hidden};
    case Target::kExpertGate:
    case Target::kExpertUp:
      if (dense) return {};
      return {config.latent, config.inner};
    case Target::kExpertDown:
      if (dense) return {};
      return {config.inner, config.latent};
  }
  return {};
}

AdapterSet::AdapterSet(const Config& config, const AdapterSettings& settings)
    : settings_(settings), pairs_(static_cast<std::size_t>(config.layers)) {
  if (settings.rank < 1) throw base::Error("adapter rank {}: must be at least 1", settings.rank);
  if (!(settings.alpha > 0.0) || !std::isfinite(settings.alpha)) {
    throw base::Error("adapter alpha {}: must be positive", settings.alpha);
  }
  const auto scale = static_cast<float>(settings.alpha / static_cast<double>(settings.rank));
  for (const std::size_t target : target_indices(settings)) {
    for (std::int64_t layer = 0; layer < config.layers; ++layer) {
      const AdapterWidths widths = adapter_widths(config, layer, static_cast<Target>(target));
      if (widths.in == 0) continue;
      pairs_[static_cast<std::size_t>(layer)][target].lora = {{},        {},         settings.rank,
                                                              widths.in, widths.out, scale};
      parameters_ += settings.rank * (widths.in + widths.out);
      tensor_count_ += 2;
      largest_tensor_ = std::max(largest_tensor_, settings.rank * std::max(widths.in, widths.out));
    }
  }
  for (const auto& layer : pairs_) {
    std::int64_t parameters = 0;
    for (const AdapterPair& pair : layer) {
      parameters += pair.lora.rank * (pair.lora.in + pair.lora.out);
    }
    largest_layer_ = std::max(largest_layer_, parameters);
  }
}

// At work are values and gradients of a layer in a sweep, a gradient a thread for the norm, and a
// tensor with gradient and both moments for the update: four layers are more than the first and the
// last. Of few tensors not every thread has one, and of one layer alone four are all there is.
std::int64_t AdapterSet::memory_bytes(bool on_disk) const {
  constexpr std::int64_t kFloat = sizeof(float);
  if (!on_disk) return 4 * parameters_ * kFloat;
  const std::int64_t for_the_norm =
      std::min<std::int64_t>(base::threads(), tensor_count_) * largest_tensor_;
  return std::min(4 * parameters_, std::max(4 * largest_layer_, for_the_norm)) * kFloat;
}

AdapterSet::AdapterSet(const Config& config, const AdapterSettings& settings,
                       base::RamBudget& budget, const std::filesystem::path& scratch,
                       Gradients held)
    : AdapterSet(config, settings) {
  assert(scratch.empty() || held == Gradients::kHeld);
  scratch_ = scratch;
  std::span<float> values, gradients;
  if (scratch.empty()) {
    values_ = budget.take<float>("adapters", parameters_);
    values = values_.span();
    if (held == Gradients::kHeld) {
      gradients_ = budget.take<float>("adapter gradients", parameters_);
      gradients = gradients_.span();
    }
  } else {
    worked_on_ = std::make_unique<base::Charge>(budget, "adapters, gradients and moments worked on",
                                                static_cast<std::uint64_t>(memory_bytes(true)));
    values_on_disk_ = store::ScratchFloats(scratch, parameters_);
    gradients_on_disk_ = store::ScratchFloats(scratch, parameters_);
    values = values_on_disk_.span();
    gradients = gradients_on_disk_.span();
  }
  std::size_t used = 0;
  const auto gradient = [&](std::size_t from, std::size_t count) {
    return gradients.empty() ? gradients : gradients.subspan(from, count);
  };
  const auto carve = [&](std::string name, std::int64_t rows, std::int64_t cols) {
    const auto count = static_cast<std::size_t>(rows * cols);
    tensors_.push_back(
        {std::move(name), rows, cols, values.subspan(used, count), gradient(used, count)});
    used += count;
    return tensors_.back();
  };
  for (std::size_t layer = 0; layer < pairs_.size(); ++layer) {
    const std::size_t before = used;
    for (std::size_t target = 0; target < kTargetNames.size(); ++target) {
      AdapterPair& pair = pairs_[layer][target];
      if (pair.lora.rank == 0) continue;
      const auto n = static_cast<std::int64_t>(layer);
      const AdapterTensor a = carve(tensor_name(n, target, 'A'), pair.lora.rank, pair.lora.in);
      const AdapterTensor b = carve(tensor_name(n, target, 'B'), pair.lora.out, pair.lora.rank);
      pair.lora.a = a.values;
      pair.lora.b = b.values;
      pair.d_a = a.gradient;
      pair.d_b = b.gradient;
    }
    layers_.push_back({values.subspan(before, used - before), gradient(before, used - before)});
  }
  std::sort(tensors_.begin(), tensors_.end(),
            [](const AdapterTensor& x, const AdapterTensor& y) { return x.name < y.name; });
}

void AdapterSet::initialize(std::uint64_t seed) {
  for (const AdapterTensor& tensor : tensors_) {
    if (tensor.name.back() == 'B') {
      std::fill(tensor.values.begin(), tensor.values.end(), 0.0f);
      put_away(tensor);
      continue;
    }
    const base::CounterRng rng(seed, tensor.name);
    const auto bound = static_cast<float>(1.0 / std::sqrt(static_cast<double>(tensor.cols)));
    base::parallel_for(tensor.rows * tensor.cols, [&](std::int64_t i) {
      const float u = rng.uniform(static_cast<std::uint64_t>(i));
      tensor.values[static_cast<std::size_t>(i)] = bound * (2.0f * u - 1.0f);
    });
    put_away(tensor);
  }
}

void AdapterSet::clear_gradients() {
  for (const AdapterTensor& tensor : tensors_) {
    std::fill(tensor.gradient.begin(), tensor.gradient.end(), 0.0f);
    put_away(tensor);
  }
}

void AdapterSet::put_away(std::int64_t layer) const {
  if (scratch_.empty()) return;
  const LayerPart& part = layers_[static_cast<std::size_t>(layer)];
  store::ScratchFloats::put_away(part.values);
  store::ScratchFloats::put_away(part.gradients);
}

void AdapterSet::put_away(const AdapterTensor& tensor) const {
  if (scratch_.empty()) return;
  store::ScratchFloats::put_away(tensor.values);
  store::ScratchFloats::put_away(tensor.gradient);
}

const AdapterPair* AdapterSet::find(std::int64_t layer, Target target) const {
  const AdapterPair& pair =
      pairs_[static_cast<std::size_t>(layer)][static_cast<std::size_t>(target)];
  return pair.lora.rank > 0 ? &pair : nullptr;
}

}  // namespace engine::model
