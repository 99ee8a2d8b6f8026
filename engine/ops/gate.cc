#include "engine/ops/gate.h"

#include <cassert>

#include "engine/base/parallel.h"
#include "engine/ops/kernels.h"

namespace engine::ops {
namespace {

// Elements that are worth handing to another thread, a multiple of the sixteen lanes.
constexpr std::int64_t kGrain = 4096;

template <class Body>
void over_elements(std::size_t n, Body&& body) {
  base::parallel_ranges(static_cast<std::int64_t>(n), kGrain, body);
}

}  // namespace

void sigmoid_forward(std::span<const float> x, std::span<float> y) noexcept {
  assert(y.size() == x.size());
  over_elements(x.size(), [&](std::int64_t begin, std::int64_t end) {
    kernels().elementwise.sigmoid(x.data() + begin, y.data() + begin, end - begin);
  });
}

void sigmoid_backward(std::span<const float> d_y, std::span<const float> y,
                      std::span<float> d_x) noexcept {
  assert(d_y.size() == y.size() && d_x.size() == y.size());
  over_elements(y.size(), [&](std::int64_t begin, std::int64_t end) {
    for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i) {
      d_x[i] = d_y[i] * (y[i] * (1.0f - y[i]));
    }
  });
}

void output_gate_forward(std::span<const float> x, std::span<const float> gate,
                         std::span<float> y) noexcept {
  assert(gate.size() == x.size() && y.size() == x.size());
  over_elements(x.size(), [&](std::int64_t begin, std::int64_t end) {
    kernels().elementwise.gate(x.data() + begin, gate.data() + begin, y.data() + begin,
                               end - begin);
  });
}

void output_gate_backward(std::span<const float> d_y, std::span<const float> x,
                          std::span<const float> gate, std::span<float> d_x,
                          std::span<float> d_gate) noexcept {
  assert(d_y.size() == x.size() && gate.size() == x.size());
  assert(d_x.size() == x.size() && d_gate.size() == x.size());
  over_elements(x.size(), [&](std::int64_t begin, std::int64_t end) {
    kernels().elementwise.gate_backward(d_y.data() + begin, x.data() + begin, gate.data() + begin,
                                        d_x.data() + begin, d_gate.data() + begin, end - begin);
  });
}

}  // namespace engine::ops
