#pragma once

#include <cstdint>

namespace engine::base {

// The floating-point mode in which every number is computed: round to nearest, all exceptions
// masked, subnormals kept (neither FTZ nor DAZ), the power-on value of MXCSR.
inline constexpr std::uint32_t kCanonicalMxcsr = 0x1F80;

// MXCSR of the calling thread, status flags (the low six bits) removed.
std::uint32_t float_mode();

// True if the calling thread computes in the canonical mode. A program that starts otherwise
// refuses to run: results would not be reproducible.
bool float_mode_is_canonical();

// Sets the canonical mode for its lifetime and restores what was there. Every parallel region has
// one a thread: a library loaded into the process may have switched FTZ on behind our back.
class CanonicalFloatMode {
 public:
  CanonicalFloatMode();
  ~CanonicalFloatMode();
  CanonicalFloatMode(const CanonicalFloatMode&) = delete;
  CanonicalFloatMode& operator=(const CanonicalFloatMode&) = delete;

 private:
  std::uint32_t saved_;
};

}  // namespace engine::base
