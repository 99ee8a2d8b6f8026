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
                reader_.file_of(entry).path().string(), name, fmt::join(entry.shape, ","),
                elements(entry), count);
  }
  if (entry.dtype == Dtype::kU8) {
    throw Error("{}: tensor {} has dtype U8 where BF16, F16 or F32 is wanted",
                reader_.file_of(entry).path().string(), name);
  }
  return entry;
}

const std::byte* WeightLoader::bytes_at(const store::TensorEntry& entry,
                                        std::uint64_t offset) const {
  return arena_->measuring() ? nullptr : room_.data() + there_->at(entry.shard, offset);
}

std::span<const float> WeightLoader::widened(const store::TensorEntry& entry, std::uint64_t offset,
                                             std::int64_t count) {
  const auto bytes = static_cast<std::size_t>(count * base::size_of(entry.dtype));
  if (wanted_ != nullptr) {
    wanted_->add(entry.shard, offset, bytes);
    return {};
  }
  const std::span<float> out = arena_->take<float>(count);
  if (arena_->measuring()) return out;
  const std::byte* from = bytes_at(entry, offset);
  if (entry.dtype == Dtype::kF32) {
    std::memcpy(out.data(), from, bytes);
    return out;
  }
  for (std::size_t i = 0; i < out.size(); ++i) {
    std::uint16_t bits;
    std::memcpy(&bits, from + 2 * i, sizeof(bits));
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
  const auto size = static_cast<std::int64_t>(base::size_of(entry.dtype));
  const std::uint64_t offset = entry.offset + static_cast<std::uint64_t>(first * cols * size);
  if (entry.dtype == Dtype::kF16) {
    const std::span<const float> values = widened(entry, offset, count * cols);
    return {ops::WeightKind::kF32, values.data(), nullptr, count, cols};
  }
  ops::Weight weight{entry.dtype == Dtype::kBf16 ? ops::WeightKind::kBf16 : ops::WeightKind::kF32,
                     nullptr, nullptr, count, cols};
  const std::int64_t bytes = count * cols * size;
  if (wanted_ != nullptr) {
    wanted_->add(entry.shard, offset, static_cast<std::uint64_t>(bytes));
    return weight;
  }
  // The room begins on a block border of the file: what is aligned there is aligned here.
  const std::byte* from = bytes_at(entry, offset);
  if (offset % static_cast<std::uint64_t>(size) != 0) {
    const std::span<std::byte> own = arena_->take<std::byte>(bytes);
    if (!arena_->measuring()) std::memcpy(own.data(), from, own.size());
    from = own.data();
  }
  weight.data = from;
  return weight;
}

}  // namespace engine::model
