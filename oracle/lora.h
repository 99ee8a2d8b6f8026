// Low-rank adapters on frozen projections.
#pragma once

#include <cstdint>
#include <span>

#include "oracle/matmul.h"

namespace oracle {

// One adapter; absent when `a` is empty.
template <class S>
struct Lora {
  std::span<const S> a;  // [rank,in]
  std::span<const S> b;  // [out,rank]
  int64_t rank = 0;
  double scale = 0;  // alpha / rank
};

// y[t] += scale · B (A x[t])
//
// Shape   x [T,in]   y [T,out] (+=)
// Source  docs/training.md section 1; Hu et al., arXiv 2106.09685
template <class S>
void add_lora(std::span<S> y, std::span<const S> x, const Lora<S>& lora, int64_t out, int64_t in) {
  if (lora.a.empty()) return;
  const std::vector<S> inner = matmul<S, S>(lora.a, x, lora.rank, in);
  const std::vector<S> delta = matmul<S, S>(lora.b, inner, out, lora.rank);
  const S scale = rounded_constant<S>(lora.scale);
  for (size_t j = 0; j < y.size(); ++j) y[j] += scale * delta[j];
}

}  // namespace oracle
