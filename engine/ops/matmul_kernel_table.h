#pragma once

#include <cstdint>

#include "engine/ops/weight.h"

namespace engine::ops {

// Raw-pointer inner loops of matmul.h and lora.h over a range of output rows or columns, so that
// threads can share one product without changing a bit.
struct MatmulKernels {
  // y[t][o] for t in [0,tokens), o in [row_begin,row_end); rows of y are w.rows apart.
  void (*forward)(const float* x, const Weight& w, float* y, std::int64_t tokens,
                  std::int64_t row_begin, std::int64_t row_end);
  // y[t][o] = fma(scale, product, y[t][o]), or y[t][o] where the product is 0.
  void (*forward_add)(float scale, const float* x, const Weight& w, float* y, std::int64_t tokens,
                      std::int64_t row_begin, std::int64_t row_end);
  // d_x[t][i] for t in [0,tokens), i in [col_begin,col_end), col_begin a multiple of 32.
  void (*backward)(const float* d_y, const Weight& w, float* d_x, std::int64_t tokens,
                   std::int64_t col_begin, std::int64_t col_end);
  // c[m][n] = fma(scale, sum_t a[t][m] b[t][n], c[m][n]), the sum one fma chain over [0,tokens)
  // from +0, for m in [0,rows), n in [0,cols). Rows of a, b, c are their strides apart.
  void (*outer_add)(float scale, const float* a, std::int64_t a_stride, const float* b,
                    std::int64_t b_stride, float* c, std::int64_t c_stride, std::int64_t tokens,
                    std::int64_t rows, std::int64_t cols);
  // Row o of w as float32, exactly. Shape  to [cols] (=)
  void (*widen)(const Weight& w, std::int64_t o, float* to);
  // sum[i] = fma(scale, x[i], sum[i])
  void (*axpy)(float scale, const float* x, float* sum, std::int64_t n);
  // 16 partial sums and the tree, as one element of forward
  float (*dot)(const float* x, const float* y, std::int64_t n);
};

}  // namespace engine::ops
