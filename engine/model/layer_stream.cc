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

template <class Load>
LayerBlocks::Block LayerBlocks::lay_out(const Load& load) const {
  Block block;
  WeightLoader noting(reader_, block.list);
  load(noting);
  block.list.place();
  base::Arena arena;
  WeightLoader measuring(reader_, block.list, arena);
  load(measuring);
  block.bytes = static_cast<std::int64_t>(arena.peak_bytes());
  return block;
}

template <class Load>
void LayerBlocks::add(const Load& load) {
  Block block = lay_out(load);
  slot_bytes_ = std::max(slot_bytes_, block.bytes);
  lists_.push_back(std::move(block.list));
}

LayerBlocks::LayerBlocks(const store::ShardReader& reader, const Config& config,
                         std::int64_t dense_band_rows)
    : reader_(reader), config_(config) {
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    add([&](WeightLoader& loader) { load_attention_half(loader, config, layer); });
    add([&](WeightLoader& loader) { load_mlp_half(loader, config, layer); });
  }
  add([&](WeightLoader& loader) { model::load_output_mix(loader, config); });
  for (std::int64_t band = 0; band < bands(); ++band) {
    add([&](WeightLoader& loader) { load_head_band(loader, config, band); });
  }
  for (std::int64_t layer = 0; layer < std::min(config.dense_layers, config.layers); ++layer) {
    for (const DensePart part : kDenseParts) add_dense(layer, part, dense_band_rows);
  }
  // Slots lie one behind the other, each on a block border.
  const auto block = static_cast<std::int64_t>(store::kBlock);
  slot_bytes_ = (slot_bytes_ + block - 1) / block * block;
}

void LayerBlocks::add_dense(std::int64_t layer, DensePart part, std::int64_t band_rows) {
  const DenseMatrix matrix = dense_matrix(config_, layer, part);
  Dense dense{matrix, matrix.rows, 1, count()};
  if (band_rows == 0) {
    const std::int64_t whole =
        lay_out([&](WeightLoader& loader) { load_rows(loader, dense, 0); }).bytes;
    // Every band has the blocks around it to itself.
    const std::int64_t most = slot_bytes_ - 3 * static_cast<std::int64_t>(store::kBlock);
    band_rows =
        whole <= slot_bytes_ ? matrix.rows : matrix.rows * std::max(most, std::int64_t{1}) / whole;
  }
  dense.band_rows = std::clamp(band_rows, std::int64_t{1}, matrix.rows);
  dense.bands = (matrix.rows + dense.band_rows - 1) / dense.band_rows;
  dense_.push_back(dense);
  for (std::int64_t band = 0; band < dense.bands; ++band) {
    add([&](WeightLoader& loader) { load_rows(loader, dense, band); });
  }
}

ops::Weight LayerBlocks::load_rows(WeightLoader& loader, const Dense& dense,
                                   std::int64_t band) const {
  const std::int64_t first = band * dense.band_rows;
  return loader.matrix_rows(dense.matrix.name, dense.matrix.rows, dense.matrix.cols, first,
                            std::min(dense.band_rows, dense.matrix.rows - first));
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
  MlpHalf half = load_mlp_half(loader, config_, layer);
  if (auto* const bands = std::get_if<DenseBands>(&half.mlp)) {
    bands->gate.bands = dense_bands(layer, DensePart::kGate);
    bands->up.bands = dense_bands(layer, DensePart::kUp);
    bands->down.bands = dense_bands(layer, DensePart::kDown);
  }
  return half;
}

ops::Weight LayerBlocks::load_dense_band(std::int64_t layer, DensePart part, std::int64_t band,
                                         base::Arena& arena) const {
  WeightLoader loader(reader_, lists_[dense_band(layer, part, band)], arena);
  return load_rows(loader, dense(layer, part), band);
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

// The order in which glu_forward and glu_backward ask for the bands.
void LayerStream::append_mlp(std::vector<std::uint32_t>& order, std::int64_t layer,
                             bool backward) const {
  order.push_back(blocks_.mlp(layer));
  if (!blocks_.is_dense(layer)) return;
  const auto append = [&](DensePart part) {
    for (std::int64_t band = 0; band < blocks_.dense_bands(layer, part); ++band) {
      order.push_back(blocks_.dense_band(layer, part, band));
    }
  };
  using enum DensePart;
  const std::vector<DensePart> parts =
      backward ? std::vector{kDown, kUp, kGate, kGate, kUp} : std::vector{kGate, kUp, kDown};
  for (const DensePart part : parts) append(part);
}

void LayerStream::want_layer(std::int64_t layer, bool backward) {
  std::vector<std::uint32_t> order{blocks_.attention(layer)};
  append_mlp(order, layer, false);
  if (backward) {
    append_mlp(order, layer, true);
    order.push_back(blocks_.attention(layer));
  }
  stream_.want(order);
}

void LayerStream::want_sweep(std::int64_t layers, bool backward) {
  std::vector<std::uint32_t> order, head;
  for (std::int64_t band = 0; band < blocks_.bands(); ++band) head.push_back(blocks_.band(band));
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    order.push_back(blocks_.attention(layer));
    append_mlp(order, layer, false);
  }
  order.push_back(blocks_.output_mix());
  order.insert(order.end(), head.begin(), head.end());
  if (backward) {
    // The bands go upwards both times: the order of a sum is the order of its bits.
    order.insert(order.end(), head.begin(), head.end());
    order.push_back(blocks_.output_mix());
    for (std::int64_t layer = layers - 1; layer >= 0; --layer) {
      append_mlp(order, layer, true);
      order.push_back(blocks_.attention(layer));
    }
  }
  stream_.want(order);
}

BandedMatrix LayerStream::banded(std::int64_t layer, DensePart part) {
  return {blocks_.dense_bands(layer, part), [this, layer, part](std::int64_t band) {
            base::Arena arena = next(blocks_.dense_band(layer, part, band));
            return blocks_.load_dense_band(layer, part, band, arena);
          }};
}

AttentionHalf LayerStream::attention(std::int64_t layer) {
  base::Arena arena = next(blocks_.attention(layer));
  return blocks_.load_attention(layer, arena);
}

MlpHalf LayerStream::mlp(std::int64_t layer) {
  base::Arena arena = next(blocks_.mlp(layer));
  MlpHalf half = blocks_.load_mlp(layer, arena);
  if (!std::holds_alternative<DenseBands>(half.mlp)) return half;
  half.mlp = DenseBands{banded(layer, DensePart::kGate), banded(layer, DensePart::kUp),
                        banded(layer, DensePart::kDown)};
  dense_mix_.clear();
  for (const std::span<const float> part : {half.mix.res_norm, half.mix.res_proj, half.mix.norm}) {
    dense_mix_.insert(dense_mix_.end(), part.begin(), part.end());
  }
  const std::span<const float> kept(dense_mix_);
  const std::size_t wide = half.mix.norm.size();
  half.mix = {kept.first(wide), kept.subspan(wide, wide), kept.subspan(2 * wide)};
  return half;
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
