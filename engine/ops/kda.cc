#include "engine/ops/kda.h"

#include <algorithm>
#include <cassert>

#include "engine/base/parallel.h"
#include "engine/ops/kernels.h"

namespace engine::ops {
namespace {

std::int64_t padded_width(KdaShape shape) { return (shape.width + 15) / 16 * 16; }

// Floats of scratch for one thread: dL/dS, and what KdaKernels::backward asks for one chunk.
std::int64_t backward_slot(KdaShape shape) {
  const std::int64_t rows = shape.width + kKdaChunk * shape.width + kKdaChunk + 3;
  return rows * padded_width(shape);
}

std::int64_t chunks_of(std::int64_t tokens) { return (tokens + kKdaChunk - 1) / kKdaChunk; }

// `tokens` tokens of head h from token t on.
KdaHead head_at(const KdaInputs& in, KdaShape shape, std::int64_t h, std::int64_t t,
                std::int64_t tokens) {
  const std::int64_t at = (t * shape.heads + h) * shape.width;
  return {.q = in.q.data() + at,
          .k = in.k.data() + at,
          .v = in.v.data() + at,
          .alpha = in.alpha.data() + at,
          .beta = in.beta.data() + t * shape.heads + h,
          .width = shape.width,
          .padded = padded_width(shape),
          .stride = shape.heads * shape.width,
          .beta_stride = shape.heads,
          .tokens = tokens};
}

}  // namespace

std::int64_t kda_chunks(Documents documents) noexcept {
  std::int64_t chunks = 0;
  for (std::size_t d = 1; d < documents.size(); ++d) {
    chunks += chunks_of(documents[d] - documents[d - 1]);
  }
  return chunks;
}

void kda_gate_forward(std::span<const float> z, std::span<const float> a_log,
                      std::span<const float> dt_bias, float bound, KdaShape shape,
                      std::span<float> g, std::span<float> alpha) noexcept {
  assert(std::ssize(a_log) >= shape.heads && std::ssize(dt_bias) == shape.heads * shape.width);
  assert(z.size() == g.size() && z.size() == alpha.size() &&
         std::ssize(z) % std::ssize(dt_bias) == 0);
  base::parallel_for(std::ssize(z) / shape.width, [&](std::int64_t row) {
    const std::int64_t h = row % shape.heads;
    const std::int64_t at = row * shape.width;
    kernels().kda.gate(z.data() + at, dt_bias.data() + h * shape.width, a_log[h], bound,
                       g.data() + at, alpha.data() + at, shape.width);
  });
}

void kda_gate_backward(std::span<const float> d_g, std::span<const float> z,
                       std::span<const float> a_log, std::span<const float> dt_bias, float bound,
                       KdaShape shape, std::span<float> d_z) noexcept {
  assert(std::ssize(a_log) >= shape.heads && std::ssize(dt_bias) == shape.heads * shape.width);
  assert(z.size() == d_g.size() && z.size() == d_z.size() &&
         std::ssize(z) % std::ssize(dt_bias) == 0);
  base::parallel_for(std::ssize(z) / shape.width, [&](std::int64_t row) {
    const std::int64_t h = row % shape.heads;
    const std::int64_t at = row * shape.width;
    kernels().kda.gate_backward(d_g.data() + at, z.data() + at, dt_bias.data() + h * shape.width,
                                a_log[h], bound, d_z.data() + at, shape.width);
  });
}

void kda_forward(const KdaInputs& in, Documents documents, KdaShape shape, std::span<float> state,
                 std::span<float> saved, std::span<float> o) noexcept {
  const std::int64_t state_size = shape.width * shape.width;
  assert(shape.width >= 1 && shape.width <= kKdaMaxWidth);
  assert(std::ssize(o) == documents.back() * shape.heads * shape.width);
  assert(state.empty() || std::ssize(state) == shape.heads * state_size);
  assert(saved.empty() || std::ssize(saved) == kda_chunks(documents) * shape.heads * state_size);
  const std::size_t last = documents.size() - 2;
  // A head walks all documents itself: the first reads `state`, which the last overwrites.
  base::parallel_for(shape.heads, [&](std::int64_t h) {
    float* carried = state.empty() ? nullptr : state.data() + h * state_size;
    std::int64_t chunk = 0;
    for (std::size_t d = 0; d <= last; ++d) {
      const std::int64_t begin = documents[d];
      const std::int64_t tokens = documents[d + 1] - begin;
      float* borders =
          saved.empty() ? nullptr : saved.data() + (chunk * shape.heads + h) * state_size;
      kernels().kda.forward(head_at(in, shape, h, begin, tokens), d == 0 ? carried : nullptr,
                            kKdaChunk, borders, shape.heads * state_size,
                            d == last ? carried : nullptr,
                            o.data() + (begin * shape.heads + h) * shape.width);
      chunk += chunks_of(tokens);
    }
  });
}

std::int64_t kda_backward_scratch(KdaShape shape, int threads) noexcept {
  return backward_slot(shape) * std::min<std::int64_t>(threads, shape.heads);
}

void kda_backward(const KdaInputs& in, std::span<const float> saved, Documents documents,
                  KdaShape shape, std::span<const float> d_o, std::span<float> d_state,
                  std::span<float> scratch, const KdaGradients& out) noexcept {
  const std::int64_t width = shape.width;
  const std::int64_t padded = padded_width(shape);
  const std::int64_t state_size = width * width;
  const std::int64_t slot_size = backward_slot(shape);
  const std::int64_t slots = std::min(std::ssize(scratch) / slot_size, shape.heads);
  assert(width >= 1 && width <= kKdaMaxWidth && slots >= 1);
  assert(std::ssize(d_o) == documents.back() * shape.heads * width);
  assert(std::ssize(saved) == kda_chunks(documents) * shape.heads * state_size);
  assert(d_state.empty() || std::ssize(d_state) == shape.heads * state_size);

  const auto head_backward = [&](std::int64_t h, float* gradient) {
    float* carried = d_state.empty() ? nullptr : d_state.data() + h * state_size;
    std::int64_t chunk = kda_chunks(documents);
    for (std::size_t d = documents.size() - 1; d-- > 0;) {
      const std::int64_t begin = documents[d];
      const std::int64_t end = documents[d + 1];
      std::fill_n(gradient, width * padded, 0.0f);
      if (carried != nullptr && d + 2 == documents.size()) {
        for (std::int64_t i = 0; i < width; ++i) {
          std::copy_n(carried + i * width, width, gradient + i * padded);
        }
      }
      for (std::int64_t c = chunks_of(end - begin); c-- > 0;) {
        const std::int64_t t = begin + c * kKdaChunk;
        const std::int64_t at = (t * shape.heads + h) * width;
        const KdaHeadGradients to{.q = out.d_q.data() + at,
                                  .k = out.d_k.data() + at,
                                  .v = out.d_v.data() + at,
                                  .g = out.d_g.data() + at,
                                  .beta = out.d_beta.data() + t * shape.heads + h};
        --chunk;
        kernels().kda.backward(head_at(in, shape, h, t, std::min(kKdaChunk, end - t)),
                               saved.data() + (chunk * shape.heads + h) * state_size,
                               d_o.data() + at, gradient, gradient + width * padded, to);
      }
    }
    if (carried != nullptr) {
      for (std::int64_t i = 0; i < width; ++i) {
        std::copy_n(gradient + i * padded, width, carried + i * width);
      }
    }
  };
  base::parallel_for(slots, [&](std::int64_t slot) {
    for (std::int64_t h = shape.heads * slot / slots; h < shape.heads * (slot + 1) / slots; ++h) {
      head_backward(h, scratch.data() + slot * slot_size);
    }
  });
}

}  // namespace engine::ops
