#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
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
  // What the dump says it was made from, as far as it says so.
  std::optional<std::string> ids, config_sha256;
};

// A folder of raw files as the engine and the C reference write them; only h_layer_NNN.bin need be
// there.
// Errors    std::runtime_error naming the file whose size does not fit T
ForwardReference read_dump_folder(const std::filesystem::path& folder, std::int64_t tokens);

// An HDF5 dump, of the oracle (float64) or the engine (float32).
ForwardReference read_dump_file(const std::filesystem::path& file);

// The oracle's own forward, in this process.
ForwardReference oracle_reference(const std::filesystem::path& model,
                                  const std::vector<std::int32_t>& ids);

// Whether the reference was made from this model and these ids, as far as can be seen: the ids and
// the digest of the configuration where the dump holds them, and the shape of every array, layers
// included, in any case. To compare a dump of other ids gives a table of nonsense.
// Errors    std::runtime_error naming the dump, the place, and the two values that disagree
void require_fit(const ForwardReference& reference, const engine::model::Config& config,
                 const std::vector<std::int32_t>& ids);

}  // namespace checks
