#pragma once

// Inner loops of matmul.h and lora.h. Blocking only decides which chains of fma run side by side
// and when a weight is widened, so its constants may be tuned without changing a bit.

#include <cstdint>

#include "engine/ops/matmul_backward_kernel.h"
#include "engine/ops/matmul_forward_kernel.h"
#include "engine/ops/matmul_kernel_table.h"
#include "engine/ops/weight_kernel.h"

namespace engine::ops::LAZYLORA_ISA {

inline void widen(const Weight& w, std::int64_t o, float* to) {
  with_rows(w, [&](const auto& of_w) { widen_row(of_w, o, 0, w.cols, to); });
}

inline void axpy(float scale, const float* x, float* sum, std::int64_t n) {
  const Lanes factor = broadcast(scale);
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store(sum + i, fma(factor, load(x + i), load(sum + i)));
  const int left = static_cast<int>(n - i);
  if (left > 0) store(sum + i, fma(factor, load(x + i, left), load(sum + i, left)), left);
}

inline float dot(const float* x, const float* y, std::int64_t n) {
  float product;
  forward_direct<1, 1>(x, n, F32Rows{y, n}, 0, n, &product, 1, Assign{});
  return product;
}

inline constexpr MatmulKernels kMatmulKernels = {forward, forward_add, backward, outer_add,
                                                 widen,   axpy,        dot};

}  // namespace engine::ops::LAZYLORA_ISA
