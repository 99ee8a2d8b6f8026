#pragma once

#include <cstdint>
#include <span>

#include "engine/ops/weight.h"

namespace engine::ops {

// Row o of an MXFP4 matrix: E2M1(code) * 2^(s-127), every product exact; s = 0 is the subnormal
// 2^-127, s = 255 makes its 32 columns zero. The low nibble is the EVEN column.
//
// Shape     to [cols] (=)
void mxfp4_row(const Weight& w, std::int64_t o, std::span<float> to) noexcept;

// What is odd about the scale bytes of a matrix.
struct Mxfp4Scan {
  std::int64_t nan_groups = 0;             // s = 255, NaN by the OCP format
  std::int64_t nan_groups_with_codes = 0;  // of these, how many carry a code other than +-0
  // Index in `scale` of the first byte that overflows float32 with one of its group's codes (s =
  // 253 with 4 or 6, s = 254 with 2, 3, 4 or 6); -1 if there is none. The caller refuses such a
  // matrix.
  std::int64_t overflow_at = -1;
};

// Cost      one pass over the scale bytes; codes are read only under bytes >= 253
Mxfp4Scan scan_mxfp4(const Weight& w) noexcept;

}  // namespace engine::ops
