#pragma once

// y = x W^T. Sixteen chains of fma and the tree of lanes.h for every number: the sixteen lanes of
// one register (two with AVX2) are the partial sums of one (t, o).
//
// A few tokens read W in registers, a few rows side by side, as a chain alone would wait for itself: it is
// decoded anew for every block of tokens, out of the first-level cache. More tokens go through tiles:
// columns in blocks; in each, a few rows of W are widened once into a tile that stays in the first-level
// cache while all tokens of a batch pass in register blocks. Between column blocks the partial sums, all
// sixteen, lie in memory, which is exact.

#include <cstdint>

#include "engine/base/lane_part.h"
#include "engine/ops/weight_kernel.h"

namespace engine::ops::LAZYLORA_ISA {

// Tokens times rows whose chains are in registers together.
inline constexpr int kForwardTokens = kRegisters >= 32 ? 4 : kRegisters >= 8 ? 3 : 2;
inline constexpr int kForwardRows = kRegisters >= 32 ? 6 : kRegisters >= 8 ? 4 : 2;
// Columns of a tile: with the tokens' own columns it must fit the first-level cache.
inline constexpr std::int64_t kForwardTileCols = 1024;
// A tile's rows lie a cache line further apart: a power of two would put them into the same sets.
inline constexpr std::int64_t kForwardTileStride = kForwardTileCols + kLanes;
// Tokens of a batch: what a widened weight serves. Its columns should stay in the second level.
inline constexpr std::int64_t kForwardBatch = 128;
// Partial sums, sixteen each, that wait between column blocks: tokens of a batch times rows.
inline constexpr std::int64_t kForwardWaiting = 8192;
// Elements of a batch that stay in the second level as a whole: its sums need not wait for all rows
// to pass a column block.
inline constexpr std::int64_t kForwardStay = 262144;
// At most this many tokens read W in registers, and at most so many numbers of theirs: they should stay in
// the second level, and lie on the stack where they are put into another order of lanes.
inline constexpr std::int64_t kForwardDirect = kRegisters >= 32 ? 32 : 8;
inline constexpr std::int64_t kForwardDirectNumbers = 163840;
// Rows whose chains are in registers together with those of one token, of two, and of four: fewer where a
// scale's products take a register too.
template <class Rows>
inline constexpr int kRowsOfOne = kRegisters >= 32  ? 8
                                  : kReorders<Rows> ? 3
                                                    : 6;
template <class Rows>
inline constexpr int kRowsOfTwo = kRegisters < 32   ? 2
                                  : kReorders<Rows> ? 6
                                                    : 8;
template <class Rows>
inline constexpr int kRowsOfFour = kRegisters < 32   ? 1
                                   : kReorders<Rows> ? 4
                                                     : 6;

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

// T x R chains over `count` columns, W read in place; x as decoded.
template <int T, int R, class Rows, class Finish>
inline void forward_direct(const float* x, std::int64_t x_stride, const Rows& w, std::int64_t row,
                           std::int64_t count, float* y, std::int64_t y_stride, Finish finish) {
  using Walk = ops::LAZYLORA_ISA::Walk<R, Rows>;
  constexpr int kStep = Rows::kStep;
  Lanes sums[T][R];
#pragma GCC unroll 8
  for (int t = 0; t < T; ++t) {
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) sums[t][r] = zero();
  }
  std::int64_t i = 0;
  // One step, whose weights widen_step(r, to) widens.
  const auto step = [&](auto widen_step) {
    Lanes at[T][kStep];
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t) {
#pragma GCC unroll 2
      for (int s = 0; s < kStep; ++s) {
        at[t][s] = load(x + t * x_stride + i + s * kLanes);
      }
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      Lanes wide[kStep];
      widen_step(r, wide);
#pragma GCC unroll 2
      for (int s = 0; s < kStep; ++s) {
#pragma GCC unroll 8
        for (int t = 0; t < T; ++t) sums[t][r] = fma(at[t][s], wide[s], sums[t][r]);
      }
    }
    i += kStep * kLanes;
  };
  Walk walk(w, row);
  while (i + Walk::kSteps * kStep * kLanes <= count) {
#pragma GCC unroll 4
    for (int n = 0; n < Walk::kSteps; ++n) step([&](int r, Lanes* to) { walk.load(r, n, to); });
    walk.next();
  }
  while (i + kStep * kLanes <= count) {
    step([&](int r, Lanes* to) { load_as_decoded(w, row + r, i, to); });
  }
#pragma GCC unroll 8
  for (int t = 0; t < T; ++t) {
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) sums[t][r] = in_order<Rows>(sums[t][r]);
  }
  const int left = static_cast<int>(count - i);
  if (left > 0) {
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t) {
      const Lanes at = load(x + t * x_stride + i, left);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) sums[t][r] = fma(at, w.tail(row + r, i, left), sums[t][r]);
    }
  }
