#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "engine/base/dtype.h"
#include "engine/store/shard_reader.h"

namespace engine::store {

// pack.json: what stands in a packed copy, and of which checkpoint it is one.
//   {"format": "lazylora pack 1", "config_sha256": "...",
//    "checkpoint": [{"file", "bytes", "header_sha256"}, ...],
//    "copy": {"file", "bytes", "header_sha256"},
//    "tensors": [{"name", "dtype", "shape", "shard", "offset", "sha256"}, ...]}
struct PackIndex {
  struct Shard {
    std::string file;
    std::uint64_t bytes = 0;
    std::string header_sha256;
    bool operator==(const Shard&) const = default;
  };
  struct Tensor {
    std::string name;
    base::Dtype dtype = base::Dtype::kU8;
    std::vector<std::int64_t> shape;
    std::string shard;  // of the checkpoint
    std::uint64_t offset = 0;
    std::string sha256;
  };
  std::string config_sha256;
  std::vector<Shard> checkpoint;
  Shard copy;
  std::vector<Tensor> tensors;
};

// The files of a folder as an index has them.
std::vector<PackIndex::Shard> shards_of(const ShardReader& reader);

void write_pack_index(const std::filesystem::path& path, const PackIndex& index);

// Errors    Error naming the file: not strict JSON, another format, a field that is missing, unknown
//           or of the wrong type
PackIndex read_pack_index(const std::filesystem::path& path);

}  // namespace engine::store
