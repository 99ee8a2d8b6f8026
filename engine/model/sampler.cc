#include "engine/model/sampler.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "engine/base/error.h"
#include "engine/base/math.h"

namespace engine::model {
namespace {

// Uniform in [0, 1), a multiple of 2^-53.
double uniform(const base::CounterRng& rng, std::uint64_t step) {
  const std::uint64_t high = rng.bits(2 * step);
  const std::uint64_t low = rng.bits(2 * step + 1);
  return static_cast<double>((high << 21) | (low >> 11)) * 0x1p-53;
}

}  // namespace

Sampler::Sampler(const SamplingSettings& settings, std::int64_t vocabulary, base::RamBudget& budget)
    : settings_(settings),
      rng_(settings.seed, "generated tokens"),
      logits_(budget.take<float>("logits to choose from", vocabulary)) {
  if (settings.temperature == 0.0) return;
  order_ = budget.take<std::int32_t>("logits to choose from", vocabulary);
  weight_ = budget.take<double>("logits to choose from", vocabulary);
}

std::int32_t Sampler::choose(std::uint64_t step) {
  const std::span<const float> logits = logits_.span();
  const auto bad = std::ranges::find_if(logits, [](float x) { return !std::isfinite(x); });
  if (bad != logits.end()) {
    throw base::Error("generated token {}: the logit of id {} is {}: the result is not finite",
                      step, bad - logits.begin(), *bad);
  }
  if (settings_.temperature == 0.0) {
    return static_cast<std::int32_t>(std::ranges::max_element(logits) - logits.begin());
  }
  const std::span<std::int32_t> order = order_.span();
  std::iota(order.begin(), order.end(), 0);
  std::ranges::sort(order, [&](std::int32_t a, std::int32_t b) {
    const float x = logits[static_cast<std::size_t>(a)], y = logits[static_cast<std::size_t>(b)];
    return x != y ? x > y : a < b;
  });
  const std::span<double> sums = weight_.span();
  const double maximum = logits[static_cast<std::size_t>(order[0])];
  double sum = 0.0;
  for (std::size_t i = 0; i < order.size(); ++i) {
    const double logit = logits[static_cast<std::size_t>(order[i])];
    sum += base::exp((logit - maximum) / settings_.temperature);
    sums[i] = sum;
  }
  // Sums rise, the first is 1: both searches end inside.
  const auto kept = std::ranges::lower_bound(sums, settings_.top_p * sum);
  const double end = uniform(rng_, step) * *kept;
  const auto found = std::upper_bound(sums.begin(), kept, end);
  return order[static_cast<std::size_t>(found - sums.begin())];
}

}  // namespace engine::model
