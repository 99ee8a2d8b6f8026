#include "engine/model/expert_reader.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "engine/base/error.h"
#include "engine/model/layer_weights.h"
#include "engine/ops/mxfp4.h"

namespace engine::model {
namespace {

using base::Error;

constexpr const char* kParts[6] = {"w1.weight_packed", "w1.weight_scale",  "w2.weight_packed",
                                   "w2.weight_scale",  "w3.weight_packed", "w3.weight_scale"};

// Rows and columns of w1, w2, w3.
std::pair<std::int64_t, std::int64_t> extents(const Config& config, std::size_t matrix) {
  if (matrix == 1) return {config.latent, config.inner};
  return {config.inner, config.latent};
}

std::vector<std::int64_t> shape_of_part(const Config& config, std::size_t part) {
  const auto [rows, cols] = extents(config, part / 2);
  return {rows, part % 2 == 0 ? cols / 2 : cols / 32};
}

}  // namespace

std::int64_t ExpertReader::bytes(const Config& config) {
  std::int64_t total = 0;
  for (std::size_t part = 0; part < 6; ++part) {
    const std::vector<std::int64_t> shape = shape_of_part(config, part);
    total += shape[0] * shape[1];
  }
  return total;
}

ExpertReader::Tensors ExpertReader::find(std::int64_t layer, std::int64_t expert) const {
  Tensors tensors{};
  for (std::size_t part = 0; part < 6; ++part) {
    const std::string name =
        fmt::format("{}block_sparse_moe.experts.{}.{}", layer_prefix(layer), expert, kParts[part]);
    const store::TensorEntry& entry = reader_.find(name);
    const std::vector<std::int64_t> want = shape_of_part(config_, part);
    if (entry.dtype != base::Dtype::kU8 || entry.shape != want) {
      throw Error("{}: tensor {} is {} [{}], the configuration wants U8 [{}]",
                  reader_.files()[static_cast<std::size_t>(entry.shard)].path().string(), name,
                  base::name_of(entry.dtype), fmt::join(entry.shape, ","), fmt::join(want, ","));
    }
    tensors.entry[part] = &entry;
  }
  return tensors;
}

ExpertSource ExpertReader::source(std::int64_t layer, std::span<std::byte> buffer) {
  std::vector<Tensors> experts;
  for (std::int64_t expert = 0; expert < config_.experts; ++expert) {
    experts.push_back(find(layer, expert));
  }
  ExpertSource source;
  source.order.resize(experts.size());
  std::iota(source.order.begin(), source.order.end(), 0);
  const auto place = [&](std::int32_t expert) {
    const store::TensorEntry& first = *experts[static_cast<std::size_t>(expert)].entry[0];
    return std::pair(first.shard, first.offset);
  };
  std::sort(source.order.begin(), source.order.end(),
            [&](std::int32_t x, std::int32_t y) { return place(x) < place(y); });
  source.load = [this, buffer, experts = std::move(experts)](std::int32_t expert) {
    return load(experts[static_cast<std::size_t>(expert)], buffer);
  };
  return source;
}

ops::ExpertWeights ExpertReader::load(const Tensors& tensors, std::span<std::byte> buffer) {
  std::size_t used = 0;
  bool side_by_side = true;
  std::span<std::byte> place[6];
  for (std::size_t part = 0; part < 6; ++part) {
    const store::TensorEntry& entry = *tensors.entry[part];
    const store::TensorEntry& first = *tensors.entry[0];
    side_by_side &= entry.shard == first.shard && entry.offset == first.offset + used;
    place[part] = buffer.subspan(used, entry.bytes);
    used += entry.bytes;
  }
  if (side_by_side) {
    reader_.read(tensors.entry[0]->shard, tensors.entry[0]->offset, buffer.first(used));
  } else {
    for (std::size_t part = 0; part < 6; ++part) reader_.read(*tensors.entry[part], place[part]);
  }
  ops::Weight weights[3];
  for (std::size_t matrix = 0; matrix < 3; ++matrix) {
    const auto [rows, cols] = extents(config_, matrix);
    weights[matrix] = {ops::WeightKind::kMxfp4, place[2 * matrix].data(),
                       reinterpret_cast<const std::uint8_t*>(place[2 * matrix + 1].data()), rows,
                       cols};
    scan(weights[matrix], *tensors.entry[2 * matrix], *tensors.entry[2 * matrix + 1]);
  }
  return {weights[0], weights[1], weights[2]};
}

void ExpertReader::scan(const ops::Weight& w, const store::TensorEntry& packed,
                        const store::TensorEntry& scale) {
  const ops::Mxfp4Scan found = ops::scan_mxfp4(w);
  const std::string file = reader_.files()[static_cast<std::size_t>(scale.shard)].path().string();
  if (found.overflow_at >= 0) {
    throw Error("{}: tensor {}: the scale byte {} at offset {} overflows float32 with a code of {}",
                file, scale.name, w.scale[found.overflow_at],
                scale.offset + static_cast<std::uint64_t>(found.overflow_at), packed.name);
  }
  if (strict_ && found.nan_groups > 0) {
    throw Error(
        "{}: tensor {}: {} scale bytes are 255 (NaN), {} of their groups carry non-zero "
        "codes; refused under --strict",
        file, scale.name, found.nan_groups, found.nan_groups_with_codes);
  }
  nan_groups_ += found.nan_groups;
  nan_groups_with_codes_ += found.nan_groups_with_codes;
}

}  // namespace engine::model
