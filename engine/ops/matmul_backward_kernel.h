#pragma once

// d_x += d_y W, and the outer product c += scale a^T b. Columns stand in lanes, so every number is
// one chain of fma over rows.

#include <cstdint>

#include "engine/ops/weight_kernel.h"

namespace engine::ops::LAZYLORA_ISA {

// Tokens times Lanes of columns whose chains are in registers together; the span is even, as one
// MXFP4 group is two Lanes.
inline constexpr int kBackwardTokens = kRegisters >= 32 ? 4 : 2;
inline constexpr int kBackwardSpan = kRegisters >= 32 ? 4 : 2;
// With more tokens than that, weights are widened once into a tile that stays in cache ...
inline constexpr std::int64_t kBackwardTileRows = 64;
inline constexpr std::int64_t kBackwardTileCols = 256;
// ... and with fewer, this many rows at a time pass through d_x.
inline constexpr std::int64_t kBackwardRows = 8;

// The coefficients of a chain: element (t, o) of d_y, or of its transpose.
struct Coefficients {
  const float* data;
  std::int64_t t_stride, o_stride;
  float at(std::int64_t t, std::int64_t o) const { return data[t * t_stride + o * o_stride]; }
};

// Chains that go on from what d_x holds, or begin at +0 and are added to it when finished.
struct Continue {
  Lanes begin(Lanes d_x) const { return d_x; }
  Lanes end(Lanes sum, Lanes) const { return sum; }
};
struct AddFinished {
  float scale;
  Lanes begin(Lanes) const { return zero(); }
  Lanes end(Lanes sum, Lanes d_x) const { return fma(broadcast(scale), sum, d_x); }
};

// T x S chains over the rows [row, row+rows) of W, S Lanes of columns wide.
template <int T, int S, class Rows, class Mode>
inline void backward_block(const Coefficients& d_y, const Rows& w, std::int64_t row,
                           std::int64_t rows, std::int64_t col, float* d_x, std::int64_t x_stride,
                           Mode mode) {
  constexpr int kStep = Rows::kStep;
  Lanes sum[T][S];
  for (int t = 0; t < T; ++t) {
    for (int s = 0; s < S; ++s) sum[t][s] = mode.begin(load(d_x + t * x_stride + s * kLanes));
  }
  for (std::int64_t o = 0; o < rows; ++o) {
    Lanes wide[S];
#pragma GCC unroll 8
    for (int s = 0; s < S; s += kStep) w.load(row + o, col + s * kLanes, wide + s);
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t) {
      const Lanes factor = broadcast(d_y.at(t, o));
#pragma GCC unroll 8
      for (int s = 0; s < S; ++s) sum[t][s] = fma(factor, wide[s], sum[t][s]);
    }
  }
  for (int t = 0; t < T; ++t) {
    for (int s = 0; s < S; ++s) {
      float* at = d_x + t * x_stride + s * kLanes;
      store(at, mode.end(sum[t][s], load(at)));
    }
  }
}

// The last n < 16 columns of one token.
template <class Rows, class Mode>
inline void backward_tail(const Coefficients& d_y, const Rows& w, std::int64_t row,
                          std::int64_t rows, std::int64_t col, int n, float* d_x, Mode mode) {
  Lanes sum = mode.begin(load(d_x, n));
  for (std::int64_t o = 0; o < rows; ++o) {
    sum = fma(broadcast(d_y.at(0, o)), w.tail(row + o, col, n), sum);
  }
  store(d_x, mode.end(sum, load(d_x, n)), n);
}

template <int T, class Rows, class Mode>
inline void backward_span(const Coefficients& d_y, const Rows& w, std::int64_t row,
                          std::int64_t rows, std::int64_t col, std::int64_t count, float* d_x,
                          std::int64_t x_stride, Mode mode) {
  std::int64_t i = 0;
  for (; i + kBackwardSpan * kLanes <= count; i += kBackwardSpan * kLanes) {
    backward_block<T, kBackwardSpan>(d_y, w, row, rows, col + i, d_x + i, x_stride, mode);
  }
  for (; i + Rows::kStep * kLanes <= count; i += Rows::kStep * kLanes) {
    backward_block<T, Rows::kStep>(d_y, w, row, rows, col + i, d_x + i, x_stride, mode);
  }
  const int left = static_cast<int>(count - i);
  for (int t = 0; t < T && left > 0; ++t) {
    const Coefficients of_t = {d_y.data + t * d_y.t_stride, 0, d_y.o_stride};
    backward_tail(of_t, w, row, rows, col + i, left, d_x + t * x_stride + i, mode);
  }
}

// `count` columns from col on and `rows` rows of W, for all tokens.
template <class Rows, class Mode>
inline void backward_tokens(const Coefficients& d_y, const Rows& w, std::int64_t row,
                            std::int64_t rows, std::int64_t col, std::int64_t count, float* d_x,
                            std::int64_t x_stride, std::int64_t tokens, Mode mode) {
  const auto from = [&](std::int64_t t) {
    return Coefficients{d_y.data + t * d_y.t_stride, d_y.t_stride, d_y.o_stride};
  };
  std::int64_t t = 0;
  for (; t + kBackwardTokens <= tokens; t += kBackwardTokens) {
    backward_span<kBackwardTokens>(from(t), w, row, rows, col, count, d_x + t * x_stride, x_stride,
                                   mode);
  }
  for (; t < tokens; ++t) {
    backward_span<1>(from(t), w, row, rows, col, count, d_x + t * x_stride, x_stride, mode);
  }
}

inline void backward(const float* d_y, const Weight& w, float* d_x, std::int64_t tokens,
                     std::int64_t col_begin, std::int64_t col_end) {
  const auto from = [&](std::int64_t row) { return Coefficients{d_y + row, w.rows, 1}; };
  with_rows(w, [&](const auto& of_w) {
    if (tokens <= kBackwardTokens) {
      for (std::int64_t row = 0; row < w.rows; row += kBackwardRows) {
        const std::int64_t rows = w.rows - row < kBackwardRows ? w.rows - row : kBackwardRows;
        backward_tokens(from(row), of_w, row, rows, col_begin, col_end - col_begin, d_x + col_begin,
                        w.cols, tokens, Continue{});
      }
      return;
    }
    alignas(64) float tile[kBackwardTileRows * kBackwardTileCols];
    for (std::int64_t col = col_begin; col < col_end; col += kBackwardTileCols) {
      const std::int64_t count =
          col_end - col < kBackwardTileCols ? col_end - col : kBackwardTileCols;
      for (std::int64_t row = 0; row < w.rows; row += kBackwardTileRows) {
        const std::int64_t rows =
            w.rows - row < kBackwardTileRows ? w.rows - row : kBackwardTileRows;
        for (std::int64_t o = 0; o < rows; ++o) {
          widen_row(of_w, row + o, col, count, tile + o * kBackwardTileCols);
        }
        backward_tokens(from(row), F32Rows{tile, kBackwardTileCols}, 0, rows, 0, count, d_x + col,
                        w.cols, tokens, Continue{});
      }
    }
  });
}

// The same chains with tokens in the part of W's rows and m in the part of tokens.
inline void outer_add(float scale, const float* a, std::int64_t a_stride, const float* b,
                      std::int64_t b_stride, float* c, std::int64_t c_stride, std::int64_t tokens,
                      std::int64_t rows, std::int64_t cols) {
  backward_tokens(Coefficients{a, 1, a_stride}, F32Rows{b, b_stride}, 0, tokens, 0, cols, c,
                  c_stride, rows, AddFinished{scale});
}

}  // namespace engine::ops::LAZYLORA_ISA
