#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "engine/store/file.h"
#include "engine/store/finding.h"
#include "engine/store/safetensors_header.h"
#include "engine/store/shard_reader.h"

namespace engine::store {

// All tensors of a folder in memory, compactly: 64 bytes an entry, its name, and a share of the few
// different shapes.
struct ShardTable {
  std::filesystem::path folder;
  std::vector<File> files;
  std::vector<std::string> header_sha256;  // [file]
  std::vector<TensorEntry> entries;        // in (shard, offset) order
  std::vector<std::uint32_t> by_name;      // indices into entries

  // The entry of that name; nothing if there is none.
  const TensorEntry* find(std::string_view name) const;
  std::string file_name(const TensorEntry& entry) const;

  // Names of shards that are there but could not be read, or whose headers have errors; and of
  // shards that ought to be there: the index, or another shard's name (3 of 9), says so.
  std::set<std::string> broken;
  std::set<std::string> missing;
  // The tensors that the index places in one of these and that no header has.
  std::unordered_set<std::string> lost;
  bool has_index = false;
  // Whether a tensor that is not here may be in a shard that could not be read.
  bool may_be_lost(std::string_view name) const;

  std::vector<std::unique_ptr<char[]>> names;  // one block a file
  std::set<std::vector<std::int64_t>> shapes;
};

// Opens and checks every *.safetensors of the folder, then the names across files, then the index.
// Missing shards come first among the findings, whatever follows from them after: the tensors of a
// shard that is missing or broken are one finding, not one each.
// Errors    Error only if the folder cannot be listed
ShardTable scan_folder(const std::filesystem::path& folder, const ReadSettings& settings,
                       std::vector<Finding>& findings);

}  // namespace engine::store
