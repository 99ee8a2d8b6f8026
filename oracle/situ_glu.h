// SiTU-GLU, the gated activation of every MLP: both branches capped smoothly, so |out| <= β1 β2.
#pragma once

#include <span>
#include <vector>

#include "oracle/scalar.h"

namespace oracle {

// out = β1 tanh(a/β1) σ(a) · β2 tanh(u/β2)
//
// σ gets the UNCAPPED a: σ(β1 tanh(a/β1)) is the tempting wrong version, and equal to five digits
// for small a.
//
// Shape   gate a, up u, out (=): equal sizes
// Source  docs/model.md section 4
template <class S>
std::vector<S> situ_glu(std::span<const S> gate, std::span<const S> up, double beta1,
                        double beta2) {
  std::vector<S> out(gate.size());
  for (size_t j = 0; j < gate.size(); ++j) {
    const S capped = S(beta1) * tanh(gate[j] / S(beta1)) * sigmoid(gate[j]);
    const S linear = S(beta2) * tanh(up[j] / S(beta2));
    out[j] = capped * linear;
  }
  return out;
}

}  // namespace oracle
