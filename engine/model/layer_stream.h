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
// views it in an arena, see WeightLoader.
class LayerBlocks {
 public:
  // Errors    those of WeightLoader
  LayerBlocks(const store::ShardReader& reader, const Config& config);

  std::uint32_t attention(std::int64_t layer) const {
    return static_cast<std::uint32_t>(2 * layer);
  }
  std::uint32_t mlp(std::int64_t layer) const { return attention(layer) + 1; }
  std::uint32_t output_mix() const { return attention(config_.layers); }
  std::uint32_t band(std::int64_t band) const {
    return output_mix() + 1 + static_cast<std::uint32_t>(band);
  }
  std::int64_t bands() const;
  std::uint32_t count() const { return band(bands()); }
  const store::ReadList& list(std::uint32_t block) const { return lists_[block]; }
  // Memory of the largest, all in all.
  std::int64_t slot_bytes() const { return slot_bytes_; }

  AttentionHalf load_attention(std::int64_t layer, base::Arena& arena) const;
  MlpHalf load_mlp(std::int64_t layer, base::Arena& arena) const;
  MixWeights load_output_mix(base::Arena& arena) const;
  ops::Weight load_band(std::int64_t band, base::Arena& arena) const;

 private:
  const store::ShardReader& reader_;
  const Config& config_;
  std::vector<store::ReadList> lists_;
  std::int64_t slot_bytes_ = 0;
};

// They are used in an order that is known before the walk begins: up, the head, and, for a gradient,
// the head once more and down. What is returned holds until the next call.
class LayerStream {
 public:
  LayerStream(const LayerBlocks& blocks, store::ReadQueue& queue,
              std::vector<std::span<std::byte>> slots, std::size_t ahead);

  void want_layer(std::int64_t layer);
  void want_sweep(std::int64_t layers, bool backward);

  // Errors    those of reading
  AttentionHalf attention(std::int64_t layer);
  MlpHalf mlp(std::int64_t layer);
  MixWeights output_mix();
  ops::Weight band(std::int64_t band);

  std::uint64_t bytes_saved() const { return stream_.bytes_saved(); }

 private:
  base::Arena next(std::uint32_t block) { return base::Arena(stream_.next(block).slot); }

  const LayerBlocks& blocks_;
  store::BlockStream stream_;
};

}  // namespace engine::model
