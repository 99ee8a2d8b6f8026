#include "engine/ops/matmul.h"

#include <cassert>

#include "engine/base/parallel.h"
#include "engine/ops/kernels.h"

namespace engine::ops {
namespace {

// Rows and columns that threads divide between them: whole blocks of the kernels, whole MXFP4
// groups.
constexpr std::int64_t kRowGrain = 48;
constexpr std::int64_t kColumnGrain = 64;

[[maybe_unused]] bool sizes_agree(std::span<const float> x, const Weight& w,
                                  std::span<const float> y, std::int64_t tokens) {
  return static_cast<std::int64_t>(x.size()) == tokens * w.cols &&
         static_cast<std::int64_t>(y.size()) == tokens * w.rows &&
         (w.kind != WeightKind::kMxfp4 || w.cols % 32 == 0);
}

}  // namespace

void matmul_forward(std::span<const float> x, const Weight& w, std::span<float> y,
                    std::int64_t tokens) noexcept {
  assert(sizes_agree(x, w, y, tokens));
  base::parallel_ranges(w.rows, kRowGrain, [&](std::int64_t begin, std::int64_t end) {
    kernels().matmul.forward(x.data(), w, y.data(), tokens, begin, end);
  });
}

void matmul_backward(std::span<const float> d_y, const Weight& w, std::span<float> d_x,
                     std::int64_t tokens) noexcept {
  assert(sizes_agree(d_x, w, d_y, tokens));
  base::parallel_ranges(w.cols, kColumnGrain, [&](std::int64_t begin, std::int64_t end) {
    kernels().matmul.backward(d_y.data(), w, d_x.data(), tokens, begin, end);
  });
}

}  // namespace engine::ops
