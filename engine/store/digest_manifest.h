#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

namespace engine::store {

// One object of the manifest's lists "shards" (file, bytes, header_sha256) and "tensors" (name,
// shard, offset, bytes, sha256); what a row does not have stays empty.
struct ManifestRow {
  std::string name;
  std::string file;  // "file" or "shard"
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  std::string sha256;  // "sha256" or "header_sha256"
};

// Reads a manifest row by row: half a million of them need not be in memory. Returns its config_sha256.
// Errors    Error naming the file: not JSON, another format, an unknown or missing field, or a key
//           that stands there twice
std::string read_manifest(const std::filesystem::path& path,
                          const std::function<void(const ManifestRow&)>& shard,
                          const std::function<void(const ManifestRow&)>& tensor);

// Its first line.
inline constexpr const char* kManifestFormat = "lazylora digests 1";

}  // namespace engine::store
