#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "engine/model/carried_state.h"
#include "engine/model/sweep.h"
#include "engine/model/weight_streams.h"

namespace engine::model {

// One sequence, token by token: each sweep over the layers computes the next tokens alone, from what
// earlier sweeps carried forward. Halves of layers and experts stay in their slots from sweep to
// sweep as far as the budget goes.
//
// Accuracy  bits: however a sequence is cut into sweeps, its logits are those of one sweep over all
//           of it, at every budget and number of threads
// Cost      a token reads what no slot holds of all halves and of the experts it chooses
class Decoder {
 public:
  struct Length {
    std::int64_t prompt = 0;  // tokens known before; they go in sweeps as long as the budget allows
    std::int64_t most = 0;    // tokens to be run in all, the prompt's included
  };
  // Takes slots and carried state from the budget, and leaves room for a sweep.
  // Errors    Error with the plan's table if the budget cannot hold it with one token a sweep
  Decoder(const store::ShardReader& reader, const LayerBlocks& blocks, const Config& config,
          base::RamBudget& budget, const ModelOptions& options, const AdapterSet* adapters,
          const Length& length);

  // One sweep over the next tokens, at most `most_at_once` of them. hooks.logits gets their rows.
  // Errors    those of a sweep, after which nothing can be continued
  SweepResult run(std::span<const std::int32_t> tokens, const SweepHooks& hooks = {});

  std::int64_t most_at_once() const { return most_at_once_; }
  const Plan& plan() const { return plan_; }
  // Of all sweeps so far: experts that were wanted and lay in memory.
  std::uint64_t expert_bytes_saved() { return streams_->experts().bytes_saved(); }
  CarriedState& carried() { return carried_; }

 private:
  Plan plan_for(std::int64_t at_once);

  const store::ShardReader& reader_;
  const LayerBlocks& blocks_;
  const Config& config_;
  base::RamBudget& budget_;
  const ModelOptions& options_;
  const AdapterSet* adapters_;
  Length length_;
  Plan plan_;
  std::int64_t most_at_once_;
  CarriedState carried_;
  std::optional<WeightStreams> streams_;
  bool wanted_ = false;  // whether the streams know of the sweep that comes
};

}  // namespace engine::model
