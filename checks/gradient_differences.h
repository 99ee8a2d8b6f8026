#pragma once

#include <cstdint>
#include <filesystem>

#include "checks/gradient_row.h"

namespace checks {

// Central differences of the whole engine, the loss reduced from the engine's float32 logits with
// 50 digits, for every adapter tensor along its gradient and for all tensors together along random
// signs.
//
//   D(h) = (L(+h) - L(-h)) / 2h,   R = (4 D(h) - D(2h)) / 3      (one Richardson extrapolation)
//
// h is a fiftieth of the tensor's norm, or less where the derivative is large enough for it. The
// loss's own float32 noise eta is measured: how far losses at displacements too small to matter
// stray from a line. It moves R by at most 1.5 eta / h, the resolution; a derivative under ten
// times that proves nothing and is counted apart, as is a row on whose points some token chose
// other experts (h is quartered twice before giving up). A resolved row must agree within
// resolution + the extrapolation's correction |R - D(h)| + the gate on the gradient's own error.
// quick: every seventh tensor.
GradientTable check_against_differences(const std::filesystem::path& model, std::int64_t tokens,
                                        bool quick);

}  // namespace checks