#pragma GCC unroll 8
  for (int t = 0; t < T; ++t) {
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) finish(sum(sums[t][r]), y[t * y_stride + row + r]);
  }
}

// T tokens times kForwardRows rows of a tile, one part of the lanes: sums[t][r] += x[t] tile[r] over
// `count` columns, a multiple of sixteen.
template <int T>
inline void forward_part(const float* x, std::int64_t x_stride, const float* tile,
                         std::int64_t count, float* sums) {
  using base::LAZYLORA_ISA::Part;
  constexpr int R = kForwardRows;
  Part chain[T][R];
#pragma GCC unroll 8
  for (int t = 0; t < T; ++t) {
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      chain[t][r] = base::LAZYLORA_ISA::part_load(sums + (t * R + r) * kLanes);
    }
  }
  for (std::int64_t i = 0; i < count; i += kLanes) {
    Part at[T];
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t) at[t] = base::LAZYLORA_ISA::part_load(x + t * x_stride + i);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const Part wide = base::LAZYLORA_ISA::part_load(tile + r * kForwardTileStride + i);
#pragma GCC unroll 8
      for (int t = 0; t < T; ++t) {
        chain[t][r] = base::LAZYLORA_ISA::part_fma(at[t], wide, chain[t][r]);
      }
    }
  }
#pragma GCC unroll 8
  for (int t = 0; t < T; ++t) {
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      base::LAZYLORA_ISA::part_store(sums + (t * R + r) * kLanes, chain[t][r]);
    }
  }
}

// The same for all lanes and any count; the tile's last columns are padded with zeros, and so are
// the tokens' here.
template <int T>
inline void forward_block(const float* x, std::int64_t x_stride, const float* tile,
                          std::int64_t count, float* sums) {
  const std::int64_t whole = count / kLanes * kLanes;
  float last[T][kLanes];
  if (whole < count) {
    for (int t = 0; t < T; ++t) {
      store(last[t], load(x + t * x_stride + whole, static_cast<int>(count - whole)));
    }
  }
  for (int p = 0; p < base::LAZYLORA_ISA::kParts; ++p) {
    const int lane = p * base::LAZYLORA_ISA::kPartLanes;
    forward_part<T>(x + lane, x_stride, tile + lane, whole, sums + lane);
    if (whole < count) {
      forward_part<T>(&last[0][0] + lane, kLanes, tile + whole + lane, kLanes, sums + lane);
    }
  }
}

// All tokens, in register blocks; before(t) is called ahead of every block.
template <class Before>
inline void forward_tokens(const float* x, std::int64_t x_stride, const float* tile,
                           std::int64_t count, std::int64_t tokens, float* sums, Before before) {
  constexpr int kBlock = kForwardRows * kLanes;
  std::int64_t t = 0;
  for (; t + kForwardTokens <= tokens; t += kForwardTokens) {
    before(t);
    forward_block<kForwardTokens>(x + t * x_stride, x_stride, tile, count, sums + t * kBlock);
  }
  const auto rest = [&]<int T>(Number<T>) {
    if (tokens - t == T)
      forward_block<T>(x + t * x_stride, x_stride, tile, count, sums + t * kBlock);
  };
  if constexpr (kForwardTokens > 3) rest(Number<3>{});
  if constexpr (kForwardTokens > 2) rest(Number<2>{});
  rest(Number<1>{});
}

