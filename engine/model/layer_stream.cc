#include "engine/model/layer_stream.h"

#include <algorithm>
#include <utility>

#include "engine/ops/cross_entropy.h"

namespace engine::model {
namespace {

constexpr const char* kHead = "language_model.lm_head.weight";

ops::Weight load_head_band(WeightLoader& loader, const Config& config, std::int64_t band) {
  const std::int64_t first = band * ops::kVocabBand;
  return loader.matrix_rows(kHead, config.vocabulary, config.hidden, first,
                            std::min(ops::kVocabBand, config.vocabulary - first));
}

}  // namespace

LayerBlocks::LayerBlocks(const store::ShardReader& reader, const Config& config)
    : reader_(reader), config_(config) {
  const auto add = [&](const auto& load) {
    store::ReadList list;
    WeightLoader noting(reader, list);
    load(noting);
    list.place();
    base::Arena arena;
    WeightLoader measuring(reader, list, arena);
    load(measuring);
    slot_bytes_ = std::max(slot_bytes_, static_cast<std::int64_t>(arena.peak_bytes()));
    lists_.push_back(std::move(list));
  };
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    add([&](WeightLoader& loader) { load_attention_half(loader, config, layer); });
    add([&](WeightLoader& loader) { load_mlp_half(loader, config, layer); });
  }
  add([&](WeightLoader& loader) { model::load_output_mix(loader, config); });
  for (std::int64_t band = 0; band < bands(); ++band) {
    add([&](WeightLoader& loader) { load_head_band(loader, config, band); });
  }
  // Slots lie one behind the other, each on a block border.
  const auto block = static_cast<std::int64_t>(store::kBlock);
  slot_bytes_ = (slot_bytes_ + block - 1) / block * block;
}

std::int64_t LayerBlocks::bands() const {
  return (config_.vocabulary + ops::kVocabBand - 1) / ops::kVocabBand;
}

AttentionHalf LayerBlocks::load_attention(std::int64_t layer, base::Arena& arena) const {
  WeightLoader loader(reader_, lists_[attention(layer)], arena);
  return load_attention_half(loader, config_, layer);
}

MlpHalf LayerBlocks::load_mlp(std::int64_t layer, base::Arena& arena) const {
  WeightLoader loader(reader_, lists_[mlp(layer)], arena);
  return load_mlp_half(loader, config_, layer);
}

MixWeights LayerBlocks::load_output_mix(base::Arena& arena) const {
  WeightLoader loader(reader_, lists_[output_mix()], arena);
  return model::load_output_mix(loader, config_);
}

ops::Weight LayerBlocks::load_band(std::int64_t band_index, base::Arena& arena) const {
  WeightLoader loader(reader_, lists_[band(band_index)], arena);
  return load_head_band(loader, config_, band_index);
}

LayerStream::LayerStream(const LayerBlocks& blocks, store::ReadQueue& queue,
                         std::vector<std::span<std::byte>> slots, std::size_t ahead)
    : blocks_(blocks),
      stream_(queue, std::move(slots), ahead, blocks.count(),
              [&blocks](std::uint32_t block) { return blocks.list(block); }) {}

void LayerStream::want_layer(std::int64_t layer) {
  stream_.want(std::vector{blocks_.attention(layer), blocks_.mlp(layer)});
}

void LayerStream::want_sweep(std::int64_t layers, bool backward) {
  std::vector<std::uint32_t> order;
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    order.push_back(blocks_.attention(layer));
    order.push_back(blocks_.mlp(layer));
  }
  std::vector<std::uint32_t> head;
  for (std::int64_t band = 0; band < blocks_.bands(); ++band) head.push_back(blocks_.band(band));
  std::vector<std::uint32_t> down(order.rbegin(), order.rend());
  order.push_back(blocks_.output_mix());
  order.insert(order.end(), head.begin(), head.end());
  if (backward) {
    // The bands go upwards both times: the order of a sum is the order of its bits.
    order.insert(order.end(), head.begin(), head.end());
    order.push_back(blocks_.output_mix());
    order.insert(order.end(), down.begin(), down.end());
  }
  stream_.want(order);
}

AttentionHalf LayerStream::attention(std::int64_t layer) {
  base::Arena arena = next(blocks_.attention(layer));
  return blocks_.load_attention(layer, arena);
}

MlpHalf LayerStream::mlp(std::int64_t layer) {
  base::Arena arena = next(blocks_.mlp(layer));
  return blocks_.load_mlp(layer, arena);
}

MixWeights LayerStream::output_mix() {
  base::Arena arena = next(blocks_.output_mix());
  return blocks_.load_output_mix(arena);
}

ops::Weight LayerStream::band(std::int64_t band) {
  base::Arena arena = next(blocks_.band(band));
  return blocks_.load_band(band, arena);
}

}  // namespace engine::model
