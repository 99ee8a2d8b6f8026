#include "engine/train/cadence.h"

#include <numeric>

namespace engine::train {
namespace {

constexpr std::size_t kRemembered = 8;

// Steps in [step, total], from 1 on, that `every` divides, and total itself.
std::int64_t due(std::int64_t every, std::int64_t step, std::int64_t total) {
  if (every == 0 || step > total) return 0;
  const std::int64_t before = step > 0 ? (step - 1) / every : 0;
  return total / every - before + (total % every != 0 ? 1 : 0);
}

}  // namespace

Remaining remaining(const Settings& settings, std::int64_t step) {
  const std::int64_t total = settings.schedule.total;
  return {total > step ? total - step : 0, due(settings.checkpoint_every, step, total),
          due(settings.eval_every, step, total) + (settings.eval_every > 0 && step == 0 ? 1 : 0)};
}

void Cadence::add(Times& times, double seconds) {
  times.push_back(seconds);
  if (times.size() > kRemembered) times.pop_front();
}

double Cadence::mean(const Times& times) {
  if (times.empty()) return 0.0;
  return std::accumulate(times.begin(), times.end(), 0.0) / static_cast<double>(times.size());
}

std::optional<double> Cadence::seconds_for(const Remaining& what) const {
  if (steps_.empty()) return std::nullopt;
  return static_cast<double>(what.steps) * mean(steps_) +
         static_cast<double>(what.checkpoints) * mean(checkpoints_) +
         static_cast<double>(what.evaluations) * mean(evaluations_);
}

std::optional<double> Cadence::seconds_a_step(const Settings& settings) const {
  const std::optional<double> all = seconds_for(remaining(settings, 0));
  if (!all) return std::nullopt;
  return *all / static_cast<double>(settings.schedule.total);
}

}  // namespace engine::train
