#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/base/arena.h"
#include "engine/model/config.h"
#include "engine/model/layer.h"
#include "engine/store/block_stream.h"

namespace engine::model {

// All weights but the routed experts and the embedding, as blocks that are read as one: the halves of
// every layer, the output mix with the final norm, the bands of the head. Knows where each lies, and
// views it in an arena, see WeightLoader. The three matrices of a dense MLP (half as much again as
// the largest other half, in the release) are blocks of their own, cut into bands of rows if need be:
// a dense layer takes no more memory than any other. How many bands depends on the model alone, not
// on the memory budget, so that the bytes of a sweep do not either.
class LayerBlocks {
 public:
  // dense_band_rows: of the dense matrices; 0: as many as are no larger than the largest other block.
  // Errors    those of WeightLoader
  LayerBlocks(const store::ShardReader& reader, const Config& config,
              std::int64_t dense_band_rows = 0);

  std::uint32_t attention(std::int64_t layer) const {
    return static_cast<std::uint32_t>(2 * layer);
  }
  std::uint32_t mlp(std::int64_t layer) const { return attention(layer) + 1; }
  std::uint32_t output_mix() const { return attention(config_.layers); }
  std::uint32_t band(std::int64_t band) const {
    return output_mix() + 1 + static_cast<std::uint32_t>(band);
  }
  std::int64_t bands() const;
  bool is_dense(std::int64_t layer) const { return config_.is_dense(layer); }
  std::int64_t dense_bands(std::int64_t layer, DensePart part) const {
    return dense(layer, part).bands;
  }
  std::uint32_t dense_band(std::int64_t layer, DensePart part, std::int64_t band) const {
    return dense(layer, part).first + static_cast<std::uint32_t>(band);
  }
  std::uint32_t count() const { return static_cast<std::uint32_t>(lists_.size()); }
  const store::ReadList& list(std::uint32_t block) const { return lists_[block]; }
  // Memory of the largest, all in all.
  std::int64_t slot_bytes() const { return slot_bytes_; }

  AttentionHalf load_attention(std::int64_t layer, base::Arena& arena) const;
  // Of a dense MLP the mix, and how many bands there are, not how to come by them.
  MlpHalf load_mlp(std::int64_t layer, base::Arena& arena) const;
  ops::Weight load_dense_band(std::int64_t layer, DensePart part, std::int64_t band,
                              base::Arena& arena) const;
  MixWeights load_output_mix(base::Arena& arena) const;
  ops::Weight load_band(std::int64_t band, base::Arena& arena) const;

 private:
  struct Dense {
    DenseMatrix matrix;
    std::int64_t band_rows = 0;
    std::int64_t bands = 0;
    std::uint32_t first = 0;  // block of the first band
  };
  const Dense& dense(std::int64_t layer, DensePart part) const {
    return dense_[static_cast<std::size_t>(3 * layer + static_cast<std::int64_t>(part))];
  }
  struct Block {
    store::ReadList list;
    std::int64_t bytes = 0;  // of memory
  };
  template <class Load>
  Block lay_out(const Load& load) const;
  template <class Load>
  void add(const Load& load);
  void add_dense(std::int64_t layer, DensePart part, std::int64_t band_rows);
  ops::Weight load_rows(WeightLoader& loader, const Dense& dense, std::int64_t band) const;

  const store::ShardReader& reader_;
  const Config& config_;
  std::vector<store::ReadList> lists_;
  std::vector<Dense> dense_;  // [dense layers][3]
  std::int64_t slot_bytes_ = 0;
};

// They are used in an order that is known before the walk begins: up, the head, and, for a gradient,
// the head once more and down. What is returned holds until the next call; the mix of a dense MLP,
// while its bands are asked for.
class LayerStream {
 public:
  LayerStream(const LayerBlocks& blocks, store::ReadQueue& queue,
              std::vector<std::span<std::byte>> slots, std::size_t ahead);

  void want_layer(std::int64_t layer, bool backward);
  void want_sweep(std::int64_t layers, bool backward);

  // Errors    those of reading
  AttentionHalf attention(std::int64_t layer);
  MlpHalf mlp(std::int64_t layer);
  MixWeights output_mix();
  ops::Weight band(std::int64_t band);

  std::uint64_t bytes_saved() const { return stream_.bytes_saved(); }

 private:
  base::Arena next(std::uint32_t block) { return base::Arena(stream_.next(block).slot); }
  void append_mlp(std::vector<std::uint32_t>& order, std::int64_t layer, bool backward) const;
  BandedMatrix banded(std::int64_t layer, DensePart part);

  const LayerBlocks& blocks_;
  store::BlockStream stream_;
  std::vector<float> dense_mix_;  // outlives its block, as the bands come one after the other
};

}  // namespace engine::model
