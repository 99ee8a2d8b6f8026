#pragma once

// y = x W^T. Sixteen chains of fma and the tree of lanes.h for every number.

#include <cstdint>

#include "engine/ops/weight_kernel.h"

namespace engine::ops::LAZYLORA_ISA {

// Tokens times rows whose chains are in registers together.
inline constexpr int kForwardTokens = kRegisters >= 32 ? 4 : 2;
inline constexpr int kForwardRows = kRegisters >= 32 ? 4 : 2;
// With more tokens than that, weights are widened once into a tile that stays in cache while up to
// kForwardTileTokens tokens pass.
inline constexpr std::int64_t kForwardTileCols = 1024;
inline constexpr std::int64_t kForwardTileTokens = 64;

// T x R chains over `count` columns: sums[t][r] += x[t][0..count) * w[row+r][col..col+count).
template <int T, int R, class Rows>
inline void forward_block(const float* x, std::int64_t x_stride, const Rows& w, std::int64_t row,
                          std::int64_t col, std::int64_t count, Lanes* sums) {
  constexpr int kStep = Rows::kStep;
  Lanes sum[T][R];
  for (int t = 0; t < T; ++t) {
    for (int r = 0; r < R; ++r) sum[t][r] = sums[t * R + r];
  }
  std::int64_t i = 0;
  for (; i + kStep * kLanes <= count; i += kStep * kLanes) {
    Lanes wide[R][kStep];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) w.load(row + r, col + i, wide[r]);
#pragma GCC unroll 2
    for (int s = 0; s < kStep; ++s) {
#pragma GCC unroll 8
      for (int t = 0; t < T; ++t) {
        const Lanes at = load(x + t * x_stride + i + s * kLanes);
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) sum[t][r] = fma(at, wide[r][s], sum[t][r]);
      }
    }
  }
  const int left = static_cast<int>(count - i);
  if (left > 0) {
    for (int t = 0; t < T; ++t) {
      const Lanes at = load(x + t * x_stride + i, left);
      for (int r = 0; r < R; ++r) {
        sum[t][r] = fma(at, w.tail(row + r, col + i, left), sum[t][r]);
      }
    }
  }
  for (int t = 0; t < T; ++t) {
    for (int r = 0; r < R; ++r) sums[t * R + r] = sum[t][r];
  }
}

// The same for any number of tokens, in blocks.
template <int R, class Rows>
inline void forward_tokens(const float* x, std::int64_t x_stride, const Rows& w, std::int64_t row,
                           std::int64_t col, std::int64_t count, std::int64_t tokens, Lanes* sums) {
  std::int64_t t = 0;
  for (; t + kForwardTokens <= tokens; t += kForwardTokens) {
    forward_block<kForwardTokens, R>(x + t * x_stride, x_stride, w, row, col, count, sums + t * R);
  }
  for (; t + 2 <= tokens; t += 2) {
    forward_block<2, R>(x + t * x_stride, x_stride, w, row, col, count, sums + t * R);
  }
  if (t < tokens) {
    forward_block<1, R>(x + t * x_stride, x_stride, w, row, col, count, sums + t * R);
  }
}

// What becomes of a finished sum.
struct Assign {
  void operator()(float sum, float& y) const { y = sum; }
};
struct AddScaled {
  float scale;
  void operator()(float sum, float& y) const {
    if (sum != 0.0f) y = __builtin_fmaf(scale, sum, y);
  }
};

// R rows of W times all tokens.
template <int R, class Rows, class Finish>
inline void forward_rows(const float* x, const Rows& w, float* y, std::int64_t tokens,
                         std::int64_t rows, std::int64_t cols, std::int64_t row, Finish finish) {
  for (std::int64_t t0 = 0; t0 < tokens; t0 += kForwardTileTokens) {
    const std::int64_t n = tokens - t0 < kForwardTileTokens ? tokens - t0 : kForwardTileTokens;
    Lanes sums[kForwardTileTokens * R];
    for (std::int64_t i = 0; i < n * R; ++i) sums[i] = zero();
    if (tokens <= kForwardTokens) {
      forward_tokens<R>(x, cols, w, row, 0, cols, n, sums);
    } else {
      alignas(64) float tile[R * kForwardTileCols];
      for (std::int64_t col = 0; col < cols; col += kForwardTileCols) {
        const std::int64_t count = cols - col < kForwardTileCols ? cols - col : kForwardTileCols;
        for (int r = 0; r < R; ++r) {
          widen_row(w, row + r, col, count, tile + r * kForwardTileCols);
        }
        forward_tokens<R>(x + t0 * cols + col, cols, F32Rows{tile, kForwardTileCols}, 0, 0, count,
                          n, sums);
      }
    }
    for (std::int64_t t = 0; t < n; ++t) {
      for (int r = 0; r < R; ++r) finish(sum(sums[t * R + r]), y[(t0 + t) * rows + row + r]);
    }
  }
}

template <class Finish>
inline void forward_all(const float* x, const Weight& w, float* y, std::int64_t tokens,
                        std::int64_t row_begin, std::int64_t row_end, Finish finish) {
  with_rows(w, [&](const auto& of_w) {
    std::int64_t row = row_begin;
    for (; row + kForwardRows <= row_end; row += kForwardRows) {
      forward_rows<kForwardRows>(x, of_w, y, tokens, w.rows, w.cols, row, finish);
    }
    for (; row < row_end; ++row) {
      forward_rows<1>(x, of_w, y, tokens, w.rows, w.cols, row, finish);
    }
  });
}

inline void forward(const float* x, const Weight& w, float* y, std::int64_t tokens,
                    std::int64_t row_begin, std::int64_t row_end) {
  forward_all(x, w, y, tokens, row_begin, row_end, Assign{});
}

inline void forward_add(float scale, const float* x, const Weight& w, float* y, std::int64_t tokens,
                        std::int64_t row_begin, std::int64_t row_end) {
  forward_all(x, w, y, tokens, row_begin, row_end, AddScaled{scale});
}

}  // namespace engine::ops::LAZYLORA_ISA
