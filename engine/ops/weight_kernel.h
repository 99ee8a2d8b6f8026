#pragma once

// A weight's three forms, widened exactly, in registers or into a tile.
//
// The loops over template parameters in the kernels that use it carry `#pragma GCC unroll`: only
// unrolled completely do their arrays of Lanes stay in registers.

#include <cstdint>

#include "engine/base/lane_mxfp4.h"
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

// The three forms of a weight: `load` widens kStep Lanes of a row, kStepBytes of memory, from a column
// that is a multiple of them; `tail` the last n < 16 columns (MXFP4 has none).
// `at` is the address of a column's bytes, which prefetches want.
struct F32Rows {
  static constexpr int kStep = 1, kStepBytes = 64;
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
  static constexpr int kStep = 1, kStepBytes = 32;
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
  static constexpr int kStep = 2, kStepBytes = 16;
  const std::uint8_t* codes;
  const std::uint8_t* scales;
  std::int64_t cols;
  // Shifts, where a division of signed numbers would cost three more instructions a group.
  const base::Mxfp4Products& products(std::int64_t row, std::int64_t col) const {
    return base::kMxfp4Products.of[scales[(row * cols + col) >> 5]];
  }
  const std::uint8_t* codes_of(std::int64_t row, std::int64_t col) const {
    return codes + ((row * cols + col) >> 1);
  }
  void load(std::int64_t row, std::int64_t col, Lanes* w) const {
    base::LAZYLORA_ISA::load_mxfp4(codes_of(row, col), products(row, col), w[0], w[1]);
  }
  void load_as_decoded(std::int64_t row, std::int64_t col, Lanes* w) const {
    base::LAZYLORA_ISA::load_mxfp4_as_decoded(codes_of(row, col), products(row, col), w[0], w[1]);
  }
  const void* at(std::int64_t row, std::int64_t col) const { return codes_of(row, col); }
  Lanes tail(std::int64_t, std::int64_t, int) const { return zero(); }
};

// Whether a form can be loaded in an order of lanes of its own, which costs less.
template <class Rows>
inline constexpr bool kReorders = false;
template <>
inline constexpr bool kReorders<Mxfp4Rows> = true;

// Loads in that order, brings other Lanes into it, and back; a form without one is loaded as it is.
template <class Rows>
inline void load_as_decoded(const Rows& w, std::int64_t row, std::int64_t col, Lanes* to) {
  if constexpr (kReorders<Rows>) {
    w.load_as_decoded(row, col, to);
  } else {
    w.load(row, col, to);
  }
}
template <class Rows>
inline Lanes as_decoded(Lanes a) {
  return kReorders<Rows> ? base::LAZYLORA_ISA::as_decoded(a) : a;
}
template <class Rows>
inline Lanes in_order(Lanes a) {
  return kReorders<Rows> ? base::LAZYLORA_ISA::in_order(a) : a;
}

// What a prefetch brings in.
inline constexpr std::int64_t kLine = 64;

// Asks for the bytes of W from a row on, in the order of memory, kBytes a step.
template <std::int64_t kBytes>
class Ahead {
 public:
  explicit Ahead(const void* from) : at_(static_cast<const char*>(from)) {}
  void step() {
#pragma GCC unroll 8
    for (std::int64_t byte = 0; byte < kBytes; byte += kLine) __builtin_prefetch(at_ + byte);
    at_ += kBytes;
  }

 private:
  const char* at_;
};

// R rows side by side from `row` on, column by column, for weights that are used once: `load` widens kStep
// Lanes of row + r as decoded, and `next` goes on. Together the R rows are one piece of memory, and so are
// the next R, whose bytes are asked for meanwhile.
template <int R, class Rows>
class Walk {
 public:
  Walk(const Rows& w, std::int64_t row) : w_(w), row_(row), ahead_(w.at(row + R, 0)) {}
  void load(int r, std::int64_t col, Lanes* to) const { load_as_decoded(w_, row_ + r, col, to); }
  void next() { ahead_.step(); }

 private:
  Rows w_;
  std::int64_t row_;
  Ahead<R * Rows::kStepBytes> ahead_;
};

// MXFP4 is decoded at the rate of instructions, so that those for addresses count: three rows from one
// pointer, as an address adds one or two strides for nothing. The next rows' scales are asked for at once:
// they are few, and one that is waited for holds up all rows.
template <int R>
class Walk<R, Mxfp4Rows> {
 public:
  Walk(const Mxfp4Rows& w, std::int64_t row)
      : code_stride_(w.cols >> 1), scale_stride_(w.cols >> 5), ahead_(w.at(row + R, 0)) {
#pragma GCC unroll 8
    for (int i = 0; i < kPointers; ++i) {
      codes_[i] = w.codes + (row + 3 * i) * code_stride_;
      scales_[i] = w.scales + (row + 3 * i) * scale_stride_;
    }
    const std::uint8_t* scales_ahead = w.scales + (row + R) * scale_stride_;
    for (std::int64_t byte = 0; byte < R * scale_stride_; byte += kLine) {
      __builtin_prefetch(scales_ahead + byte);
    }
  }
  void load(int r, std::int64_t, Lanes* to) const {
    const auto& products = base::kMxfp4Products.of[scales_[r / 3][r % 3 * scale_stride_]];
    base::LAZYLORA_ISA::load_mxfp4_as_decoded(codes_[r / 3] + r % 3 * code_stride_, products, to[0],
                                              to[1]);
  }
  void next() {
    ahead_.step();
#pragma GCC unroll 8
    for (int i = 0; i < kPointers; ++i) {
      codes_[i] += Mxfp4Rows::kStepBytes;
      ++scales_[i];
    }
  }

 private:
  static constexpr int kPointers = (R + 2) / 3;
  std::int64_t code_stride_, scale_stride_;
  const std::uint8_t *codes_[kPointers], *scales_[kPointers];
  Ahead<R * Mxfp4Rows::kStepBytes> ahead_;
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
  const auto* from = static_cast<const char*>(w.at(row, col));
  const auto* end = static_cast<const char*>(w.at(row, col + count));
  for (; from < end; from += kLine) __builtin_prefetch(from, 0, 2);
}

}  // namespace engine::ops::LAZYLORA_ISA
