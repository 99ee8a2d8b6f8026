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

// Numbers as they are stored, widened: sixteen, or the first n of them.
inline Lanes load_stored(const float* p) { return load(p); }
inline Lanes load_stored(const float* p, int n) { return load(p, n); }
inline Lanes load_stored(const std::uint16_t* p) { return base::LAZYLORA_ISA::load_bf16(p); }
inline Lanes load_stored(const std::uint16_t* p, int n) {
  return base::LAZYLORA_ISA::load_bf16(p, n);
}

// The three forms of a weight: `load` widens kStep Lanes of a row, kStepBytes of memory, from a column
// that is a multiple of them; `tail` the last n < 16 columns (MXFP4 has none). `at` and `scale_at` are the
// addresses of a column's bytes and scale, and `widen` reads from there, in the order of lanes that costs
// least to decode; the next row lies row_bytes and row_scales further on.
template <class Stored>
struct PlainRows {
  static constexpr int kStep = 1, kStepBytes = kLanes * sizeof(Stored), kStepScales = 0;
  const Stored* data;
  std::int64_t stride;
  static void widen(const std::uint8_t* bytes, const std::uint8_t*, Lanes* w) {
    w[0] = load_stored(reinterpret_cast<const Stored*>(bytes));
  }
  void load(std::int64_t row, std::int64_t col, Lanes* w) const { widen(at(row, col), nullptr, w); }
  const std::uint8_t* at(std::int64_t row, std::int64_t col) const {
    return reinterpret_cast<const std::uint8_t*>(data + row * stride + col);
  }
  const std::uint8_t* scale_at(std::int64_t, std::int64_t) const { return nullptr; }
  std::int64_t row_bytes() const { return stride * static_cast<std::int64_t>(sizeof(Stored)); }
  std::int64_t row_scales() const { return 0; }
  Lanes tail(std::int64_t row, std::int64_t col, int n) const {
    return load_stored(data + row * stride + col, n);
  }
};
using F32Rows = PlainRows<float>;
using Bf16Rows = PlainRows<std::uint16_t>;

struct Mxfp4Rows {
  static constexpr int kStep = 2, kStepBytes = 16, kStepScales = 1;
  const std::uint8_t* codes;
  const std::uint8_t* scales;
  std::int64_t cols;
  static const base::Mxfp4Products& products(const std::uint8_t* scale) {
    return base::kMxfp4Products.of[*scale];
  }
  static void widen(const std::uint8_t* bytes, const std::uint8_t* scale, Lanes* w) {
    base::LAZYLORA_ISA::load_mxfp4_as_decoded(bytes, products(scale), w[0], w[1]);
  }
  void load(std::int64_t row, std::int64_t col, Lanes* w) const {
    base::LAZYLORA_ISA::load_mxfp4(at(row, col), products(scale_at(row, col)), w[0], w[1]);
  }
  // Shifts, where a division of signed numbers would cost three more instructions a group.
  const std::uint8_t* at(std::int64_t row, std::int64_t col) const {
    return codes + ((row * cols + col) >> 1);
  }
  const std::uint8_t* scale_at(std::int64_t row, std::int64_t col) const {
    return scales + ((row * cols + col) >> 5);
  }
  std::int64_t row_bytes() const { return cols >> 1; }
  std::int64_t row_scales() const { return cols >> 5; }
  Lanes tail(std::int64_t, std::int64_t, int) const { return zero(); }
};

// Whether a form has an order of lanes of its own, which costs less.
template <class Rows>
inline constexpr bool kReorders = false;
template <>
inline constexpr bool kReorders<Mxfp4Rows> = true;

// Loads in that order, brings other Lanes into it, and back; a form without one is loaded as it is.
template <class Rows>
inline void load_as_decoded(const Rows& w, std::int64_t row, std::int64_t col, Lanes* to) {
  Rows::widen(w.at(row, col), w.scale_at(row, col), to);
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

// Addresses in R rows side by side: three rows from one pointer, as an address adds one or two strides for
// nothing.
template <int R>
class Side {
 public:
  Side(const std::uint8_t* from, std::int64_t stride) : stride_(stride) {
#pragma GCC unroll 8
    for (int i = 0; i < kPointers; ++i) from_[i] = from + 3 * i * stride;
  }
  const std::uint8_t* of(int r) const { return from_[r / 3] + r % 3 * stride_; }
  void advance(std::int64_t bytes) {
#pragma GCC unroll 8
    for (int i = 0; i < kPointers; ++i) from_[i] += bytes;
  }

 private:
  static constexpr int kPointers = (R + 2) / 3;
  std::int64_t stride_;
  const std::uint8_t* from_[kPointers];
};

// R rows side by side from `row` on, for weights that are used once. What comes next is asked for meanwhile,
// scales at once: they are few, and one that is waited for holds up all rows.
template <int R, class Rows>
class Walk {
  // Many rows ask a line at a time for what they will read themselves, and at their end for their own part of
  // the next R rows: together for as much as a core should have under way, which is memory's latency times
  // its rate. Memory delivers faster so, by a tenth to a fifth, but few rows do better to ask for the next R
  // rows from the first byte to the last.
  static constexpr bool kManyRows = R >= 6;
  static constexpr std::int64_t kUnderWay = 6144;
  static constexpr std::int64_t kAhead = kUnderWay / R / kLine * kLine;
  static constexpr std::int64_t kTurn = kManyRows ? kLine : Rows::kStepBytes;  // bytes of a row

 public:
  static constexpr int kSteps = kTurn / Rows::kStepBytes;  // of a turn

  Walk(const Rows& w, std::int64_t row)
      : bytes_(w.at(row, 0), w.row_bytes()),
        scales_(w.scale_at(row, 0), w.row_scales()),
        next_rows_(w.at(row + R, 0)),
        left_(w.row_bytes()),
        skip_((R - 1) * w.row_bytes()) {
    const std::uint8_t* scales_ahead = w.scale_at(row + R, 0);
    for (std::int64_t byte = 0; byte < R * w.row_scales(); byte += kLine) {
      __builtin_prefetch(scales_ahead + byte);
    }
  }
  // Step `step` of the turn in row + r, as decoded.
  void load(int r, int step, Lanes* to) const {
    Rows::widen(bytes_.of(r) + step * Rows::kStepBytes, scales_.of(r) + step * Rows::kStepScales,
                to);
  }
  // On to the next turn. (What only asked would have no effect that a compiler sees, and would go.)
  void next() {
    if constexpr (kManyRows) {
      const std::int64_t ahead = left_ > kAhead ? kAhead : kAhead + skip_;
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) __builtin_prefetch(bytes_.of(r) + ahead);
    } else {
#pragma GCC unroll 8
      for (std::int64_t byte = 0; byte < R * kTurn; byte += kLine) {
        __builtin_prefetch(next_rows_ + byte);
      }
    }
    next_rows_ += R * kTurn;
    left_ -= kTurn;
    bytes_.advance(kTurn);
    scales_.advance(kSteps * Rows::kStepScales);
  }

 private:
  Side<R> bytes_, scales_;
  const std::uint8_t* next_rows_;
  std::int64_t left_, skip_;
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
  const std::uint8_t* from = w.at(row, col);
  const std::uint8_t* end = w.at(row, col + count);
  for (; from < end; from += kLine) __builtin_prefetch(from, 0, 2);
}

}  // namespace engine::ops::LAZYLORA_ISA
