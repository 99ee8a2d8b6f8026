#pragma once

#include <vector>

#include "engine/model/config.h"
#include "engine/store/pack.h"
#include "engine/store/shard_reader.h"

namespace engine::model {

// What a packed copy holds: all that a sweep reads but the routed experts, in the order in which a
// sweep up reads it. A run is half a layer, a matrix of a dense MLP, the output mix with the final
// norm, the head, or the embedding.
// Errors    those of LayerBlocks
std::vector<store::PackRun> pack_order(const store::ShardReader& reader, const Config& config);

}  // namespace engine::model
