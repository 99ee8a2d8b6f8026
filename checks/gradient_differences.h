#pragma once

#include <cstdint>
#include <filesystem>

#include "checks/gradient_row.h"

namespace checks {

// Central differences of the whole engine, the loss reduced from the engine's float32 logits with
// 50 digits, for every adapter tensor along its gradient and for all tensors together along random
// signs.
//
//   D(h) = (L(+h) - L(-h)) / 2h = L' + c2 h^2 + c4 h^4 + ...
//   R(h) = (4 D(h) - D(2h)) / 3                     free of c2
//   S(h) = (16 R(h) - R(2h)) / 15                   free of c4
//
// Truncation: R(h) errs by -4 c4 h^4 + O(h^6), R(2h) by sixteen times that, so |R(h) - R(2h)| / 15
// is what R(h) errs by, and what S(h), which is better by a factor of order h^2, is allowed.
// Resolution: eta, the loss's own float32 noise, is measured: how far losses at displacements too
// small to matter stray from a line. D(h) errs by at most eta / h, and
// S(h) = (64 D(h) - 20 D(2h) + D(4h)) / 45 by at most (64 + 10 + 1/4) / 45 = 1.65 of that.
// h is halved from a twelfth of the tensor's norm, to where truncation and resolution together are
// least; neither knows the gradient that is checked. Points on which some token chose other experts
// are not used.
//
// A row is resolved if the two are within kResolved, 4e-4 of the derivative; then it must agree
// within them and the gate on the gradient's own error, 5e-4: together less than 1e-3, so that an
// error of 1e-3 is caught in every resolved row up to the engine's own error, and this is shown row
// by row. Other rows are counted apart and prove nothing, as are those without three steps free of
// flips. The tempting wrong version allows |R(h) - D(h)|, the correction itself: up to 0.5 %.
// quick: every seventh tensor.
GradientTable check_against_differences(const std::filesystem::path& model, std::int64_t tokens,
                                        bool quick);

}  // namespace checks
