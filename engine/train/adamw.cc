#include "engine/train/adamw.h"

#include <cmath>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/parallel.h"
#include "engine/store/scratch_floats.h"

namespace engine::train {
namespace {

// Borders of the element ranges that threads take; no result depends on it.
constexpr std::int64_t kGrain = 4096;

// A float32 squared is exact in double and cannot overflow there, so the sum is finite exactly if
// every element is.
double sum_of_squares(std::span<const float> x) {
  double partial[8] = {};
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double value = x[i];
    partial[i % 8] += value * value;
  }
  return ((partial[0] + partial[4]) + (partial[2] + partial[6])) +
         ((partial[1] + partial[5]) + (partial[3] + partial[7]));
}

[[noreturn]] void refuse(const AdamwTensor& tensor) {
  std::size_t i = 0;
  while (std::isfinite(tensor.gradient[i])) ++i;
  throw base::Error("gradient of {}: element {} of {} is {}; nothing was changed", tensor.name, i,
                    tensor.gradient.size(), tensor.gradient[i]);
}

// The scalars of a step, rounded to the precision of the elements.
struct Scalars {
  float scale, decay, beta1, rest1, beta2, rest2, correction1, correction2, rate, eps;
};

void update(const AdamwTensor& tensor, const Scalars& s, std::int64_t begin, std::int64_t end) {
  for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i) {
    const float g = tensor.gradient.empty() ? 0.0f : tensor.gradient[i] * s.scale;
    const float m = s.beta1 * tensor.m[i] + s.rest1 * g;
    const float v = s.beta2 * tensor.v[i] + s.rest2 * (g * g);
    const float decayed = tensor.values[i] * s.decay;
    const float root = std::sqrt(v / s.correction2) + s.eps;
    tensor.m[i] = m;
    tensor.v[i] = v;
    tensor.values[i] = decayed - s.rate * (m / s.correction1) / root;
  }
}

}  // namespace

void put_away(const AdamwTensor& tensor) noexcept {
  if (!tensor.on_disk) return;
  store::ScratchFloats::put_away(tensor.values);
  store::ScratchFloats::put_away(tensor.gradient);
  store::ScratchFloats::put_away(tensor.m);
  store::ScratchFloats::put_away(tensor.v);
}

AdamwNorm adamw_norm(std::span<const AdamwTensor> tensors, double clip) {
  std::vector<double> sums(tensors.size());
  base::parallel_for(static_cast<std::int64_t>(tensors.size()), [&](std::int64_t i) {
    const auto at = static_cast<std::size_t>(i);
    sums[at] = sum_of_squares(tensors[at].gradient);
    put_away(tensors[at]);
  });
  double total = 0.0;
  for (std::size_t i = 0; i < sums.size(); ++i) {
    if (!std::isfinite(sums[i])) refuse(tensors[i]);
    total += sums[i];
  }
  AdamwNorm result;
  result.norm = std::sqrt(total);
  if (result.norm > clip) result.scale = clip / (result.norm + 1e-6);
  return result;
}

void adamw_update(std::span<const AdamwTensor> tensors, const AdamwSettings& settings,
                  double learning_rate, double scale, const AdamwClock& clock) noexcept {
  const auto rounded = [](double x) { return static_cast<float>(x); };
  const Scalars scalars{
      .scale = rounded(scale),
      .decay = rounded(1.0 - learning_rate * settings.weight_decay),
      .beta1 = rounded(settings.beta1),
      .rest1 = rounded(1.0 - settings.beta1),
      .beta2 = rounded(settings.beta2),
      .rest2 = rounded(1.0 - settings.beta2),
      .correction1 = rounded(clock.correction1()),
      .correction2 = rounded(clock.correction2()),
      .rate = rounded(learning_rate),
      .eps = rounded(settings.eps),
  };
  for (const AdamwTensor& tensor : tensors) {
    base::parallel_ranges(
        static_cast<std::int64_t>(tensor.values.size()), kGrain,
        [&](std::int64_t begin, std::int64_t end) { update(tensor, scalars, begin, end); });
    put_away(tensor);
  }
}

}  // namespace engine::train
