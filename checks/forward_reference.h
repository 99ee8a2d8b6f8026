#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "checks/reference.h"
#include "engine/model/config.h"

namespace checks {

// Interior values of a forward pass made by somebody else, under the names of the dumps
// ("h_layer_003", "route_idx_003", "logits", ...), each [T, width].
struct ForwardReference {
  std::string name;
  NamedTensors values;
};

// A folder of raw files as the C reference writes them; only h_layer_NNN.bin need be there.
// Errors    std::runtime_error naming the file whose size does not fit T
ForwardReference read_dump_folder(const std::filesystem::path& folder, std::int64_t tokens);

// An HDF5 dump, of the oracle (float64) or the engine (float32).
ForwardReference read_dump_file(const std::filesystem::path& file);

// The oracle's own forward, in this process.
ForwardReference oracle_reference(const std::filesystem::path& model,
                                  const std::vector<std::int32_t>& ids);

}  // namespace checks
