#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/model/config.h"
#include "engine/model/expert_source.h"
#include "engine/store/shard_reader.h"

namespace engine::model {

// Brings routed experts from the checkpoint, one at a time, one read each where the six tensors of
// an expert lie side by side (as they do in the release).
class ExpertReader {
 public:
  // strict: a scale byte of 255 is an Error instead of being counted.
  ExpertReader(const store::ShardReader& reader, const Config& config, bool strict)
      : reader_(reader), config_(config), strict_(strict) {}

  // Bytes of one expert in memory.
  static std::int64_t bytes(const Config& config);

  // The experts of a layer; `buffer` (bytes() long) holds the one that was loaded last.
  // Errors    Error naming the tensor: missing, another shape or dtype, a scale byte that overflows
  ExpertSource source(std::int64_t layer, std::span<std::byte> buffer);

  // MXFP4 groups under scale byte 255 among the experts loaded since clear_counts().
  std::int64_t nan_groups() const { return nan_groups_; }
  std::int64_t nan_groups_with_codes() const { return nan_groups_with_codes_; }
  void clear_counts() { nan_groups_ = nan_groups_with_codes_ = 0; }

 private:
  // w1.packed, w1.scale, w2.packed, w2.scale, w3.packed, w3.scale
  struct Tensors {
    const store::TensorEntry* entry[6];
  };
  Tensors find(std::int64_t layer, std::int64_t expert) const;
  ops::ExpertWeights load(const Tensors& tensors, std::span<std::byte> buffer);
  void scan(const ops::Weight& w, const store::TensorEntry& packed,
            const store::TensorEntry& scale);

  const store::ShardReader& reader_;
  const Config& config_;
  bool strict_;
  std::int64_t nan_groups_ = 0;
  std::int64_t nan_groups_with_codes_ = 0;
};

}  // namespace engine::model
