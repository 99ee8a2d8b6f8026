#include "engine/base/float_mode.h"

#include <xmmintrin.h>

namespace engine::base {

std::uint32_t float_mode() { return _mm_getcsr() & ~0x3Fu; }

bool float_mode_is_canonical() { return float_mode() == kCanonicalMxcsr; }

CanonicalFloatMode::CanonicalFloatMode() : saved_(_mm_getcsr()) { _mm_setcsr(kCanonicalMxcsr); }

CanonicalFloatMode::~CanonicalFloatMode() { _mm_setcsr(saved_); }

}  // namespace engine::base
