#pragma once

#include <omp.h>

#include <algorithm>
#include <cstdint>

#include "engine/base/float_mode.h"

namespace engine::base {

// Threads that parallel_for may use; a result never depends on it.
inline void set_threads(int threads) { omp_set_num_threads(threads); }
inline int threads() { return omp_get_max_threads(); }

// body(begin, end) over a partition of [0, n) into one contiguous range a thread, borders at
// multiples of `grain`. Every element is computed by exactly one call, in canonical float mode.
// Order    whatever the body computes for element i may not depend on where the borders fall
// Errors   body must not throw
template <class Body>
void parallel_ranges(std::int64_t n, std::int64_t grain, Body&& body) {
  const std::int64_t blocks = (n + grain - 1) / grain;
  const int team = static_cast<int>(std::min<std::int64_t>(blocks, threads()));
  if (team <= 1) {
    if (n > 0) {
      const CanonicalFloatMode mode;
      body(std::int64_t{0}, n);
    }
    return;
  }
#pragma omp parallel num_threads(team)
  {
    const CanonicalFloatMode mode;
    const std::int64_t rank = omp_get_thread_num();
    const std::int64_t size = omp_get_num_threads();
    const std::int64_t begin = blocks * rank / size * grain;
    const std::int64_t end = std::min(n, blocks * (rank + 1) / size * grain);
    if (begin < end) body(begin, end);
  }
}

// body(i) for every i in [0, n); see parallel_ranges.
template <class Body>
void parallel_for(std::int64_t n, Body&& body) {
  parallel_ranges(n, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) body(i);
  });
}

}  // namespace engine::base
