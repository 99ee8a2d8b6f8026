#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/model/adapter_set.h"
#include "engine/model/batch.h"
#include "engine/model/config.h"
#include "engine/store/shard_reader.h"

namespace engine::model {

// How much memory each part of a sweep takes. Measured by running the code that lays the parts out,
// on arenas without memory: the plan cannot drift from what is allocated.
struct Plan {
  std::int64_t adapter_bytes = 0;      // adapters and what belongs to them, where still to be taken
  std::int64_t weights_bytes = 0;      // the largest half of a layer, or output mix and head band
  std::int64_t activations_bytes = 0;  // inside the largest half
  std::int64_t expert_bytes = 0;       // one routed expert
  std::int64_t residual_bytes = 0;     // running residual; the one that entered; gradient
  std::int64_t bank_bytes = 0;         // bank entries, and their gradients
  std::int64_t record_bytes = 0;       // routing and routed sum of one layer
  std::int64_t head_bytes = 0;         // logits of a band, loss state

  std::int64_t total_bytes() const;
  // One line a part.
  std::string table() const;
};

Plan plan_sweep(const store::ShardReader& reader, const Config& config, const Batch& batch,
                const AdapterSet* adapters, bool backward);

}  // namespace engine::model
