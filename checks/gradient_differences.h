#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>

#include "checks/engine_run.h"
#include "checks/gradient_row.h"

namespace checks {

// Central differences of the whole engine, the loss reduced from the engine's float32 logits in
// fifty digits, along the gradient: of every adapter tensor, of all tensors of a layer, of all of a
// kind, of all; and for all tensors together along random signs.
//
//   D(h) = (L(+h) - L(-h)) / 2h = L' + c2 h^2 + c4 h^4 + ...
//   R(h) = (4 D(h) - D(2h)) / 3                     free of c2
//   S(h) = (16 R(h) - R(2h)) / 15                   free of c4
//
// Truncation: R(h) errs by -4 c4 h^4 + O(h^6), R(2h) by sixteen times that, so |R(h) - R(2h)| / 15
// is what R(h) errs by, and what S(h), which is better by a factor of order h^2, is allowed.
// Resolution: sigma, the loss's own float32 noise, is measured: the root mean square of how far 64
// losses at displacements too small to matter stray from a line. D(h) errs by sigma / (sqrt(2) h),
// and S(h) = (64 D(h) - 20 D(2h) + D(4h)) / 45, of six losses each with noise of its own, by
// sqrt(64^2 + 10^2 + (1/4)^2) / 45 = 1.44 of that, 1.02 sigma / h. It is allowed five times as
// much, 6e-7 of a normal distribution. The tempting wrong version takes the largest of a few
// noises: a thousand rows then hold a larger one, and a right gradient is called wrong.
// h is halved from a twelfth of the tensors' norm, or from where resolution is a ten-thousandth of
// the derivative, to where truncation and resolution together are least; neither knows the gradient
// that is checked. Points on which some token chose other experts are not used.
//
// A row must agree within truncation, resolution and the gate on the gradient's own error, 5e-4.
// Where the first two, u, are within 1.5e-4 of the derivative, the row resolves an error of the
// gradient of 1e-3: that shows as 1e-3 - u - e at least, e the engine's own, which the dual numbers
// hold to 2e-4, and u + 5e-4 is allowed. It is planted there, row by row. Most single tensors are
// coarser: the loss's noise is what it is. Where the two are above a tenth of the derivative, the row proves
// nothing and is counted apart, as is one without three steps free of flips; one that contradicts
// fails in any case. The tempting wrong version allows |R(h) - D(h)|, the correction itself, which
// is far more than R(h) errs by.
// quick: every seventh tensor.
GradientTable check_against_differences(const std::filesystem::path& model, std::int64_t tokens,
                                        bool quick);

// Case G12. The same along `count` random directions (signs) with one adapter tensor scaled to norm
// 60.85: half of the directions move that tensor, a quarter all tensors, a quarter one other tensor
// after the other. A random direction sees little of a gradient, so most rows are coarse, and many
// are below resolution; none may fail. An error of 1e-3 in the large tensor is not theirs to find:
// that is check_large_tensor's (gradient_duals.h).
GradientTable check_random_directions(const std::filesystem::path& model, std::int64_t tokens,
                                      std::uint64_t count);

// random_adapter_set with kLargeTensor scaled to kLargeNorm.
inline constexpr const char* kLargeTensor = "layers.4.q.lora_A";
inline constexpr double kLargeNorm = 60.85;
std::unique_ptr<engine::model::AdapterSet> adapters_with_a_large_tensor(Engine& engine);

}  // namespace checks
