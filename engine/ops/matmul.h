#pragma once

#include <cstdint>
#include <span>

#include "engine/ops/weight.h"

namespace engine::ops {

// y[t][o] = sum_i x[t][i] W[o][i]
//
// Shape     x [T,I]   W [O,I]   y [T,O] (=)
// Accuracy  float32; weights widened exactly
// Order     16 partial sums from +0, column i to sum i mod 16, sequential fma in ascending i, then
//           the tree (r,r+8),(r,r+4),(r,r+2),(r,r+1); the same for every T, thread count and
//           instruction set
void matmul_forward(std::span<const float> x, const Weight& w, std::span<float> y,
                    std::int64_t tokens) noexcept;

// d_x[t][i] += sum_o d_y[t][o] W[o][i]
//
// Shape     d_y [T,O]   W [O,I]   d_x [T,I] (+=)
// Order     one fma chain for every (t, i), ascending o, starting from what d_x holds: cutting W
//           into row bands and calling once a band gives the same bits
void matmul_backward(std::span<const float> d_y, const Weight& w, std::span<float> d_x,
                     std::int64_t tokens) noexcept;

}  // namespace engine::ops
