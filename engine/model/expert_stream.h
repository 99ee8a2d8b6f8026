#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/model/config.h"
#include "engine/model/expert_source.h"
#include "engine/store/block_stream.h"

namespace engine::model {

// Brings routed experts from the checkpoint, one read each where the six tensors of an expert lie
// side by side (as they do in the release). Going up, reads begin when a layer's routing is known;
// going down, all of it is known.
class ExpertStream {
 public:
  // strict: a scale byte of 255 is an Error instead of being counted. repeated: every layer comes
  // again and again, and keeps a share of the slots, instead of the last layers for the way down.
  ExpertStream(const store::ShardReader& reader, const Config& config, bool strict,
               store::ReadQueue& queue, std::vector<std::span<std::byte>> slots, std::size_t ahead,
               bool repeated = false);

  // Bytes of one expert on disk, and of memory that holds one wherever its tensors lie.
  static std::int64_t bytes(const Config& config);
  static std::int64_t slot_bytes(const Config& config);

  // The experts of a layer, for one direction; what it loads holds until the next load.
  // Errors    Error naming the tensor: missing, another shape or dtype, a scale byte that overflows
  ExpertSource source(std::int64_t layer);
  // Everything that was announced last, layers downwards.
  void want_all_again();

  // MXFP4 groups under scale byte 255 among the experts as they were read.
  std::int64_t nan_groups() const { return nan_groups_; }
  std::int64_t nan_groups_with_codes() const { return nan_groups_with_codes_; }
  std::uint64_t bytes_saved() const { return stream_.bytes_saved(); }

 private:
  // w1.packed, w1.scale, w2.packed, w2.scale, w3.packed, w3.scale
  struct Tensors {
    const store::TensorEntry* entry[6];
  };
  Tensors find(std::int64_t layer, std::int64_t expert) const;
  const std::vector<std::int32_t>& order_on_disk(std::int64_t layer);
  std::uint32_t key(std::int64_t layer, std::int64_t expert) const {
    return static_cast<std::uint32_t>(layer * config_.experts + expert);
  }
  store::ReadList locate(std::uint32_t key) const;
  ops::ExpertWeights load(std::int64_t layer, std::int32_t expert);
  void scan(const ops::Weight& w, const store::TensorEntry& packed,
            const store::TensorEntry& scale);

  const store::ShardReader& reader_;
  const Config& config_;
  bool strict_;
  std::int64_t nan_groups_ = 0;
  std::int64_t nan_groups_with_codes_ = 0;
  std::vector<std::vector<std::uint32_t>> announced_;  // [layers] keys
  std::vector<std::vector<std::int32_t>> order_;       // [layers], empty where not asked for yet
  store::BlockStream stream_;
};

}  // namespace engine::model
