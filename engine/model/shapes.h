#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/model/config.h"

namespace engine::model {

// The sizes of a checkpoint that make-model can write.
struct CheckpointShape {
  Config config;            // sha256 empty
  std::int64_t shards = 0;  // weight files
  // Files with holes: the matrices of a layer are zero, but for its router, unless it is listed.
  bool sparse = false;
  std::vector<std::int64_t> real_layers = {};
};

// tiny      6.9 MB: hidden, latent and inner widths all different; for checks
// small     115 MB: the same depth
// medium   1576 MB: blocks of 12 as in the release; for memory and speed
// full-sparse  all sizes of the release, 1.56 TB of which all but some GB are holes; for memory
// Errors    Error naming the shape and those there are
CheckpointShape checkpoint_shape(std::string_view name);

// config.json in the layout of the release: nested, layer lists one-based.
std::string config_json(const Config& config);

}  // namespace engine::model
