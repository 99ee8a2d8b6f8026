#include "engine/ops/short_conv.h"

#include <algorithm>
#include <cassert>

#include "engine/base/parallel.h"
#include "engine/ops/kernels.h"

namespace engine::ops {
namespace {

// Channels that a thread takes at once: whole cache lines.
constexpr std::int64_t kGrain = 64;

// Rows of P floats; row(t) may lie in a history that ends where the rows begin.
struct Rows {
  const float* x;
  std::int64_t width;
  const float* history = nullptr;
  std::int64_t before = 0;  // rows of history

  // Null where there is nothing: such a tap contributes zero.
  const float* row(std::int64_t t) const {
    if (t >= 0) return x + t * width;
    return t + before >= 0 && history != nullptr ? history + (t + before) * width : nullptr;
  }
};

// z[c] = sum_j w[c][j] row(t-(K-1)+j)[c], j ascending, for c in [begin, end).
void convolve(const Rows& in, std::int64_t t, std::span<const float> w, std::int64_t taps,
              std::int64_t begin, std::int64_t end, float* z) {
  std::fill(z + begin, z + end, 0.0f);
  for (std::int64_t j = 0; j < taps; ++j) {
    const float* x = in.row(t - (taps - 1) + j);
    if (x == nullptr) continue;
    for (std::int64_t c = begin; c < end; ++c) z[c] += w[c * taps + j] * x[c];
  }
}

}  // namespace

void short_conv_forward(std::span<const float> x, std::span<const float> w, Documents documents,
                        std::span<float> history, std::span<float> y) noexcept {
  const std::int64_t tokens = documents.back();
  const std::int64_t width = std::ssize(x) / tokens;
  const std::int64_t taps = std::ssize(w) / width;
  const std::int64_t before = taps - 1;
  assert(std::ssize(x) == tokens * width && x.size() == y.size());
  assert(std::ssize(w) == width * taps);
  assert(history.empty() || std::ssize(history) == before * width);
  base::parallel_ranges(width, kGrain, [&](std::int64_t begin, std::int64_t end) {
    Rows rows{.x = nullptr, .width = width};
    for (std::size_t d = 0; d + 1 < documents.size(); ++d) {
      rows.x = x.data() + documents[d] * width;
      rows.history = d == 0 && !history.empty() ? history.data() : nullptr;
      rows.before = before;
      for (std::int64_t t = 0; t < documents[d + 1] - documents[d]; ++t) {
        float* z = y.data() + (documents[d] + t) * width;
        convolve(rows, t, w, taps, begin, end, z);
        kernels().elementwise.silu(z + begin, z + begin, end - begin);
      }
    }
    if (history.empty()) return;
    // Ascending, so that a row of history is read before it is overwritten.
    const std::int64_t last = tokens - documents[documents.size() - 2];
    for (std::int64_t j = 0; j < before; ++j) {
      float* to = history.data() + j * width;
      const float* from = rows.row(last - before + j);
      if (from == nullptr) {
        std::fill(to + begin, to + end, 0.0f);
      } else {
        std::copy(from + begin, from + end, to + begin);
      }
    }
  });
}

void short_conv_backward(std::span<const float> d_y, std::span<const float> x,
                         std::span<const float> w, Documents documents,
                         std::span<float> d_x) noexcept {
  const std::int64_t tokens = documents.back();
  const std::int64_t width = std::ssize(x) / tokens;
  const std::int64_t taps = std::ssize(w) / width;
  assert(x.size() == d_y.size() && x.size() == d_x.size());
  base::parallel_ranges(width, kGrain, [&](std::int64_t begin, std::int64_t end) {
    for (std::size_t d = 0; d + 1 < documents.size(); ++d) {
      const std::int64_t first = documents[d] * width;
      const std::int64_t count = documents[d + 1] - documents[d];
      const Rows rows{.x = x.data() + first, .width = width};
      // d_x holds dL/dz at first ...
      for (std::int64_t t = 0; t < count; ++t) {
        float* z = d_x.data() + first + t * width;
        convolve(rows, t, w, taps, begin, end, z);
        kernels().elementwise.silu_backward(d_y.data() + first + t * width + begin, z + begin,
                                            z + begin, end - begin);
      }
      // ... then, ascending, each row is replaced by the sum of itself and rows not yet replaced.
      for (std::int64_t t = 0; t < count; ++t) {
        float* to = d_x.data() + first + t * width;
        for (std::int64_t c = begin; c < end; ++c) to[c] *= w[c * taps + taps - 1];
        for (std::int64_t ahead = 1; ahead < std::min(taps, count - t); ++ahead) {
          const float* d_z = to + ahead * width;
          for (std::int64_t c = begin; c < end; ++c)
            to[c] += w[c * taps + taps - 1 - ahead] * d_z[c];
        }
      }
    }
  });
}

}  // namespace engine::ops
