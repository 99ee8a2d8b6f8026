#pragma once

#include <cstdint>
#include <filesystem>

#include "checks/gradient_row.h"

namespace checks {

// The engine's gradient of every adapter tensor, of every layer's input (the embedding output is
// the first) and of every bank entry against exact directional derivatives of the oracle.
//
// Every tensor of n elements is probed in the direction of its own gradient g, where a relative
// error e of its length shows as e, and in three directions of random signs v: the engine's error
// d, whatever it is, has E <d, v>^2 = |d|^2, so the root mean square of three is an estimate of
// |d|. It may exceed a true |d| of the gate by sqrt(21.1 / 3) = 2.65 with a probability of 1e-4
// (chi-squared, three degrees). `tokens` short sequences in two documents; quick: every seventh
// tensor.
GradientTable check_against_duals(const std::filesystem::path& model, std::int64_t tokens,
                                  bool quick);

}  // namespace checks
