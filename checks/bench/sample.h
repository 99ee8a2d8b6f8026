#pragma once

#include <algorithm>
#include <cstddef>
#include <ctime>
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

// Times body(), after a moment of sleep and a call of warm_up(). After a sleep the scheduler gives a
// thread a fresh turn, in which a sample of a millisecond or two has a chance even on a busy machine;
// the warm-up brings back code and activations that others have driven out of the caches.
template <class WarmUp, class Body>
Sample timed(WarmUp warm_up, Body body) {
  const timespec moment = {0, 500'000};
  nanosleep(&moment, nullptr);
  warm_up();
  const double cpu = seconds_of(CLOCK_THREAD_CPUTIME_ID);
  const double wall = seconds_of(CLOCK_MONOTONIC);
  body();
  const double wall_end = seconds_of(CLOCK_MONOTONIC);
  return {wall_end - wall, seconds_of(CLOCK_THREAD_CPUTIME_ID) - cpu};
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
