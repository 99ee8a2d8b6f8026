#pragma once

#include <cstdint>

namespace engine::train {

struct Schedule {
  double peak = 2e-4;
  double floor = 1e-5;
  std::int64_t warmup = 5;
  std::int64_t total = 0;
};

// The learning rate of step t = 1 ... total:
//   t <= warmup   peak t / warmup; step 1 already moves: (t - 1) is the tempting error
//   otherwise     floor + (peak - floor) (1 + cos(pi (t - warmup) / (total - warmup))) / 2
// The last step is at floor. With total <= warmup the peak may never be reached.
double learning_rate(const Schedule& schedule, std::int64_t step);

}  // namespace engine::train
