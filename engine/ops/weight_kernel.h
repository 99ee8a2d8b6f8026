#pragma once

// A weight's three forms, widened exactly, in registers or into a tile.
//
// The loops over template parameters in the kernels that use it carry `#pragma GCC unroll`: only
// unrolled completely do their arrays of Lanes stay in registers.

#include <cstdint>

#include "engine/base/lanes.h"
#include "engine/ops/weight.h"

namespace engine::ops::LAZYLORA_ISA {

using base::LAZYLORA_ISA::broadcast;
using base::LAZYLORA_ISA::kLanes;
using base::LAZYLORA_ISA::kRegisters;
using base::LAZYLORA_ISA::Lanes;
using base::LAZYLORA_ISA::load;
using base::LAZYLORA_ISA::Number;
using base::LAZYLORA_ISA::store;
using base::LAZYLORA_ISA::zero;

// The three forms of a weight: `load` widens kStep Lanes of a row, from a column that is a multiple
// of them; `tail` the last n < 16 columns (MXFP4 has none). Where kPaired, `load_paired` does so faster,
// into lanes in the order of `paired`.
// `at` is the address of a column's bytes, which prefetches want.
struct F32Rows {
  static constexpr int kStep = 1;
  static constexpr bool kPaired = false;
  const float* data;
  std::int64_t stride;
  void load(std::int64_t row, std::int64_t col, Lanes* w) const {
    w[0] = base::LAZYLORA_ISA::load(data + row * stride + col);
  }
  const void* at(std::int64_t row, std::int64_t col) const { return data + row * stride + col; }
  Lanes tail(std::int64_t row, std::int64_t col, int n) const {
    return base::LAZYLORA_ISA::load(data + row * stride + col, n);
  }
};

struct Bf16Rows {
  static constexpr int kStep = 1;
  static constexpr bool kPaired = false;
  const std::uint16_t* data;
  std::int64_t stride;
  void load(std::int64_t row, std::int64_t col, Lanes* w) const {
    w[0] = base::LAZYLORA_ISA::load_bf16(data + row * stride + col);
  }
  const void* at(std::int64_t row, std::int64_t col) const { return data + row * stride + col; }
  Lanes tail(std::int64_t row, std::int64_t col, int n) const {
    return base::LAZYLORA_ISA::load_bf16(data + row * stride + col, n);
  }
};

struct Mxfp4Rows {
  static constexpr int kStep = 2;
  static constexpr bool kPaired = true;
  const std::uint8_t* codes;
  const std::uint8_t* scales;
  std::int64_t cols;
  void load(std::int64_t row, std::int64_t col, Lanes* w) const {
    base::LAZYLORA_ISA::load_mxfp4(codes_at(row, col), products_at(row, col), w[0], w[1]);
  }
  void load_paired(std::int64_t row, std::int64_t col, Lanes* w) const {
    base::LAZYLORA_ISA::load_mxfp4_paired(codes_at(row, col), products_at(row, col), w[0], w[1]);
  }
  // Shifts, where a division of signed numbers would cost three more instructions a group.
  const std::uint8_t* codes_at(std::int64_t row, std::int64_t col) const {
    return codes + ((row * cols + col) >> 1);
  }
  const base::Mxfp4Products& products_at(std::int64_t row, std::int64_t col) const {
    return base::kMxfp4Products.of[scales[(row * cols + col) >> 5]];
  }
  const void* at(std::int64_t row, std::int64_t col) const { return codes_at(row, col); }
  Lanes tail(std::int64_t, std::int64_t, int) const { return zero(); }
};

// body(rows of w in its own form).
template <class Body>
inline void with_rows(const Weight& w, Body body) {
  switch (w.kind) {
    case WeightKind::kF32:
      return body(F32Rows{static_cast<const float*>(w.data), w.cols});
    case WeightKind::kBf16:
      return body(Bf16Rows{static_cast<const std::uint16_t*>(w.data), w.cols});
    case WeightKind::kMxfp4:
      return body(Mxfp4Rows{static_cast<const std::uint8_t*>(w.data), w.scale, w.cols});
  }
}

// `count` columns of one row from col on.
template <class Rows>
inline void widen_row(const Rows& w, std::int64_t row, std::int64_t col, std::int64_t count,
                      float* to) {
  constexpr int kStep = Rows::kStep;
  std::int64_t i = 0;
  for (; i + kStep * kLanes <= count; i += kStep * kLanes) {
    Lanes wide[kStep];
    w.load(row, col + i, wide);
    for (int s = 0; s < kStep; ++s) store(to + i + s * kLanes, wide[s]);
  }
  const int left = static_cast<int>(count - i);
  if (left > 0) store(to + i, w.tail(row, col + i, left), left);
}

// Asks for `count` columns of one row to come into the second-level cache.
template <class Rows>
inline void prefetch_row(const Rows& w, std::int64_t row, std::int64_t col, std::int64_t count) {
  constexpr std::int64_t kLine = 64;
  const auto* from = static_cast<const char*>(w.at(row, col));
  const auto* end = static_cast<const char*>(w.at(row, col + count));
  for (; from < end; from += kLine) __builtin_prefetch(from, 0, 2);
}

}  // namespace engine::ops::LAZYLORA_ISA
