#pragma once

#include <cstdint>

namespace engine::ops {

// The widest head that the kernels keep on their stack.
inline constexpr std::int64_t kKdaMaxWidth = 256;

// Consecutive tokens of one head, pointers to the first of them.
struct KdaHead {
  const float* q;  // rows of `width`, `stride` floats apart, as k, v and alpha
  const float* k;
  const float* v;
  const float* alpha;
  const float* beta;  // `beta_stride` floats apart
  std::int64_t width;
  std::int64_t padded;  // width rounded up to whole lanes: row length of states in scratch
  std::int64_t stride;
  std::int64_t beta_stride;
  std::int64_t tokens;
};

// Where its gradients go, in the layout of KdaHead.
struct KdaHeadGradients {
  float* q;
  float* k;
  float* v;
  float* g;
  float* beta;
};

// What runs along a head's tokens; formulas and orders in kda.h.
struct KdaKernels {
  // A whole document. The state is zero at its start, or `start` [D][D]; it is written to `saved`
  // (unless null) before every chunk-th token, `saved_stride` floats apart, and to `end` (unless
  // null; may be `start`) after the last.
  void (*forward)(const KdaHead& document, const float* start, std::int64_t chunk, float* saved,
                  std::int64_t saved_stride, float* end, float* o);
  // One chunk, from the state `start` [D][D] before it. gradient [D][padded] is dL/dS after the
  // chunk on entry, before it on return. scratch: (tokens D + tokens + 3) rows of `padded`.
  void (*backward)(const KdaHead& chunk, const float* start, const float* d_o, float* gradient,
                   float* scratch, const KdaHeadGradients& out);
  // One row of a head: g = bound sigmoid(exp(a_log) (z + dt_bias)), alpha = exp(g)
  void (*gate)(const float* z, const float* dt_bias, float a_log, float bound, float* g,
               float* alpha, std::int64_t n);
  void (*gate_backward)(const float* d_g, const float* z, const float* dt_bias, float a_log,
                        float bound, float* d_z, std::int64_t n);
};

}  // namespace engine::ops
