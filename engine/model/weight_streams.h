#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "engine/base/budget.h"
#include "engine/model/expert_stream.h"
#include "engine/model/layer_stream.h"
#include "engine/model/model.h"
#include "engine/model/plan.h"
#include "engine/store/read_queue.h"

namespace engine::model {

// The slots that a plan has for halves and experts, and the two streams that read into them. Of one
// sweep; or of many, which then find what the one before left there.
class WeightStreams {
 public:
  // Errors    Error if the budget cannot hold the slots
  WeightStreams(const store::ShardReader& reader, const LayerBlocks& blocks, const Config& config,
                base::RamBudget& budget, const ModelOptions& options, const Plan& plan);

  LayerStream& layers() { return *layers_; }
  ExpertStream& experts() { return *experts_; }

 private:
  // Streams before the queue, slots before both, so that nothing reads into what is gone.
  std::vector<base::Buffer<std::byte>> slots_;
  std::optional<store::ReadQueue> queue_;
  std::optional<LayerStream> layers_;
  std::optional<ExpertStream> experts_;
};

}  // namespace engine::model
