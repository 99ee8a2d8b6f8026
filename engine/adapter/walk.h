#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

namespace engine::adapter {

struct Axis {
  std::int64_t extent = 1;
  std::int64_t step = 0;  // 0: the same values again, as for every expert
};

// A tensor of a file as a walk through a native matrix: the value at (i, j, k) of the file is
//   matrix[base + i * axes[0].step + j * axes[1].step + k * axes[2].step].
// Every form in which others want an adapter is one: transposed, repeated, interleaved, cut by heads.
struct Walk {
  std::array<Axis, 3> axes;  // outermost first
  std::int64_t base = 0;

  std::int64_t size() const { return axes[0].extent * axes[1].extent * axes[2].extent; }
};

inline Walk walk(Axis outer, Axis middle, Axis inner, std::int64_t base = 0) {
  return {{outer, middle, inner}, base};
}

// f(place, step, n) for the values [first, first + count), in the file's order: n of them lie at
// place, place + step, ... of the matrix.
template <class Function>
void for_runs(const Walk& walk, std::int64_t first, std::int64_t count, const Function& f) {
  const auto& [outer, middle, inner] = walk.axes;
  while (count > 0) {
    const std::int64_t row = first / inner.extent;
    const std::int64_t k = first % inner.extent;
    const std::int64_t n = std::min(count, inner.extent - k);
    f(walk.base + row / middle.extent * outer.step + row % middle.extent * middle.step +
          k * inner.step,
      inner.step, n);
    first += n;
    count -= n;
  }
}

}  // namespace engine::adapter
