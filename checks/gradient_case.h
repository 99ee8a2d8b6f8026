#pragma once

#include <filesystem>

#include "checks/gradient_row.h"

namespace checks {

// Gates against the float64 gradients of ../shared/reference/grad (docs/numerics.md): per-tensor
// relative norm error, and difference of the loss in nats.
inline constexpr double kGradientGate = 5e-4;
inline constexpr double kLossGate = 2e-5;

// One case folder (tiny_g1, tool_g1, tiny_packed, tiny_packed4): loss, every adapter gradient,
// value and gradient of every layer's input, of the bank and of whatever else the engine lets see,
// routing; and for packed cases that the documents run apart give the same bits. Errors
// std::runtime_error where case and checkpoint do not fit
GradientTable check_gradient_case(const std::filesystem::path& model,
                                  const std::filesystem::path& folder);

}  // namespace checks
