#pragma once

#include <cstdint>
#include <span>

#include "engine/ops/documents.h"

namespace engine::ops {

// Causal depthwise convolution along time, then SiLU:
//   z[t][c] = sum_j w[c][j] x[t-(K-1)+j][c],   y = z sigmoid(z)
// The LAST tap multiplies the current token. Tokens before a document's start are zero, except that
// `history`, when not empty, stands before the first document; it is left holding the last K-1
// inputs of the last document.
//
// Shape     x [T,P]   w [P,K]   history [K-1,P] oldest first (in/out, or empty)   y [T,P] (=)
// Order     taps in ascending order from +0, a product and a sum each, no fma
void short_conv_forward(std::span<const float> x, std::span<const float> w, Documents documents,
                        std::span<float> history, std::span<float> y) noexcept;

//   d_z = d_y silu'(z),   d_x[t][c] = sum_j w[c][j] d_z[t+(K-1)-j][c], inside the document
// Recomputes z; nothing is saved by forward. No history: training always starts at a border.
//
// Shape     d_y, x [T,P]   w [P,K]   d_x [T,P] (=)
// Order     the token's own d_z first, then later ones; a product and a sum each, no fma
void short_conv_backward(std::span<const float> d_y, std::span<const float> x,
                         std::span<const float> w, Documents documents,
                         std::span<float> d_x) noexcept;

}  // namespace engine::ops
