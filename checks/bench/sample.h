#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <ctime>
#include <optional>
#include <vector>

namespace checks::bench {

inline double seconds_of(clockid_t clock) {
  timespec t;
  clock_gettime(clock, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

// One timing of something on this thread.
struct Sample {
  double wall = 0.0;
  double cpu = 0.0;

  // Whether the thread had its core nearly all the time. A sample during which another process ran
  // says how busy the machine was, and nothing else.
  bool quiet() const { return cpu >= 0.97 * wall; }
};

// Times body(), after a call of warm_up(), which brings back code and activations that others have driven
// out of the caches.
template <class WarmUp, class Body>
Sample timed(WarmUp warm_up, Body body) {
  warm_up();
  const double cpu = seconds_of(CLOCK_THREAD_CPUTIME_ID);
  const double wall = seconds_of(CLOCK_MONOTONIC);
  body();
  const double wall_end = seconds_of(CLOCK_MONOTONIC);
  return {wall_end - wall, seconds_of(CLOCK_THREAD_CPUTIME_ID) - cpu};
}

// How many times longer `other` takes than `ours`, timed right before and right after it; nothing if
// a sample was not quiet, or if the two of `other` differ by more than a twentieth: then the machine
// changed its speed meanwhile, as a virtual one does when a neighbour wakes up, and the ratio would
// compare two machines. Samples should last about equally long: a burst is faster than what lasts.
// The sleep gives the thread a fresh turn of the scheduler, in which a few milliseconds have a chance
// even on a busy machine. Nothing, too, unless alone() holds before, soon enough, and after.
template <class Other, class Ours, class Alone>
std::optional<double> ratio_beside(Other other, Ours ours, Alone alone) {
  constexpr int kPatience = 40;
  const timespec moment = {0, 500'000};
  int waited = 0;
  do {
    nanosleep(&moment, nullptr);
  } while (!alone() && ++waited < kPatience);
  if (waited == kPatience) return std::nullopt;
  const Sample before = other(), mine = ours(), after = other();
  if (!before.quiet() || !mine.quiet() || !after.quiet() || !alone()) return std::nullopt;
  const double mean = (before.wall + after.wall) / 2;
  if (std::abs(before.wall - after.wall) > 0.05 * mean) return std::nullopt;
  return mean / mine.wall;
}

// Median and quartiles of what was kept; zeros if nothing was.
struct Spread {
  double low = 0.0, median = 0.0, high = 0.0;
};

inline Spread spread_of(std::vector<double> values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  const auto at = [&](std::size_t quarter) { return values[(values.size() - 1) * quarter / 4]; };
  return {at(1), at(2), at(3)};
}

}  // namespace checks::bench
