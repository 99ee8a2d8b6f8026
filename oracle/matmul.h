// The one product of the model: rows of activations times a row-major matrix [out][in], transposed.
// No projection has a bias.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "oracle/scalar.h"

namespace oracle {

// y[t][o] = Σ_i w[o][i] x[t][i]
//
// Shape   w [out,in]   x [T,in]   y [T,out] (=); W is double for frozen weights, S for weights that
//         have derivatives
// Order   none that matters: see Accumulator
// Cost    T·out·in; four outputs side by side only to hide the latency of the adds
template <class S, class W>
std::vector<S> matmul(std::span<const W> w, std::span<const S> x, int64_t out, int64_t in) {
  const int64_t tokens = static_cast<int64_t>(x.size()) / in;
  std::vector<S> y(tokens * out);
  for (int64_t t = 0; t < tokens; ++t) {
    const S* row = &x[t * in];
    int64_t o = 0;
    for (; o + 4 <= out; o += 4) {
      const W* w0 = &w[o * in];
      Accumulator<S> a0, a1, a2, a3;
      for (int64_t i = 0; i < in; ++i) {
        a0.add(w0[i], row[i]);
        a1.add(w0[in + i], row[i]);
        a2.add(w0[2 * in + i], row[i]);
        a3.add(w0[3 * in + i], row[i]);
      }
      y[t * out + o] = a0.result();
      y[t * out + o + 1] = a1.result();
      y[t * out + o + 2] = a2.result();
      y[t * out + o + 3] = a3.result();
    }
    for (; o < out; ++o) {
      Accumulator<S> a;
      for (int64_t i = 0; i < in; ++i) a.add(w[o * in + i], row[i]);
      y[t * out + o] = a.result();
    }
  }
  return y;
}

}  // namespace oracle
