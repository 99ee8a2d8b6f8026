// The gated MLP, which is the dense layer, the shared experts and every routed expert; and the
// weighted sum of routed experts.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "oracle/lora.h"
#include "oracle/matmul.h"
#include "oracle/situ_glu.h"

namespace oracle {

using Weights = std::shared_ptr<const std::vector<double>>;

struct GluWeights {
  Weights gate, up;  // [inner,width]; of a routed expert w1 and w3
  Weights down;      // [width,inner]; w2
};

template <class S>
struct GluLora {
  Lora<S> gate, up, down;
};

struct GluShape {
  int64_t width, inner;
  double beta1, beta2;
};

// y = down · SiTU-GLU(gate · x, up · x), each product with its adapter
//
// Shape   x, y [T,width]
// Source  docs/model.md section 9; docs/training.md section 1
template <class S>
std::vector<S> glu_mlp(std::span<const S> x, const GluWeights& w, const GluLora<S>& lora,
                       GluShape shape) {
  const auto [width, inner, beta1, beta2] = shape;
  std::vector<S> gate = matmul<S, double>(*w.gate, x, inner, width);
  std::vector<S> up = matmul<S, double>(*w.up, x, inner, width);
  add_lora<S>(gate, x, lora.gate, inner, width);
  add_lora<S>(up, x, lora.up, inner, width);
  const std::vector<S> activation = situ_glu<S>(gate, up, beta1, beta2);
  std::vector<S> y = matmul<S, double>(*w.down, activation, width, inner);
  add_lora<S>(y, activation, lora.down, width, inner);
  return y;
}

// acc[t] = Σ_j weight[t][j] · glu_mlp(z[t]; expert[t][j])
//
// One set of adapters for all experts of the layer, inside each of them. The weight multiplies the
// whole output, adapter included. Nothing is normalised here: one norm per expert is the tempting
// wrong version, the model norms the sum. An engine may apply the adapters once a token instead
// (docs/training.md section 2): the same products with as many roundings on every path, so Bound covers
// that too.
//
// Shape   z [T,L]   expert, weight [T,k]   acc [T,L] (=)
// Cost    every chosen expert is loaded once, whatever the number of its tokens
// Source  docs/model.md section 9, step 3
template <class S>
std::vector<S> routed_experts(std::span<const S> z, std::span<const int32_t> expert,
                              std::span<const S> weight, int64_t top_k, int64_t experts,
                              const std::function<GluWeights(int64_t)>& load,
                              const GluLora<S>& lora, GluShape shape) {
  const int64_t latent = shape.width;
  std::vector<S> output(expert.size() * latent);  // [T,k,L]: the sum below runs in rank order
  for (int64_t e = 0; e < experts; ++e) {
    std::vector<size_t> slots;
    std::vector<S> rows;
    for (size_t slot = 0; slot < expert.size(); ++slot) {
      if (expert[slot] != e) continue;
      slots.push_back(slot);
      const auto row = z.begin() + slot / top_k * latent;
      rows.insert(rows.end(), row, row + latent);
    }
    if (slots.empty()) continue;
    const std::vector<S> y = glu_mlp<S>(rows, load(e), lora, shape);
    for (size_t i = 0; i < slots.size(); ++i) {
      std::copy_n(y.begin() + i * latent, latent, output.begin() + slots[i] * latent);
    }
  }
  std::vector<S> acc(z.size());
  for (size_t j = 0; j < acc.size(); ++j) {
    const size_t t = j / latent;
    Accumulator<S> sum;
    for (int64_t i = 0; i < top_k; ++i)
      sum.add(weight[t * top_k + i], output[(t * top_k + i) * latent + j % latent]);
    acc[j] = sum.result();
  }
  return acc;
}

}  // namespace oracle
