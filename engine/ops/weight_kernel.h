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
// of them; `tail` the last n < 16 columns (MXFP4 has none).
// `at` is the address of a column's bytes, which prefetches want.
struct F32Rows {
  static constexpr int kStep = 1;
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
  const std::uint8_t* codes;
  const std::uint8_t* scales;
  std::int64_t cols;
  // Shifts, where a division of signed numbers would cost three more instructions a group.
  void load(std::int64_t row, std::int64_t col, Lanes* w) const {
    const auto& products = base::kMxfp4Products.of[scales[(row * cols + col) >> 5]];
    base::LAZYLORA_ISA::load_mxfp4(codes + ((row * cols + col) >> 1), products, w[0], w[1]);
  }
  const void* at(std::int64_t row, std::int64_t col) const {
    return codes + ((row * cols + col) >> 1);
  }
  Lanes tail(std::int64_t, std::int64_t, int) const { return zero(); }
};

// R rows side by side from `row` on, column by column, for weights that are used once: `load` widens kStep
// Lanes of row + r, and `next` goes on. Together the R rows are one piece of memory, and so are the next
// R, whose bytes are asked for in the order of memory meanwhile.
template <int R, class Rows>
class Walk {
 public:
  Walk(const Rows& w, std::int64_t row) : w_(w), row_(row) {}
  void load(int r, std::int64_t col, Lanes* to) const { w_.load(row_ + r, col, to); }
  void next(std::int64_t col) { __builtin_prefetch(w_.at(row_ + R, col * R)); }
  // The order of lanes that `load` loads into, and back.
  static Lanes ordered(Lanes a) { return a; }
  static Lanes natural(Lanes a) { return a; }

 private:
  Rows w_;
  std::int64_t row_;
};

// MXFP4 is decoded at the rate of instructions, so that those for addresses count: three rows from one
// pointer, as an address adds one or two strides for nothing.
template <int R>
class Walk<R, Mxfp4Rows> {
 public:
  Walk(const Mxfp4Rows& w, std::int64_t row)
      : code_stride_(w.cols >> 1), scale_stride_(w.cols >> 5) {
    for (int i = 0; i < kPointers; ++i) {
      codes_[i] = w.codes + (row + 3 * i) * code_stride_;
      scales_[i] = w.scales + (row + 3 * i) * scale_stride_;
    }
    ahead_ = w.codes + (row + R) * code_stride_;
  }
  void load(int r, std::int64_t, Lanes* to) const {
    const auto& products = base::kMxfp4Products.of[scales_[r / 3][r % 3 * scale_stride_]];
    base::LAZYLORA_ISA::load_mxfp4_paired(codes_[r / 3] + r % 3 * code_stride_, products, to[0],
                                          to[1]);
  }
  void next(std::int64_t) {
    constexpr int kLine = 64;
    for (int byte = 0; byte < kGroupBytes * R; byte += kLine) __builtin_prefetch(ahead_ + byte);
    ahead_ += kGroupBytes * R;
    for (int i = 0; i < kPointers; ++i) {
      codes_[i] += kGroupBytes;
      ++scales_[i];
    }
  }
  static Lanes ordered(Lanes a) { return base::LAZYLORA_ISA::paired(a); }
  static Lanes natural(Lanes a) { return base::LAZYLORA_ISA::unpaired(a); }

 private:
  static constexpr int kPointers = (R + 2) / 3;
  static constexpr int kGroupBytes = 16;
  std::int64_t code_stride_, scale_stride_;
  const std::uint8_t *codes_[kPointers], *scales_[kPointers], *ahead_;
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
