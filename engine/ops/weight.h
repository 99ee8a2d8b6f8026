#pragma once

#include <cstdint>

namespace engine::ops {

enum class WeightKind : std::uint8_t { kF32, kBf16, kMxfp4 };

// A frozen matrix W [rows][cols] = [out][in] as it lies in memory, row-major, never widened there.
// kMxfp4: data holds two E2M1 codes a byte (low nibble = even column), scale one E8M0 byte for
// every 32 columns of a row; cols is a multiple of 32. The pointers need no alignment beyond their
// type.
struct Weight {
  WeightKind kind = WeightKind::kF32;
  const void* data = nullptr;
  const std::uint8_t* scale = nullptr;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
};

}  // namespace engine::ops
