#include "engine/ops/cross_entropy.h"

#include <algorithm>
#include <cassert>
#include <limits>

#include "engine/base/math.h"
#include "engine/base/parallel.h"
#include "engine/ops/double_sum.h"
#include "engine/ops/kernels.h"

namespace engine::ops {
namespace {

// exponential[i] = exp(logits[i] - maximum), n <= kVocabBand
void exponentials(const float* logits, float maximum, std::int64_t n, float* exponential) {
  for (std::int64_t i = 0; i < n; ++i) exponential[i] = logits[i] - maximum;
  kernels().elementwise.exp(exponential, exponential, n);
}

}  // namespace

void cross_entropy_start(const LossState& state) noexcept {
  std::fill(state.maximum.begin(), state.maximum.end(), -std::numeric_limits<float>::infinity());
  std::fill(state.denominator.begin(), state.denominator.end(), 0.0);
  std::fill(state.target_logit.begin(), state.target_logit.end(), 0.0f);
}

void cross_entropy_band(std::span<const float> logits, std::int64_t first,
                        std::span<const std::int32_t> targets, const LossState& state) noexcept {
  const auto tokens = static_cast<std::int64_t>(targets.size());
  if (tokens == 0) return;
  const std::int64_t rows = static_cast<std::int64_t>(logits.size()) / tokens;
  assert(static_cast<std::int64_t>(logits.size()) == rows * tokens && first % kVocabBand == 0);
  assert(state.maximum.size() == targets.size() && state.denominator.size() == targets.size() &&
         state.target_logit.size() == targets.size());
  base::parallel_for(tokens, [&](std::int64_t t) {
    if (targets[t] < 0) return;
    const float* row = logits.data() + t * rows;
    const std::int64_t target = targets[t] - first;
    if (target >= 0 && target < rows) state.target_logit[t] = row[target];
    float& maximum = state.maximum[t];
    double& denominator = state.denominator[t];
    float exponential[kVocabBand];
    for (std::int64_t begin = 0; begin < rows; begin += kVocabBand) {
      const std::int64_t n = std::min(kVocabBand, rows - begin);
      const float largest = *std::max_element(row + begin, row + begin + n);
      if (largest > maximum) {
        // Before the first band the sum is 0 and the maximum -infinity: exp(-infinity) is 0.
        denominator *= base::exp(static_cast<double>(maximum) - largest);
        maximum = largest;
      }
      exponentials(row + begin, maximum, n, exponential);
      denominator += double_sum(n, [&](std::int64_t i) { return double{exponential[i]}; });
    }
  });
}

void cross_entropy_finish(std::span<const std::int32_t> targets, const LossState& state,
                          std::span<double> nll) noexcept {
  assert(nll.size() == targets.size() && state.maximum.size() == targets.size());
  base::parallel_for(static_cast<std::int64_t>(targets.size()), [&](std::int64_t t) {
    const double below = static_cast<double>(state.maximum[t]) - state.target_logit[t];
    nll[t] = targets[t] < 0 ? 0.0 : base::log(state.denominator[t]) + below;
  });
}

void cross_entropy_backward(std::span<const float> logits, std::int64_t first,
                            std::span<const std::int32_t> targets, const LossState& state,
                            std::int64_t count, std::span<float> d_logits) noexcept {
  const auto tokens = static_cast<std::int64_t>(targets.size());
  if (tokens == 0) return;
  const std::int64_t rows = static_cast<std::int64_t>(logits.size()) / tokens;
  assert(static_cast<std::int64_t>(logits.size()) == rows * tokens);
  assert(d_logits.size() == logits.size() && state.maximum.size() == targets.size());
  base::parallel_for(tokens, [&](std::int64_t t) {
    const float* row = logits.data() + t * rows;
    float* out = d_logits.data() + t * rows;
    if (targets[t] < 0) {
      std::fill(out, out + rows, 0.0f);
      return;
    }
    assert(count > 0);
    const std::int64_t target = targets[t] - first;
    float exponential[kVocabBand];
    for (std::int64_t begin = 0; begin < rows; begin += kVocabBand) {
      const std::int64_t n = std::min(kVocabBand, rows - begin);
      exponentials(row + begin, state.maximum[t], n, exponential);
      for (std::int64_t i = 0; i < n; ++i) {
        const double onehot = begin + i == target ? 1.0 : 0.0;
        const double softmax = exponential[i] / state.denominator[t];
        out[begin + i] = static_cast<float>((softmax - onehot) / static_cast<double>(count));
      }
    }
  });
}

}  // namespace engine::ops
