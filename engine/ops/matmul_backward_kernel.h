#pragma once

// d_x += d_y W, and the outer product c += scale a^T b. Columns stand in lanes, so every number is
// one chain of fma over rows.

#include <cstdint>

#include "engine/ops/weight_kernel.h"

namespace engine::ops::LAZYLORA_ISA {

// Tokens times Lanes of columns whose chains are in registers together, over a tile. AVX2 spends two
// registers on each.
inline constexpr int kBackwardTokens = kRegisters >= 8 ? 6 : 2;
inline constexpr int kBackwardSpan = kRegisters >= 32 ? 4 : 1;
// A tile: rows and columns of W that are widened once for all tokens of a batch. It lies in panels,
// each the columns of one span, row after row, which stay in the first-level cache while the tokens
// pass; the tile and the batch's d_x over its columns should stay in the second.
inline constexpr std::int64_t kBackwardTileRows = 64;
inline constexpr std::int64_t kBackwardTileCols = 512;
inline constexpr std::int64_t kBackwardBatch = 128;
// A few tokens read W in registers instead, so many tokens times Lanes together ...
template <class Rows>
inline constexpr int kBackwardDirectTokens = kRegisters >= 32 ? 4 : 4 / Rows::kStep;
template <class Rows>
inline constexpr int kBackwardDirectSpan = kRegisters >= 32 ? 4 : Rows::kStep;
// ... and this many rows at a time, which stay in the second-level cache while the tokens pass; between
// them chains wait in d_x.
template <class Rows>
inline constexpr std::int64_t kBackwardRows = kReorders<Rows> ? 32 : 16;
// At most so many tokens: W is decoded anew for every block of them, which costs more where MXFP4 is.
template <class Rows>
inline constexpr std::int64_t kBackwardDirect = kRegisters >= 32 || !kReorders<Rows> ? 32 : 8;

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
#pragma GCC unroll 8
  for (int t = 0; t < T; ++t) {
#pragma GCC unroll 8
    for (int s = 0; s < S; ++s) {
      sum[t][s] = as_decoded<Rows>(mode.begin(load(d_x + t * x_stride + s * kLanes)));
    }
  }
  for (std::int64_t o = 0; o < rows; ++o) {
    Lanes wide[S];
#pragma GCC unroll 8
    for (int s = 0; s < S; s += kStep) load_as_decoded(w, row + o, col + s * kLanes, wide + s);
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t) {
      const Lanes factor = broadcast(d_y.at(t, o));
#pragma GCC unroll 8
      for (int s = 0; s < S; ++s) sum[t][s] = fma(factor, wide[s], sum[t][s]);
    }
  }
