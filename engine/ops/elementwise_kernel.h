#pragma once

#include <cstdint>

#include "engine/base/lane_math.h"
#include "engine/base/lanes.h"
#include "engine/ops/elementwise_kernel_table.h"

namespace engine::ops::LAZYLORA_ISA {

using base::LAZYLORA_ISA::broadcast;
using base::LAZYLORA_ISA::kLanes;
using base::LAZYLORA_ISA::Lanes;
using base::LAZYLORA_ISA::load;
using base::LAZYLORA_ISA::store;

// block(i, count) for sixteen elements at a time from i on; count < 16 only in the last.
template <class Block>
inline void for_blocks(std::int64_t n, Block block) {
  for (std::int64_t i = 0; i < n; i += kLanes) {
    block(i, n - i < kLanes ? static_cast<int>(n - i) : kLanes);
  }
}

inline void exp_n(const float* x, float* y, std::int64_t n) {
  for_blocks(n, [=](std::int64_t i, int count) { store(y + i, exp(load(x + i, count)), count); });
}

inline void sigmoid_n(const float* x, float* y, std::int64_t n) {
  for_blocks(
      n, [=](std::int64_t i, int count) { store(y + i, sigmoid(load(x + i, count)).s, count); });
}

inline void silu_n(const float* x, float* y, std::int64_t n) {
  for_blocks(n, [=](std::int64_t i, int count) {
    const Lanes at = load(x + i, count);
    store(y + i, at * sigmoid(at).s, count);
  });
}

// silu' = s + x s (1 - s)
inline void silu_backward_n(const float* d_y, const float* x, float* d_x, std::int64_t n) {
  for_blocks(n, [=](std::int64_t i, int count) {
    const Lanes at = load(x + i, count);
    const auto [s, c] = sigmoid(at);
    store(d_x + i, load(d_y + i, count) * fma(at * s, c, s), count);
  });
}

inline void gate_n(const float* x, const float* gate, float* y, std::int64_t n) {
  for_blocks(n, [=](std::int64_t i, int count) {
    store(y + i, load(x + i, count) * sigmoid(load(gate + i, count)).s, count);
  });
}

inline void gate_backward_n(const float* d_y, const float* x, const float* gate, float* d_x,
                            float* d_gate, std::int64_t n) {
  for_blocks(n, [=](std::int64_t i, int count) {
    const auto [s, c] = sigmoid(load(gate + i, count));
    const Lanes d = load(d_y + i, count);
    const Lanes d_s = d * load(x + i, count);
    store(d_x + i, d * s, count);
    store(d_gate + i, d_s * (s * c), count);
  });
}

inline void situ_glu_n(const float* a, const float* u, float beta1, float beta2, float* out,
                       std::int64_t n) {
  const Lanes b1 = broadcast(beta1);
  const Lanes b2 = broadcast(beta2);
  for_blocks(n, [=](std::int64_t i, int count) {
    const Lanes gate = load(a + i, count);
    const Lanes capped_gate = b1 * tanh(gate / b1).t * sigmoid(gate).s;
    const Lanes capped_up = b2 * tanh(load(u + i, count) / b2).t;
    store(out + i, capped_gate * capped_up, count);
  });
}

// d/da [b1 t s] = (1 - t^2) s + b1 t s (1 - s), t = tanh(a / b1);  d/du [b2 t] = 1 - t^2, t =
// tanh(u / b2)
inline void situ_glu_backward_n(const float* d_out, const float* a, const float* u, float beta1,
                                float beta2, float* d_a, float* d_u, std::int64_t n) {
  const Lanes b1 = broadcast(beta1);
  const Lanes b2 = broadcast(beta2);
  for_blocks(n, [=](std::int64_t i, int count) {
    const Lanes d = load(d_out + i, count);
    const Lanes gate = load(a + i, count);
    const auto [t, d_t] = tanh(gate / b1);
    const auto [s, c] = sigmoid(gate);
    const auto [t_up, d_t_up] = tanh(load(u + i, count) / b2);
    const Lanes capped_gate = b1 * t * s;
    store(d_a + i, d * (b2 * t_up) * fma(capped_gate, c, d_t * s), count);
    store(d_u + i, d * capped_gate * d_t_up, count);
  });
}

inline constexpr ElementwiseKernels kElementwiseKernels = {
    exp_n,  sigmoid_n,       silu_n,     silu_backward_n,
    gate_n, gate_backward_n, situ_glu_n, situ_glu_backward_n};

}  // namespace engine::ops::LAZYLORA_ISA
