#pragma once

// Inner loops of mla.h: one row of scores at a time.

#include <cstdint>

#include "engine/base/lane_math.h"
#include "engine/base/lanes.h"
#include "engine/ops/mla_kernel_table.h"

namespace engine::ops::LAZYLORA_ISA {

using base::LAZYLORA_ISA::broadcast;
using base::LAZYLORA_ISA::kLanes;
using base::LAZYLORA_ISA::Lanes;
using base::LAZYLORA_ISA::load;
using base::LAZYLORA_ISA::Number;
using base::LAZYLORA_ISA::zero;

// Positions whose sums are in registers together: one chain alone would wait for itself.
inline constexpr int kMlaPositions = 4;

// sums[s][i mod 16] += x[i] y[s][i], ascending i, for N rows of y
template <int N>
inline void mla_add_products(const float* x, const float* y, std::int64_t stride, std::int64_t n,
                             Lanes (&sums)[N]) {
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const Lanes at = load(x + i);
#pragma GCC unroll 8
    for (int s = 0; s < N; ++s) sums[s] = fma(at, load(y + s * stride + i), sums[s]);
  }
  if (i < n) {
    const int left = static_cast<int>(n - i);
    const Lanes at = load(x + i, left);
#pragma GCC unroll 8
    for (int s = 0; s < N; ++s) sums[s] = fma(at, load(y + s * stride + i, left), sums[s]);
  }
}

// body(N, first position) over all positions, N of them together.
template <class Body>
inline void mla_for_positions(std::int64_t count, Body body) {
  std::int64_t s = 0;
  for (; s + kMlaPositions <= count; s += kMlaPositions) {
    body(Number<kMlaPositions>{}, s);
  }
  for (; s < count; ++s) body(Number<1>{}, s);
}

// y[j] += a x[j]
inline void mla_add_scaled(float a, const float* x, std::int64_t n, float* y) {
  const Lanes factor = broadcast(a);
  std::int64_t j = 0;
  for (; j + kLanes <= n; j += kLanes) store(y + j, fma(factor, load(x + j), load(y + j)));
  if (j < n) {
    const int left = static_cast<int>(n - j);
    store(y + j, fma(factor, load(x + j, left), load(y + j, left)), left);
  }
}

// y[j] = sum_s a[s] x[s][j], one fma chain in ascending s from +0
inline void mla_weighted_sum(const float* a, const float* x, std::int64_t stride,
                             std::int64_t count, std::int64_t n, float* y) {
  std::int64_t j = 0;
  for (; j + 4 * kLanes <= n; j += 4 * kLanes) {
    Lanes sums[4] = {zero(), zero(), zero(), zero()};
    for (std::int64_t s = 0; s < count; ++s) {
      const Lanes factor = broadcast(a[s]);
      const float* row = x + s * stride + j;
      for (int c = 0; c < 4; ++c) sums[c] = fma(factor, load(row + c * kLanes), sums[c]);
    }
    for (int c = 0; c < 4; ++c) store(y + j + c * kLanes, sums[c]);
  }
  for (; j < n; j += kLanes) {
    const int left = n - j < kLanes ? static_cast<int>(n - j) : kLanes;
    Lanes sums = zero();
    for (std::int64_t s = 0; s < count; ++s) {
      const float* row = x + s * stride + j;
      sums = fma(broadcast(a[s]), left == kLanes ? load(row) : load(row, left), sums);
    }
    if (left == kLanes) {
      store(y + j, sums);
    } else {
      store(y + j, sums, left);
    }
  }
}

// sum_s term(s) in double: term s to sum s mod 16, ascending, then the tree of lanes.h.
template <class Term>
inline double mla_sum_in_double(std::int64_t count, Term term) {
  double sums[kLanes] = {};
  std::int64_t s = 0;
  for (; s + kLanes <= count; s += kLanes) {
    for (int r = 0; r < kLanes; ++r) sums[r] += term(s + r);
  }
  for (int r = 0; s + r < count; ++r) sums[r] += term(s + r);
  for (int half = kLanes / 2; half > 0; half /= 2) {
    for (int r = 0; r < half; ++r) sums[r] += sums[r + half];
  }
  return sums[0];
}

// p = softmax over s < count of <q, [k_nope_s ; kr_s]> scale
inline void mla_probabilities(const MlaHead& head, const float* q, std::int64_t count, float* p) {
  mla_for_positions(count, [&]<int N>(Number<N>, std::int64_t s) {
    Lanes sums[N] = {};
    mla_add_products(q, head.kv + s * head.kv_stride, head.kv_stride, head.nope, sums);
    mla_add_products(q + head.nope, head.kr + s * head.rope, head.rope, head.rope, sums);
#pragma GCC unroll 8
    for (int i = 0; i < N; ++i) p[s + i] = sum(sums[i]) * head.scale;
  });
  float maximum = p[0];
  for (std::int64_t s = 1; s < count; ++s) {
    if (p[s] > maximum) maximum = p[s];
  }
  for (std::int64_t s = 0; s < count; s += kLanes) {
    const int left = count - s < kLanes ? static_cast<int>(count - s) : kLanes;
    store(p + s, exp(load(p + s, left) - broadcast(maximum)), left);
  }
  const double inverse =
      1.0 / mla_sum_in_double(count, [&](std::int64_t s) { return static_cast<double>(p[s]); });
  for (std::int64_t s = 0; s < count; ++s) p[s] = static_cast<float>(p[s] * inverse);
}

inline void mla_forward(const MlaHead& head, const float* q, std::int64_t count, float* p,
                        float* o) {
  mla_probabilities(head, q, count, p);
  mla_weighted_sum(p, head.kv + head.nope, head.kv_stride, count, head.value, o);
}

// d_p_s = <d_o, v_s>;  d_score_s = p_s (d_p_s - sum_r p_r d_p_r);  and both factors of the
// products.
inline void mla_backward(const MlaHead& head, const float* q, const float* d_o, std::int64_t count,
                         float* p, float* d_p, float* d_q, float* d_kv, float* d_kr) {
  mla_probabilities(head, q, count, p);
  mla_for_positions(count, [&]<int N>(Number<N>, std::int64_t s) {
    Lanes sums[N] = {};
    mla_add_products(d_o, head.kv + s * head.kv_stride + head.nope, head.kv_stride, head.value,
                     sums);
#pragma GCC unroll 8
    for (int i = 0; i < N; ++i) d_p[s + i] = sum(sums[i]);
  });
  const double mean = mla_sum_in_double(count, [&](std::int64_t s) {
    return static_cast<double>(p[s]) * static_cast<double>(d_p[s]);
  });
  for (std::int64_t s = 0; s < count; ++s) {
    const float d_score = static_cast<float>(p[s] * (d_p[s] - mean));
    const float d_dot = d_score * head.scale;
    float* d_key = d_kv + s * head.kv_stride;
    mla_add_scaled(d_dot, q, head.nope, d_key);
    mla_add_scaled(p[s], d_o, head.value, d_key + head.nope);
    mla_add_scaled(d_dot, q + head.nope, head.rope, d_kr + s * head.rope);
    d_p[s] = d_dot;
  }
  mla_weighted_sum(d_p, head.kv, head.kv_stride, count, head.nope, d_q);
  mla_weighted_sum(d_p, head.kr, head.rope, count, head.rope, d_q + head.nope);
}

inline constexpr MlaKernels kMlaKernels = {&mla_forward, &mla_backward};

}  // namespace engine::ops::LAZYLORA_ISA
