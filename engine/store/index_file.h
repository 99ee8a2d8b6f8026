#pragma once

#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "engine/store/shard_table.h"

namespace engine::store {

// How many tensors the index places in a shard that are in no header, and the first of them.
struct Unfound {
  std::size_t count = 0;
  std::string first;
};
using UnfoundByShard = std::map<std::string, Unfound>;

// Compares model.safetensors.index.json with what the headers say; no index is no finding, for the
// headers are what is read. Findings: not JSON, no weight_map, a name that stands there twice, a
// file name that leaves the folder ("../x", absolute), a tensor that is not there, that is in
// another file, or that the index does not have; and, as a warning, a total_size that is not the
// sum. `present` are the shards of the folder. The tensors of one that is not among them, or that
// is broken, are no findings here but counted in what is returned; they, and missing shards, are
// noted in the table.
UnfoundByShard check_index(const std::filesystem::path& path, const std::set<std::string>& present,
                           ShardTable& table, std::vector<Finding>& findings);

}  // namespace engine::store
