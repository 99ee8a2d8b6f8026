#pragma once

#include <filesystem>
#include <vector>

#include "engine/store/shard_table.h"

namespace engine::store {

// Compares model.safetensors.index.json with what the headers say; no index is no finding, for the
// headers are what is read. Findings: not JSON, no weight_map, a name that stands there twice, a
// file name that leaves the folder ("../x", absolute) or is no file of it, a tensor that is not
// there, that is in another file, or that the index does not have; and, as a warning, a total_size
// that is not the sum.
void check_index(const std::filesystem::path& path, const ShardTable& table,
                 std::vector<Finding>& findings);

}  // namespace engine::store