// Rows [row, row+rows) of W times at most kForwardBatch tokens; rows up to row_end come next.
template <class Rows, class Finish>
inline void forward_group(const float* x, const Rows& w, float* y, std::int64_t tokens,
                          std::int64_t cols, std::int64_t row, std::int64_t rows,
                          std::int64_t row_end, std::int64_t y_stride, Finish finish) {
  constexpr int R = kForwardRows;
  alignas(64) float waiting[kForwardWaiting * kLanes];
  alignas(64) float tile[R * kForwardTileStride];
  for (std::int64_t col = 0; col < cols; col += kForwardTileCols) {
    const std::int64_t count = cols - col < kForwardTileCols ? cols - col : kForwardTileCols;
    for (std::int64_t first = 0; first < rows; first += R) {
      const std::int64_t n = rows - first < R ? rows - first : R;
      float* sums = waiting + first * tokens * kLanes;
      if (col == 0) {
        for (std::int64_t i = 0; i < tokens * R; ++i) store(sums + i * kLanes, zero());
      }
      for (std::int64_t r = 0; r < n; ++r) {
        widen_row(w, row + first + r, col, count, tile + r * kForwardTileStride);
        for (std::int64_t i = count; i % kLanes != 0; ++i) tile[r * kForwardTileStride + i] = 0.0f;
      }
      // Rows that are not there: their sums go nowhere, but the bytes must be numbers.
      for (std::int64_t r = n; r < R; ++r) {
        for (std::int64_t i = 0; i < count; i += kLanes) {
          store(tile + r * kForwardTileStride + i, zero());
        }
      }
      // What the next rows' widening will read comes in beside the arithmetic, a little a block.
      const std::int64_t rest = row_end - row - first - R;
      const std::int64_t ahead = rest < R ? rest : R;
      const std::int64_t blocks = (tokens + kForwardTokens - 1) / kForwardTokens;
      const std::int64_t piece = (count + blocks - 1) / blocks;
      forward_tokens(x + col, cols, tile, count, tokens, sums, [&](std::int64_t t) {
        const std::int64_t at = t / kForwardTokens * piece / 32 * 32;
        for (std::int64_t r = 0; r < ahead; ++r) {
          prefetch_row(w, row + first + R + r, col + at, piece);
        }
      });
      if (col + count < cols) continue;
      float finished[R * kForwardBatch];
      base::LAZYLORA_ISA::sum_each(sums, tokens * R, finished);
      for (std::int64_t t = 0; t < tokens; ++t) {
        float* to = y + t * y_stride + row + first;
        for (std::int64_t r = 0; r < n; ++r) finish(finished[t * R + r], to[r]);
      }
    }
  }
}

// All tokens times R rows from `row` on, at most T at a time.
template <int T, int R, class Rows, class Finish>
inline void forward_rows(const float* x, const Rows& w, std::int64_t row, std::int64_t cols,
                         float* y, std::int64_t y_stride, std::int64_t tokens, Finish finish) {
  std::int64_t t = 0;
  const auto blocks = [&]<int N>(Number<N>) {
    for (; t + N <= tokens; t += N) {
      forward_direct<N, R>(x + t * cols, cols, w, row, cols, y + t * y_stride, y_stride, finish);
    }
  };
  if constexpr (T >= 4) {
    blocks(Number<4>{});
    blocks(Number<3>{});
  }
  if constexpr (T >= 2) blocks(Number<2>{});
  blocks(Number<1>{});
}

// A few tokens, blocks of T x R chains, W read in place.
template <int T, int R, class Rows, class Finish>
inline void forward_few(const float* x, const Rows& w, std::int64_t row_begin, std::int64_t row_end,
                        std::int64_t cols, float* y, std::int64_t y_stride, std::int64_t tokens,
                        Finish finish) {
  alignas(64) float reordered[kReorders<Rows> ? kForwardDirectNumbers : 1];
  if constexpr (kReorders<Rows>) {
    for (std::int64_t i = 0; i < tokens * cols; i += kLanes) {
      store(reordered + i, as_decoded<Rows>(load(x + i)));
    }
    x = reordered;
  }
  std::int64_t row = row_begin;
  for (; row + R <= row_end; row += R) {
    forward_rows<T, R>(x, w, row, cols, y, y_stride, tokens, finish);
  }
  for (; row < row_end; ++row) {
    forward_rows<T, 1>(x, w, row, cols, y, y_stride, tokens, finish);
  }
}

template <class Finish>
inline void forward_all(const float* x, const Weight& w, float* y, std::int64_t tokens,
                        std::int64_t row_begin, std::int64_t row_end, Finish finish) {
  with_rows(w, [&]<class Rows>(const Rows& of_w) {
    if (tokens <= kForwardDirect && tokens * w.cols <= kForwardDirectNumbers) {
      const auto few = [&]<int T, int R>(Number<T>, Number<R>) {
        forward_few<T, R>(x, of_w, row_begin, row_end, w.cols, y, w.rows, tokens, finish);
      };
      if (tokens == 1) few(Number<1>{}, Number<kRowsOfOne<Rows>>{});
      if (tokens == 2) few(Number<2>{}, Number<kRowsOfTwo<Rows>>{});
      if (tokens > 2) few(Number<4>{}, Number<kRowsOfFour<Rows>>{});
      return;
    }
    for (std::int64_t t = 0; t < tokens; t += kForwardBatch) {
      const std::int64_t n = tokens - t < kForwardBatch ? tokens - t : kForwardBatch;
      const std::int64_t group = n * w.cols <= kForwardStay
                                     ? kForwardRows
                                     : kForwardWaiting / n / kForwardRows * kForwardRows;
      for (std::int64_t row = row_begin; row < row_end; row += group) {
        const std::int64_t rows = row_end - row < group ? row_end - row : group;
        forward_group(x + t * w.cols, of_w, y + t * w.rows, n, w.cols, row, rows, row_end, w.rows,
                      finish);
      }
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
