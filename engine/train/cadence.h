#pragma once

#include <cstdint>
#include <deque>
#include <optional>

#include "engine/train/settings.h"

namespace engine::train {

// What is still to be done when `step` has just been taken (0: none yet): its own checkpoint and
// evaluation are part of it, where they are due.
struct Remaining {
  std::int64_t steps = 0;
  std::int64_t checkpoints = 0;
  std::int64_t evaluations = 0;
};
Remaining remaining(const Settings& settings, std::int64_t step);

// How fast a run goes, measured. A step's own time is not it: checkpoints and evaluations come on
// top, and not in every step, so each kind has a mean of its own (over the last eight) and is counted
// as often as it is still due. A kind that has not been measured yet counts as nothing.
class Cadence {
 public:
  void add_step(double seconds) { add(steps_, seconds); }
  void add_checkpoint(double seconds) { add(checkpoints_, seconds); }
  void add_evaluation(double seconds) { add(evaluations_, seconds); }

  // Nothing before the first step.
  std::optional<double> seconds_for(const Remaining& what) const;
  // From one step's end to the next one's, everything due between shared out.
  std::optional<double> seconds_a_step(const Settings& settings) const;

 private:
  using Times = std::deque<double>;
  static void add(Times& times, double seconds);
  static double mean(const Times& times);

  Times steps_, checkpoints_, evaluations_;
};

}  // namespace engine::train
