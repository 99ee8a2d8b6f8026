#include "engine/ops/mla.h"

#include <algorithm>
#include <cassert>
#include <cmath>

#include "engine/base/parallel.h"
#include "engine/ops/kernels.h"

namespace engine::ops {
namespace {

// body(head, document, row scratch of the thread) for every pair, heads slowest so that threads
// share long and short documents alike; `row_size` floats of `rows` a thread.
template <class Body>
void for_head_and_document(std::int64_t heads, Documents documents, std::span<float> rows,
                           std::int64_t row_size, Body&& body) {
  const std::int64_t count = std::ssize(documents) - 1;
  const std::int64_t pairs = heads * count;
  const std::int64_t slots = std::min(std::ssize(rows) / row_size, pairs);
  assert(slots >= 1);
  base::parallel_for(slots, [&](std::int64_t slot) {
    for (std::int64_t i = pairs * slot / slots; i < pairs * (slot + 1) / slots; ++i) {
      body(i / count, i % count, rows.data() + slot * row_size);
    }
  });
}

// Head h from token t on.
MlaHead head_at(std::span<const float> kv, std::span<const float> kr, MlaShape shape,
                std::int64_t h, std::int64_t t) {
  const std::int64_t width = shape.nope + shape.value;
  // The scale counts the rope slot too; Dn^-1/2 is the tempting wrong version.
  const double key_width = static_cast<double>(shape.nope + shape.rope);
  return {.kv = kv.data() + (t * shape.heads + h) * width,
          .kr = kr.data() + t * shape.rope,
          .kv_stride = shape.heads * width,
          .nope = shape.nope,
          .rope = shape.rope,
          .value = shape.value,
          .scale = static_cast<float>(1.0 / std::sqrt(key_width))};
}

}  // namespace

std::int64_t mla_forward_scratch(std::int64_t tokens, MlaShape, int threads) noexcept {
  return threads * tokens;
}

std::int64_t mla_backward_scratch(std::int64_t tokens, MlaShape shape, int threads) noexcept {
  return shape.heads * tokens * shape.rope + threads * 2 * tokens;
}

void mla_forward(std::span<const float> q, std::span<const float> kv, std::span<const float> kr,
                 Documents documents, MlaShape shape, std::span<float> scratch,
                 std::span<float> o) noexcept {
  const std::int64_t tokens = documents.back();
  const std::int64_t query = shape.nope + shape.rope;
  const std::int64_t queries = std::ssize(q) / (shape.heads * query);
  const std::int64_t first = tokens - queries;  // Of the tokens that ask.
  assert(std::ssize(q) == queries * shape.heads * query && first >= 0);
  assert(std::ssize(kr) == tokens * shape.rope);
  assert(std::ssize(kv) == tokens * shape.heads * (shape.nope + shape.value));
  assert(std::ssize(o) == queries * shape.heads * shape.value);
  for_head_and_document(shape.heads, documents, scratch, tokens,
                        [&](std::int64_t h, std::int64_t d, float* row) {
                          const std::int64_t begin = documents[d];
                          const MlaHead head = head_at(kv, kr, shape, h, begin);
                          for (std::int64_t t = std::max(begin, first); t < documents[d + 1]; ++t) {
                            const std::int64_t at = (t - first) * shape.heads + h;
                            kernels().mla.forward(head, q.data() + at * query, t - begin + 1, row,
                                                  o.data() + at * shape.value);
                          }
                        });
}

void mla_backward(std::span<const float> d_o, std::span<const float> q, std::span<const float> kv,
                  std::span<const float> kr, Documents documents, MlaShape shape,
                  std::span<float> scratch, std::span<float> d_q, std::span<float> d_kv,
                  std::span<float> d_kr) noexcept {
  const std::int64_t tokens = documents.back();
  const std::int64_t query = shape.nope + shape.rope;
  const std::int64_t width = shape.nope + shape.value;
  assert(std::ssize(d_o) == tokens * shape.heads * shape.value &&
         std::ssize(d_kr) == tokens * shape.rope);
  assert(q.size() == d_q.size() && kv.size() == d_kv.size() && kr.size() == d_kr.size());
  const std::span<float> parts = scratch.first(shape.heads * tokens * shape.rope);  // [H,T,Dr]
  const std::span<float> rows = scratch.subspan(parts.size());
  for_head_and_document(
      shape.heads, documents, rows, 2 * tokens, [&](std::int64_t h, std::int64_t d, float* row) {
        const std::int64_t begin = documents[d];
        const std::int64_t end = documents[d + 1];
        const MlaHead head = head_at(kv, kr, shape, h, begin);
        float* part = parts.data() + (h * tokens + begin) * shape.rope;
        std::fill_n(part, (end - begin) * shape.rope, 0.0f);
        for (std::int64_t t = begin; t < end; ++t) {
          std::fill_n(d_kv.data() + (t * shape.heads + h) * width, width, 0.0f);
        }
        for (std::int64_t t = begin; t < end; ++t) {
          const std::int64_t at = t * shape.heads + h;
          kernels().mla.backward(head, q.data() + at * query, d_o.data() + at * shape.value,
                                 t - begin + 1, row, row + tokens, d_q.data() + at * query,
                                 d_kv.data() + (begin * shape.heads + h) * width, part);
        }
      });
  // All heads share kr: their parts meet here, after the parallel part, in ascending order.
  base::parallel_ranges(tokens * shape.rope, 16, [&](std::int64_t first, std::int64_t end) {
    std::fill(d_kr.begin() + first, d_kr.begin() + end, 0.0f);
    for (std::int64_t h = 0; h < shape.heads; ++h) {
      const float* part = parts.data() + h * tokens * shape.rope;
      for (std::int64_t i = first; i < end; ++i) d_kr[i] += part[i];
    }
  });
}

}  // namespace engine::ops