#pragma GCC unroll 8
  for (int t = 0; t < T; ++t) {
#pragma GCC unroll 8
    for (int s = 0; s < S; ++s) {
      float* at = d_x + t * x_stride + s * kLanes;
      store(at, mode.end(in_order<Rows>(sum[t][s]), load(at)));
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

// T tokens over `count` columns from col on, S Lanes at a time.
template <int T, int S, class Rows, class Mode>
inline void backward_span(const Coefficients& d_y, const Rows& w, std::int64_t row,
                          std::int64_t rows, std::int64_t col, std::int64_t count, float* d_x,
                          std::int64_t x_stride, Mode mode) {
  std::int64_t i = 0;
  for (; i + S * kLanes <= count; i += S * kLanes) {
    backward_block<T, S>(d_y, w, row, rows, col + i, d_x + i, x_stride, mode);
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

// All tokens, in register blocks, over `count` columns of float32 rows; before() is called ahead of
// every block.
template <class Mode, class Before>
inline void backward_tokens(const Coefficients& d_y, const F32Rows& w, std::int64_t rows,
                            std::int64_t count, float* d_x, std::int64_t x_stride,
                            std::int64_t tokens, Mode mode, Before before) {
  std::int64_t t = 0;
  const auto blocks = [&]<int T>(Number<T>) {
    // The last eight are four and four: in a block of two, few chains would wait for themselves.
    for (; t + T <= tokens && (T <= 4 || tokens - t != 8); t += T) {
      before();
      const Coefficients from = {d_y.data + t * d_y.t_stride, d_y.t_stride, d_y.o_stride};
      backward_span<T, kBackwardSpan>(from, w, 0, rows, 0, count, d_x + t * x_stride, x_stride,
                                      mode);
    }
  };
  if constexpr (kBackwardTokens > 4) {
    blocks(Number<kBackwardTokens>{});
    blocks(Number<4>{});
  }
  blocks(Number<2>{});
  blocks(Number<1>{});
}

// A few tokens, W read in place.
template <class Rows>
inline void backward_direct(const float* d_y, const Rows& w, float* d_x, std::int64_t rows,
                            std::int64_t cols, std::int64_t col_begin, std::int64_t col_end,
                            std::int64_t tokens) {
  constexpr std::int64_t kRows = kBackwardRows<Rows>;
  for (std::int64_t row = 0; row < rows; row += kRows) {
    const std::int64_t n = rows - row < kRows ? rows - row : kRows;
    std::int64_t t = 0;
    const auto blocks = [&]<int T>(Number<T>) {
      for (; t + T <= tokens; t += T) {
        backward_span<T, kBackwardDirectSpan<Rows>>(Coefficients{d_y + t * rows + row, rows, 1}, w,
                                                    row, n, col_begin, col_end - col_begin,
                                                    d_x + t * cols + col_begin, cols, Continue{});
      }
    };
    if constexpr (kBackwardDirectTokens<Rows> >= 4) blocks(Number<4>{});
    blocks(Number<2>{});
    blocks(Number<1>{});
  }
}

// Rows [row, row+rows) and columns [col, col+count) of W, no more than a tile, of a W of w_rows rows, for a
// batch.
template <class Rows>
inline void backward_tile(const float* d_y, std::int64_t w_rows, const Rows& w, std::int64_t row,
                          std::int64_t rows, std::int64_t col, std::int64_t count, float* d_x,
                          std::int64_t x_stride, std::int64_t tokens) {
  constexpr std::int64_t kPanel = kBackwardSpan * kLanes < 32 ? 32 : kBackwardSpan * kLanes;
  alignas(64) float tile[kBackwardTileRows * kBackwardTileCols];
  const auto width = [&](std::int64_t at) { return count - at < kPanel ? count - at : kPanel; };
  for (std::int64_t o = 0; o < rows; ++o) {
    for (std::int64_t at = 0; at < count; at += kPanel) {
      widen_row(w, row + o, col + at, width(at), tile + at * rows + o * kPanel);
    }
  }
  // What the next tile's widening will read comes in beside the arithmetic, a few rows a block: all of
  // a panel's at once would wait for each other.
  const std::int64_t after = w_rows - row - rows;
  const std::int64_t ahead = after < rows ? after : rows;
  const std::int64_t blocks = (tokens + kBackwardTokens - 1) / kBackwardTokens;
  const std::int64_t share = (ahead + blocks - 1) / blocks;
  for (std::int64_t at = 0; at < count; at += kPanel) {
    std::int64_t o = 0;
    backward_tokens(Coefficients{d_y + row, w_rows, 1}, F32Rows{tile + at * rows, kPanel}, rows,
                    width(at), d_x + col + at, x_stride, tokens, Continue{}, [&] {
                      for (std::int64_t n = 0; n < share && o < ahead; ++n, ++o) {
                        prefetch_row(w, row + rows + o, col + at, width(at));
                      }
                    });
  }
}

inline void backward(const float* d_y, const Weight& w, float* d_x, std::int64_t tokens,
                     std::int64_t col_begin, std::int64_t col_end) {
  with_rows(w, [&]<class Rows>(const Rows& of_w) {
    if (tokens <= kBackwardDirect<Rows>) {
      return backward_direct(d_y, of_w, d_x, w.rows, w.cols, col_begin, col_end, tokens);
    }
    for (std::int64_t t = 0; t < tokens; t += kBackwardBatch) {
      const std::int64_t n = tokens - t < kBackwardBatch ? tokens - t : kBackwardBatch;
      for (std::int64_t col = col_begin; col < col_end; col += kBackwardTileCols) {
        const std::int64_t count =
            col_end - col < kBackwardTileCols ? col_end - col : kBackwardTileCols;
        for (std::int64_t row = 0; row < w.rows; row += kBackwardTileRows) {
          const std::int64_t rows =
              w.rows - row < kBackwardTileRows ? w.rows - row : kBackwardTileRows;
          backward_tile(d_y + t * w.rows, w.rows, of_w, row, rows, col, count, d_x + t * w.cols,
                        w.cols, n);
        }
      }
    }
  });
}

// The same chains with tokens in the part of W's rows and m in the part of tokens.
inline void outer_add(float scale, const float* a, std::int64_t a_stride, const float* b,
                      std::int64_t b_stride, float* c, std::int64_t c_stride, std::int64_t tokens,
                      std::int64_t rows, std::int64_t cols) {
  backward_tokens(Coefficients{a, 1, a_stride}, F32Rows{b, b_stride}, tokens, cols, c, c_stride,
                  rows, AddFinished{scale}, [] {});
}

}  // namespace engine::ops::LAZYLORA_ISA
