#include "engine/model/weight_loader.h"

#include <fmt/ranges.h>

#include <cstring>

#include "engine/base/error.h"

namespace engine::model {
namespace {

using base::Dtype;
using base::Error;

std::int64_t elements(const store::TensorEntry& entry) {
  std::int64_t count = 1;
  for (const std::int64_t extent : entry.shape) count *= extent;
  return count;
}

}  // namespace

const store::TensorEntry& WeightLoader::find(const std::string& name, std::int64_t count) const {
  const store::TensorEntry& entry = reader_.find(name);
  if (elements(entry) != count) {
    throw Error("{}: tensor {} has shape [{}], {} elements; the configuration wants {}",
                reader_.files()[static_cast<std::size_t>(entry.shard)].path().string(), name,
                fmt::join(entry.shape, ","), elements(entry), count);
  }
  if (entry.dtype == Dtype::kU8) {
    throw Error("{}: tensor {} has dtype U8 where BF16, F16 or F32 is wanted",
                reader_.files()[static_cast<std::size_t>(entry.shard)].path().string(), name);
  }
  return entry;
}

// The narrow values are read into the upper half of the place they widen into; walking upwards,
// every one is read before its place is overwritten.
std::span<float> WeightLoader::widened(const store::TensorEntry& entry, std::uint64_t offset,
                                       std::int64_t count) {
  const std::span<float> out = arena_.take<float>(count);
  if (arena_.measuring()) return out;
  if (entry.dtype == Dtype::kF32) {
    reader_.read(entry.shard, offset, std::as_writable_bytes(out));
    return out;
  }
  const auto upper = std::as_writable_bytes(out).subspan(out.size() * 2);
  reader_.read(entry.shard, offset, upper);
  for (std::size_t i = 0; i < out.size(); ++i) {
    std::uint16_t bits;
    std::memcpy(&bits, upper.data() + 2 * i, sizeof(bits));
    out[i] = entry.dtype == Dtype::kBf16 ? base::bf16_to_float(bits) : base::f16_to_float(bits);
  }
  return out;
}

std::span<const float> WeightLoader::vector(const std::string& name, std::int64_t count) {
  const store::TensorEntry& entry = find(name, count);
  return widened(entry, entry.offset, count);
}

ops::Weight WeightLoader::matrix(const std::string& name, std::int64_t rows, std::int64_t cols) {
  return matrix_rows(name, rows, cols, 0, rows);
}

ops::Weight WeightLoader::matrix_rows(const std::string& name, std::int64_t rows, std::int64_t cols,
                                      std::int64_t first, std::int64_t count) {
  const store::TensorEntry& entry = find(name, rows * cols);
  const std::uint64_t offset =
      entry.offset + static_cast<std::uint64_t>(first * cols * base::size_of(entry.dtype));
  if (entry.dtype != Dtype::kBf16) {
    const std::span<float> values = widened(entry, offset, count * cols);
    return {ops::WeightKind::kF32, values.data(), nullptr, count, cols};
  }
  const std::span<std::uint16_t> values = arena_.take<std::uint16_t>(count * cols);
  if (!arena_.measuring()) reader_.read(entry.shard, offset, std::as_writable_bytes(values));
  return {ops::WeightKind::kBf16, values.data(), nullptr, count, cols};
}

}  // namespace engine::model
