#pragma once

#include <cstdint>

namespace engine::ops {

// Elementwise inner loops with transcendental functions (engine/base/lane_math.h), n elements each.
struct ElementwiseKernels {
  void (*exp)(const float* x, float* y, std::int64_t n);
  void (*sigmoid)(const float* x, float* y, std::int64_t n);
  void (*silu)(const float* x, float* y, std::int64_t n);
  // d_x = d_y * silu'(x)
  void (*silu_backward)(const float* d_y, const float* x, float* d_x, std::int64_t n);
  void (*gate)(const float* x, const float* gate, float* y, std::int64_t n);
  void (*gate_backward)(const float* d_y, const float* x, const float* gate, float* d_x,
                        float* d_gate, std::int64_t n);
  void (*situ_glu)(const float* a, const float* u, float beta1, float beta2, float* out,
                   std::int64_t n);
  void (*situ_glu_backward)(const float* d_out, const float* a, const float* u, float beta1,
                            float beta2, float* d_a, float* d_u, std::int64_t n);
};

}  // namespace engine::ops
