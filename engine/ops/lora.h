#pragma once

#include <cstdint>
#include <span>

#include "engine/ops/documents.h"

namespace engine::ops {

// One adapter: delta(x) = scale * B (A x), scale = alpha / rank.   A [R,I]   B [O,R]
struct Lora {
  std::span<const float> a;
  std::span<const float> b;
  std::int64_t rank = 0;
  std::int64_t in = 0;
  std::int64_t out = 0;
  float scale = 0.0f;
};

// u = A x;  y += scale * (B u). With B = 0, y keeps its bits, a -0 of it included.
//
// Shape     x [T,I]   u [T,R] (=)   y [T,O] (+=)
// Saves     u
// Order     both products as matmul_forward; then y = fma(scale, product, y), left alone where the
//           product is 0
void lora_forward(const Lora& lora, std::span<const float> x, std::span<float> u,
                  std::span<float> y, std::int64_t tokens) noexcept;

// d_B += scale * d_y^T u,  d_u = scale * d_y B,  d_A += d_u^T x,  d_x += d_u A.
//
// Shape     d_y [T,O]   x [T,I]   u [T,R]   d_u [T,R] (=)   d_a [R,I] (+=)   d_b [O,R] (+=)
//           d_x [T,I] (+=) or empty
// Order     d_u and d_x as matmul_backward. d_a and d_b: for every document one fma chain over its
//           tokens from +0, the finished sum (times scale for d_b, one fma) added in document
//           order: so packed and separate runs agree bit for bit. One chain through all tokens
//           would not.
void lora_backward(const Lora& lora, Documents documents, std::span<const float> d_y,
                   std::span<const float> x, std::span<const float> u, std::span<float> d_u,
                   std::span<float> d_a, std::span<float> d_b, std::span<float> d_x) noexcept;

}  // namespace engine::ops
