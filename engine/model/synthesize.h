#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "engine/base/budget.h"
#include "engine/model/shapes.h"

namespace engine::model {

struct WrittenFile {
  std::string name;
  std::uint64_t bytes = 0;
  std::int64_t tensors = 0;
};

// Writes a checkpoint in the released layout into the folder OUT: config.json, the shards
// model-NNNNN-of-NNNNN.safetensors, model.safetensors.index.json, and the tokenizer's two files
// (engine/model/vocabulary.h). Its bytes are a function of shape and seed alone, those of the
// tokenizer of the shape; every tensor's values are keyed by (seed, its name). As in the release,
// each layer's non-expert tensors are one contiguous run, the experts follow in an order that is
// not that of their ids, and the six tensors of an expert are contiguous in one shard. A layer's
// experts may go on in the next shard.
//
// Accuracy  bits
// Cost      memory for a part of a tensor, 32 MiB; one pass over the output, holes left out
// Errors    Error if OUT exists and is not an empty folder, for a real layer that the shape does not
//           have, if the budget cannot hold that memory, or for what the disk says (a sparse
//           checkpoint whose files may not be that long); nothing is left behind then
void synthesize(const std::filesystem::path& out, const CheckpointShape& shape, std::uint64_t seed,
                base::RamBudget& budget,
                const std::function<void(const WrittenFile&)>& written = {});

}  // namespace engine::model
