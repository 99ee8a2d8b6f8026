#include "engine/ops/rmsnorm.h"

#include <cassert>
#include <cmath>

#include "engine/base/parallel.h"
#include "engine/ops/double_sum.h"

namespace engine::ops {
namespace {

constexpr double kL2Epsilon = 1e-6;

}  // namespace

void rmsnorm_forward(std::span<const float> x, std::span<const float> w, float eps,
                     std::span<float> y, std::span<float> inv) noexcept {
  const auto width = static_cast<std::int64_t>(w.size());
  const auto rows = static_cast<std::int64_t>(inv.size());
  assert(x.size() == w.size() * inv.size() && y.size() == x.size());
  base::parallel_for(rows, [&](std::int64_t n) {
    const float* row = x.data() + n * width;
    float* out = y.data() + n * width;
    const double mean = double_dot(row, row, width) / static_cast<double>(width);
    const auto scale = static_cast<float>(1.0 / std::sqrt(mean + static_cast<double>(eps)));
    inv[n] = scale;
    for (std::int64_t i = 0; i < width; ++i) out[i] = (w[i] * row[i]) * scale;
  });
}

void rmsnorm_backward(std::span<const float> d_y, std::span<const float> x,
                      std::span<const float> w, std::span<const float> inv,
                      std::span<float> d_x) noexcept {
  const auto width = static_cast<std::int64_t>(w.size());
  const auto rows = static_cast<std::int64_t>(inv.size());
  assert(x.size() == w.size() * inv.size() && d_y.size() == x.size() && d_x.size() == x.size());
  base::parallel_for(rows, [&](std::int64_t n) {
    const float* g = d_y.data() + n * width;
    const float* row = x.data() + n * width;
    float* out = d_x.data() + n * width;
    const auto direct = [&](std::int64_t i) { return static_cast<double>(w[i]) * g[i]; };
    const double scale = inv[n];
    const double along = double_sum(width, [&](std::int64_t i) { return direct(i) * row[i]; });
    const double projection = scale * scale * scale / static_cast<double>(width) * along;
    for (std::int64_t i = 0; i < width; ++i) {
      out[i] = static_cast<float>(out[i] + (direct(i) * scale - row[i] * projection));
    }
  });
}

void l2norm_forward(std::span<const float> x, std::int64_t width, float scale, std::span<float> y,
                    std::span<float> inv) noexcept {
  const auto rows = static_cast<std::int64_t>(inv.size());
  assert(static_cast<std::int64_t>(x.size()) == rows * width && y.size() == x.size());
  base::parallel_for(rows, [&](std::int64_t n) {
    const float* row = x.data() + n * width;
    float* out = y.data() + n * width;
    const double sum = double_dot(row, row, width);
    const auto factor = static_cast<float>(1.0 / std::sqrt(sum + kL2Epsilon));
    inv[n] = factor;
    for (std::int64_t i = 0; i < width; ++i) out[i] = (row[i] * factor) * scale;
  });
}

void l2norm_backward(std::span<const float> d_y, std::span<const float> x, std::int64_t width,
                     float scale, std::span<const float> inv, std::span<float> d_x) noexcept {
  const auto rows = static_cast<std::int64_t>(inv.size());
  assert(static_cast<std::int64_t>(x.size()) == rows * width && d_y.size() == x.size() &&
         d_x.size() == x.size());
  base::parallel_for(rows, [&](std::int64_t n) {
    const float* g = d_y.data() + n * width;
    const float* row = x.data() + n * width;
    float* out = d_x.data() + n * width;
    const double factor = inv[n];
    const double projection = factor * factor * factor * double_dot(g, row, width);
    for (std::int64_t i = 0; i < width; ++i) {
      out[i] = static_cast<float>(scale * (g[i] * factor - row[i] * projection));
    }
  });
}

}  // namespace engine::ops
