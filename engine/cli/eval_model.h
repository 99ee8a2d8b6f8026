#pragma once

#include <string>

#include "engine/cli/common.h"
#include "engine/measure/preregistration.h"

namespace engine::cli {

// The model of a verdict, for `preregister`, `train` and `eval` in the same words. `digests` may be empty.
// Errors    Error naming the file of the tokenizer that is not there, or `digests`: no manifest of
//           `lazylora shards --write-digests`, or of another config.json
measure::RegisteredModel model_of(const model::Config& config, const store::ShardReader& shards,
                                  const std::string& digests);

// Nothing of another model or another tokenizer is trained for a registration or judged by it; one of format 1 left
// them free. What may be missing `here` are the digests.
// Errors    Error naming the file in `folder` and both digests
void require_registered(const measure::RegisteredModel& here,
                        const measure::Preregistration& registered, const std::string& registration,
                        const std::string& folder);

// What a verdict says of the weights. `verified`: SHA-256 of the digests that they were held against, or empty.
std::string words_of_weights(const std::string& verified,
                             const measure::RegisteredModel& registered);

}  // namespace engine::cli
