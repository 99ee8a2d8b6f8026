#include "engine/train/schedule.h"

#include <cassert>
#include <numbers>

#include "engine/base/math.h"

namespace engine::train {

double learning_rate(const Schedule& schedule, std::int64_t step) {
  assert(step >= 1 && step <= schedule.total);
  const auto t = static_cast<double>(step);
  const auto warmup = static_cast<double>(schedule.warmup);
  if (step <= schedule.warmup) return schedule.peak * t / warmup;
  const double span = static_cast<double>(schedule.total) - warmup;
  const double cosine = base::cos(std::numbers::pi * (t - warmup) / span);
  return schedule.floor + (schedule.peak - schedule.floor) * 0.5 * (1.0 + cosine);
}

}  // namespace engine::train
