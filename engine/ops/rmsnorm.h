#pragma once

#include <cstdint>
#include <span>

namespace engine::ops {

// inv = 1 / sqrt(mean(x^2) + eps);  y = (w x) inv, for every row of x.
// eps stands inside the root, with the mean; compare l2norm below, where it joins the sum.
//
// Shape     x [N,W]   w [W]   y [N,W] (=)   inv [N] (=)
// Saves     inv
// Accuracy  sum of squares in double, inv rounded once to float32
// Order     sums as double_sum (engine/ops/double_sum.h), rows independent
void rmsnorm_forward(std::span<const float> x, std::span<const float> w, float eps,
                     std::span<float> y, std::span<float> inv) noexcept;

// d_x += w d_y inv - x inv^3 / W * <w d_y, x>
//
// Shape     d_y, x [N,W]   w [W]   inv [N]   d_x [N,W] (+=)
// Accuracy  all in double from inv as saved, d_x rounded once
void rmsnorm_backward(std::span<const float> d_y, std::span<const float> x,
                      std::span<const float> w, std::span<const float> inv,
                      std::span<float> d_x) noexcept;

// inv = 1 / sqrt(sum(x^2) + 1e-6);  y = scale x inv, for every row of `width`. The SUM, not the
// mean.
//
// Shape     x [N,W]   y [N,W] (=), may be x   inv [N] (=)
// Saves     inv
// Accuracy  as rmsnorm_forward
void l2norm_forward(std::span<const float> x, std::int64_t width, float scale, std::span<float> y,
                    std::span<float> inv) noexcept;

// d_x = scale (d_y inv - x inv^3 <d_y, x>)
//
// Shape     d_y, x [N,W]   inv [N]   d_x [N,W] (=), may be d_y
// Accuracy  as rmsnorm_backward
void l2norm_backward(std::span<const float> d_y, std::span<const float> x, std::int64_t width,
                     float scale, std::span<const float> inv, std::span<float> d_x) noexcept;

}  // namespace engine::ops
