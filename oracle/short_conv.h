// The causal depthwise convolution in front of q, k and v of a KDA layer, with its SiLU.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "oracle/documents.h"
#include "oracle/scalar.h"

namespace oracle {

// z[t][c] = Σ_j w[c][j] x[t - (taps-1) + j][c],   y = z σ(z)
//
// The LAST tap multiplies the current token; reversed taps are the tempting wrong version. Tokens
// before the document's first count as zero, also where the sequence holds an earlier document.
//
// Shape   x [T,channels]   w [channels,taps]   y [T,channels] (=)
// Source  docs/model.md section 7, step 2
template <class S>
std::vector<S> short_conv(std::span<const S> x, std::span<const double> w, int64_t channels,
                          int64_t taps, std::span<const int64_t> doc_begin) {
  const int64_t tokens = static_cast<int64_t>(x.size()) / channels;
  const std::vector<int64_t> start = document_starts(doc_begin, tokens);
  std::vector<S> y(x.size());
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t c = 0; c < channels; ++c) {
      Accumulator<S> sum;
      for (int64_t j = 0; j < taps; ++j) {
        const int64_t from = t - (taps - 1) + j;
        if (from >= start[t]) sum.add(w[c * taps + j], x[from * channels + c]);
      }
      const S z = sum.result();
      y[t * channels + c] = z * sigmoid(z);
    }
  }
  return y;
}

}  // namespace oracle
