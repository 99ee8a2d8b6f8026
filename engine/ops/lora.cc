#include "engine/ops/lora.h"

#include <algorithm>
#include <cassert>

#include "engine/base/parallel.h"
#include "engine/ops/kernels.h"
#include "engine/ops/matmul.h"

namespace engine::ops {
namespace {

constexpr std::int64_t kGrain = 64;

Weight a_of(const Lora& lora) {
  return {WeightKind::kF32, lora.a.data(), nullptr, lora.rank, lora.in};
}
Weight b_of(const Lora& lora) {
  return {WeightKind::kF32, lora.b.data(), nullptr, lora.out, lora.rank};
}

[[maybe_unused]] bool holds(std::size_t size, std::int64_t rows, std::int64_t cols) {
  return static_cast<std::int64_t>(size) == rows * cols;
}

// c[m][n] += scale * sum_t a[t][m] b[t][n], a document at a time.
//
// Shape     a [T,rows]   b [T,cols]   c [rows,cols], the block [m0,m1) x [n0,n1) of it
void add_gradient(float scale, const float* a, std::int64_t rows, const float* b, std::int64_t cols,
                  Documents documents, float* c, std::int64_t m0, std::int64_t m1, std::int64_t n0,
                  std::int64_t n1) {
  for (std::size_t d = 0; d + 1 < documents.size(); ++d) {
    const std::int64_t first = documents[d];
    kernels().matmul.outer_add(scale, a + first * rows + m0, rows, b + first * cols + n0, cols,
                               c + m0 * cols + n0, cols, documents[d + 1] - first, m1 - m0,
                               n1 - n0);
  }
}

}  // namespace

void lora_forward(const Lora& lora, std::span<const float> x, std::span<float> u,
                  std::span<float> y, std::int64_t tokens) noexcept {
  assert(holds(lora.a.size(), lora.rank, lora.in) && holds(lora.b.size(), lora.out, lora.rank));
  assert(holds(x.size(), tokens, lora.in) && holds(u.size(), tokens, lora.rank) &&
         holds(y.size(), tokens, lora.out));
  matmul_forward(x, a_of(lora), u, tokens);
  base::parallel_ranges(lora.out, kGrain, [&](std::int64_t begin, std::int64_t end) {
    kernels().matmul.forward_add(lora.scale, u.data(), b_of(lora), y.data(), tokens, begin, end);
  });
}

void lora_backward(const Lora& lora, Documents documents, std::span<const float> d_y,
                   std::span<const float> x, std::span<const float> u, std::span<float> d_u,
                   std::span<float> d_a, std::span<float> d_b, std::span<float> d_x) noexcept {
  const std::int64_t tokens = documents.back();
  assert(holds(d_y.size(), tokens, lora.out) && holds(x.size(), tokens, lora.in));
  assert(holds(u.size(), tokens, lora.rank) && holds(d_u.size(), tokens, lora.rank));
  assert(d_a.size() == lora.a.size() && d_b.size() == lora.b.size());

  base::parallel_ranges(lora.out, kGrain, [&](std::int64_t begin, std::int64_t end) {
    add_gradient(lora.scale, d_y.data(), lora.out, u.data(), lora.rank, documents, d_b.data(),
                 begin, end, 0, lora.rank);
  });

  std::fill(d_u.begin(), d_u.end(), 0.0f);
  matmul_backward(d_y, b_of(lora), d_u, tokens);
  base::parallel_for(tokens * lora.rank,
                     [&](std::int64_t i) { d_u[static_cast<std::size_t>(i)] *= lora.scale; });

  base::parallel_ranges(lora.in, kGrain, [&](std::int64_t begin, std::int64_t end) {
    add_gradient(1.0f, d_u.data(), lora.rank, x.data(), lora.in, documents, d_a.data(), 0,
                 lora.rank, begin, end);
  });
  if (!d_x.empty()) matmul_backward(d_u, a_of(lora), d_x, tokens);
}

}  // namespace engine::ops
