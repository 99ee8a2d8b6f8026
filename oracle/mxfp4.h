// MXFP4: 4-bit codes with one power-of-two scale for every 32 columns.
#pragma once

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace oracle {

inline constexpr int64_t kMxfp4Group = 32;

// value = E2M1(code) · 2^(scale - 127); scale 255 makes the whole group zero.
//
// The LOW nibble is the EVEN column; the other way round is the tempting wrong version (right
// shape, right statistics). Scale 0 is 2^-127, a subnormal float32, not zero.
//
// Shape   packed [rows,cols/2]   scale [rows,cols/32]   result [rows,cols]
// Errors  throws std::runtime_error naming `name` and the byte offset within it when a value is no
//         finite float32 (scale 253 with code 4 or 6, scale 254 with code 2, 3, 4 or 6)
// Source  OCP Microscaling Formats v1.0; docs/model.md section 3
inline std::vector<double> decode_mxfp4(std::span<const uint8_t> packed,
                                        std::span<const uint8_t> scale, int64_t rows, int64_t cols,
                                        const std::string& name) {
  static constexpr double kCode[8] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  if (cols % kMxfp4Group != 0 || static_cast<int64_t>(packed.size()) * 2 != rows * cols ||
      static_cast<int64_t>(scale.size()) * kMxfp4Group != rows * cols) {
    throw std::runtime_error(fmt::format("{}: {} packed and {} scale bytes do not make [{}, {}]",
                                         name, packed.size(), scale.size(), rows, cols));
  }
  std::vector<double> value(rows * cols);
  for (int64_t j = 0; j < rows * cols; ++j) {
    const uint8_t exponent = scale[j / kMxfp4Group];
    if (exponent == 255) continue;
    const int code = j % 2 == 0 ? packed[j / 2] & 15 : packed[j / 2] >> 4;
    const double magnitude = std::ldexp(kCode[code & 7], exponent - 127);
    if (magnitude > 0x1.fffffep127) {
      throw std::runtime_error(fmt::format("{}: code {} at byte {} with scale {} overflows float32",
                                           name, code, j / 2, exponent));
    }
    value[j] = code & 8 ? -magnitude : magnitude;
  }
  return value;
}

}  // namespace oracle
