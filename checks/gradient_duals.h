#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "checks/gradient_row.h"

namespace checks {

// The engine's gradient of every adapter tensor, of every layer's input (the embedding output is
// the first) and of every bank entry against exact directional derivatives of the oracle, in two
// tables: of the loss; and the adjoint identity of the whole streamed backward,
//
//   <w, J v> = <J^T w, v>
//
// with the logits' derivative J v from the oracle's dual numbers, J^T w from the engine's backward
// that was given w in place of the loss's gradient, and w [T,V] random signs, several seeds. All
// tokens have weights there, those the loss masks as well.
//
// Every tensor is probed in eight directions v of independent normal deviates: the error d that
// the engine's gradient g of this tensor has, whatever it is, shows as <d, v>, normal with variance
// |d|^2. So the root mean square of the eight, e, estimates |d| with 8 e^2 / |d|^2 distributed as
// chi-squared, eight degrees. What a row states is e / |g|; |<d, v>| / (|g| |v|) would be smaller
// by the root of the tensor's size. It is allowed 2e-4, between two figures:
//   1e-4, which float32 may leave (docs/numerics.md), exceeds it with a probability of 9e-5;
//   1e-3, the error that must be seen in any one tensor, stays below it with one of 2e-5.
// The tempting wrong version takes signs for v: an error in two equal elements then hides from all
// eight once in 256. An error of 1e-3 is planted in each tensor three ways, along g, in one
// element, and in random signs, and every one must be refused.
// `tokens` short sequences in two documents; quick: every seventh tensor.
std::vector<GradientTable> check_against_duals(const std::filesystem::path& model,
                                               std::int64_t tokens, bool quick);

// Case G12: the same of the loss, for kLargeTensor alone, of norm 60.85, in `groups` times eight
// directions. Every group by itself must see the three errors of 1e-3.
GradientTable check_large_tensor(const std::filesystem::path& model, std::int64_t tokens,
                                 int groups);

}  // namespace checks
