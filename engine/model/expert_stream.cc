#include "engine/model/expert_stream.h"

#include <fmt/ranges.h>

#include <algorithm>
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

std::int64_t ExpertStream::bytes(const Config& config) {
  std::int64_t total = 0;
  for (std::size_t part = 0; part < 6; ++part) {
    const std::vector<std::int64_t> shape = shape_of_part(config, part);
    total += shape[0] * shape[1];
  }
  return total;
}

std::int64_t ExpertStream::slot_bytes(const Config& config) {
  std::int64_t total = 0;
  for (std::size_t part = 0; part < 6; ++part) {
    const std::vector<std::int64_t> shape = shape_of_part(config, part);
    // Each by itself, and beginning at the last byte of a block.
    total += static_cast<std::int64_t>(
        store::room_bytes(store::kBlock - 1, static_cast<std::size_t>(shape[0] * shape[1])));
  }
  return total;
}

ExpertStream::ExpertStream(const store::ShardReader& reader, const Config& config, bool strict,
                           store::ReadQueue& queue, std::vector<std::span<std::byte>> slots,
                           std::size_t ahead, bool repeated)
    : reader_(reader),
      config_(config),
      strict_(strict),
      announced_(static_cast<std::size_t>(config.layers)),
      order_(static_cast<std::size_t>(config.layers)),
      stream_(
          queue, std::move(slots), ahead, static_cast<std::size_t>(config.layers * config.experts),
          [this](std::uint32_t wanted) { return locate(wanted); },
          repeated ? static_cast<std::size_t>(config.experts) : 0) {}

ExpertStream::Tensors ExpertStream::find(std::int64_t layer, std::int64_t expert) const {
  Tensors tensors{};
  for (std::size_t part = 0; part < 6; ++part) {
    const std::string name =
        fmt::format("{}block_sparse_moe.experts.{}.{}", layer_prefix(layer), expert, kParts[part]);
    const store::TensorEntry& entry = reader_.find(name);
    const std::vector<std::int64_t> want = shape_of_part(config_, part);
    if (entry.dtype != base::Dtype::kU8 || entry.shape != want) {
      throw Error("{}: tensor {} is {} [{}], the configuration wants U8 [{}]",
                  reader_.file_of(entry).path().string(), name, base::name_of(entry.dtype),
                  fmt::join(entry.shape, ","), fmt::join(want, ","));
    }
    tensors.entry[part] = &entry;
  }
  return tensors;
}

const std::vector<std::int32_t>& ExpertStream::order_on_disk(std::int64_t layer) {
  std::vector<std::int32_t>& order = order_[static_cast<std::size_t>(layer)];
  if (!order.empty()) return order;
  std::vector<std::pair<std::pair<std::int32_t, std::uint64_t>, std::int32_t>> places;
  for (std::int64_t expert = 0; expert < config_.experts; ++expert) {
    const store::TensorEntry& first = reader_.find(
        fmt::format("{}block_sparse_moe.experts.{}.{}", layer_prefix(layer), expert, kParts[0]));
    places.emplace_back(std::pair(first.shard, first.offset), static_cast<std::int32_t>(expert));
  }
  std::ranges::sort(places);
  for (const auto& [place, expert] : places) order.push_back(expert);
  return order;
}

ExpertSource ExpertStream::source(std::int64_t layer) {
  ExpertSource source;
  source.order = order_on_disk(layer);
  source.announce = [this, layer](std::span<const std::int32_t> experts) {
    std::vector<std::uint32_t>& keys = announced_[static_cast<std::size_t>(layer)];
    keys.clear();
    for (const std::int32_t expert : experts) keys.push_back(key(layer, expert));
    stream_.want(keys);
  };
  source.load = [this, layer](std::int32_t expert) { return load(layer, expert); };
  return source;
}

void ExpertStream::want_all_again() {
  std::vector<std::uint32_t> keys;
  for (auto layer = announced_.rbegin(); layer != announced_.rend(); ++layer) {
    keys.insert(keys.end(), layer->begin(), layer->end());
  }
  stream_.want(keys);
}

store::ReadList ExpertStream::locate(std::uint32_t wanted) const {
  store::ReadList list;
  for (const store::TensorEntry* entry :
       find(wanted / config_.experts, wanted % config_.experts).entry) {
    list.add(entry->shard, entry->offset, entry->bytes);
  }
  list.place();
  return list;
}

ops::ExpertWeights ExpertStream::load(std::int64_t layer, std::int32_t expert) {
  const store::BlockStream::Block block = stream_.next(key(layer, expert));
  const store::ReadList list = locate(key(layer, expert));
  const Tensors tensors = find(layer, expert);
  const auto at = [&](const store::TensorEntry& entry) {
    return block.slot.data() + list.at(entry.shard, entry.offset);
  };
  ops::Weight weights[3];
  for (std::size_t matrix = 0; matrix < 3; ++matrix) {
    const store::TensorEntry& packed = *tensors.entry[2 * matrix];
    const store::TensorEntry& scale = *tensors.entry[2 * matrix + 1];
    const auto [rows, cols] = extents(config_, matrix);
    weights[matrix] = {ops::WeightKind::kMxfp4, at(packed),
                       reinterpret_cast<const std::uint8_t*>(at(scale)), rows, cols};
    if (block.fresh) scan(weights[matrix], packed, scale);
  }
  return {weights[0], weights[1], weights[2]};
}

void ExpertStream::scan(const ops::Weight& w, const store::TensorEntry& packed,
                        const store::TensorEntry& scale) {
  const ops::Mxfp4Scan found = ops::scan_mxfp4(w);
  const std::string file = reader_.file_of(scale).path().string();
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
