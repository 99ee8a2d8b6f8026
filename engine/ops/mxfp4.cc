#include "engine/ops/mxfp4.h"

#include <algorithm>
#include <cassert>

#include "engine/base/float_mode.h"
#include "engine/ops/kernels.h"

namespace engine::ops {
namespace {

constexpr std::int64_t kGroup = 32;
constexpr std::uint8_t kFirstOdd = 253;

// The largest code of a group without its sign, an index into {0, 0.5, 1, 1.5, 2, 3, 4, 6}.
int largest_code(const std::uint8_t* packed) {
  int largest = 0;
  for (int i = 0; i < kGroup / 2; ++i) {
    largest = std::max({largest, packed[i] & 7, (packed[i] >> 4) & 7});
  }
  return largest;
}

}  // namespace

void mxfp4_row(const Weight& w, std::int64_t o, std::span<float> to) noexcept {
  assert(w.kind == WeightKind::kMxfp4 && static_cast<std::int64_t>(to.size()) == w.cols);
  const base::CanonicalFloatMode mode;
  kernels().matmul.widen(w, o, to.data());
}

Mxfp4Scan scan_mxfp4(const Weight& w) noexcept {
  assert(w.kind == WeightKind::kMxfp4 && w.cols % kGroup == 0);
  Mxfp4Scan found;
  const auto* packed = static_cast<const std::uint8_t*>(w.data);
  const std::int64_t groups = w.rows * w.cols / kGroup;
  constexpr std::int64_t kBlock = 4096;
  for (std::int64_t begin = 0; begin < groups; begin += kBlock) {
    const std::int64_t end = std::min(groups, begin + kBlock);
    // The usual block holds nothing odd, and its maximum says so at the speed of memory.
    std::uint8_t largest = 0;
    for (std::int64_t g = begin; g < end; ++g) largest = std::max(largest, w.scale[g]);
    if (largest < kFirstOdd) continue;
    for (std::int64_t g = begin; g < end; ++g) {
      const std::uint8_t s = w.scale[g];
      if (s < kFirstOdd) continue;
      const int code = largest_code(packed + g * (kGroup / 2));
      if (s == 255) {
        ++found.nan_groups;
        if (code != 0) ++found.nan_groups_with_codes;
      } else if (found.overflow_at < 0 && code >= (s == 254 ? 4 : 6)) {
        found.overflow_at = g;
      }
    }
  }
  return found;
}

}  // namespace engine::ops
