#include "engine/store/scale_scan.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

namespace engine::store {
namespace {

constexpr std::string_view kScale = ".weight_scale";
constexpr std::string_view kPacked = ".weight_packed";
constexpr std::size_t kGroupBytes = 16;  // 32 codes
constexpr auto kNan = static_cast<std::uint8_t>(255);
constexpr auto kOverflowing = static_cast<std::uint8_t>(253);  // the least that can overflow

// Whether the code's magnitude times 2^(scale-127) is above float32's largest, just below 2^128.
// Magnitudes 0 0.5 1 1.5 2 3 4 6: with 253, 4 and 6 reach 2^128; with 254, 2 and 3 do as well.
bool overflows(unsigned code, std::uint8_t scale) {
  const unsigned magnitude = code & 7u;
  return magnitude >= (scale == kOverflowing ? 6u : 4u);
}

struct Tally {
  std::uint64_t nan = 0;
  std::uint64_t nan_with_codes = 0;
  std::uint64_t overflowing = 0;
  std::uint64_t first_nan = 0;  // index of its group
  std::uint64_t first_overflowing = 0;
};

Tally tally(const std::vector<std::uint8_t>& scales, const std::vector<std::uint8_t>& packed) {
  Tally result;
  for (std::size_t group = 0; group < scales.size(); ++group) {
    const std::uint8_t scale = scales[group];
    if (scale < kOverflowing) continue;
    bool any = false;
    bool over = false;
    for (std::size_t i = 0; i < kGroupBytes; ++i) {
      const unsigned byte = packed[group * kGroupBytes + i];
      any = any || (byte & 0x77u) != 0;  // the sign of a zero does not count
      over = over || overflows(byte, scale) || overflows(byte >> 4, scale);
    }
    if (scale == kNan) {
      if (result.nan++ == 0) result.first_nan = group;
      result.nan_with_codes += any ? 1 : 0;
    } else if (over && result.overflowing++ == 0) {
      result.first_overflowing = group;
    }
  }
  return result;
}

std::vector<std::uint8_t> bytes_of(const ShardReader& reader, const TensorEntry& entry) {
  std::vector<std::uint8_t> bytes(entry.bytes);
  reader.read(entry, std::as_writable_bytes(std::span(bytes)));
  return bytes;
}

}  // namespace

ScaleScan scan_scales(const ShardReader& reader, bool strict, std::vector<Finding>& findings) {
  ScaleScan scan;
  for (const TensorEntry& entry : reader.entries()) {
    if (!entry.name.ends_with(kScale)) continue;
    const std::string stem(entry.name.substr(0, entry.name.size() - kScale.size()));
    const TensorEntry* packed = reader.find_if_any(stem + std::string(kPacked));
    // Without a partner of its size it is none of ours, or the layout check has said so.
    if (packed == nullptr || packed->bytes != entry.bytes * kGroupBytes) continue;
    const std::vector<std::uint8_t> scales = bytes_of(reader, entry);
    ++scan.tensors;
    scan.groups += scales.size();
    if (std::ranges::none_of(scales, [](std::uint8_t scale) { return scale >= kOverflowing; })) {
      continue;
    }
    const Tally found = tally(scales, bytes_of(reader, *packed));
    scan.nan_groups += found.nan;
    scan.nan_groups_with_codes += found.nan_with_codes;
    const std::string file = reader.file_of(entry).path().string();
    if (found.nan > 0) {
      findings.push_back(
          {strict ? Severity::kError : Severity::kWarning, file, std::string(entry.name),
           entry.offset + found.first_nan,
           fmt::format(
               "scale byte 255 (NaN) in {} of {} groups, {} of them with codes that are not "
               "zero; such a group is taken as zero",
               found.nan, scales.size(), found.nan_with_codes)});
    }
    if (found.overflowing > 0) {
      findings.push_back(
          {Severity::kError, file, std::string(entry.name), entry.offset + found.first_overflowing,
           fmt::format("scale byte {} overflows float32 with a code of its group ({} such "
                       "groups of {})",
                       scales[found.first_overflowing], found.overflowing, scales.size())});
    }
  }
  return scan;
}

}  // namespace engine::store
