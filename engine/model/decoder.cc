#include "engine/model/decoder.h"

#include <algorithm>
#include <array>
#include <cassert>

#include "engine/base/error.h"

namespace engine::model {
namespace {

Batch batch_of(std::span<const std::int32_t> tokens) {
  Batch batch;
  batch.tokens.assign(tokens.begin(), tokens.end());
  batch.targets.assign(tokens.size(), -1);
  batch.documents = {0, batch.size()};
  return batch;
}

}  // namespace

// Part by part the larger of two sweeps: the last of the prompt, and the last token, which looks at
// most others. All that come before take less of each part.
Plan Decoder::plan_for(std::int64_t at_once) {
  const auto sweep = [&](std::int64_t tokens, std::int64_t before) {
    CarriedState then(config_, length_.most);
    then.advance(before);
    const std::array<std::int64_t, 2> documents = {0, tokens};
    return plan_sweep(blocks_, config_, documents, adapters_, false, &then);
  };
  Plan plan = sweep(at_once, length_.prompt - at_once);
  const Plan last = sweep(1, length_.most - 1);
  for (std::int64_t Plan::*part : {&Plan::activations_bytes, &Plan::residual_bytes,
                                   &Plan::bank_bytes, &Plan::record_bytes, &Plan::head_bytes}) {
    plan.*part = std::max(plan.*part, last.*part);
  }
  return plan;
}

Decoder::Decoder(const store::ShardReader& reader, const LayerBlocks& blocks, const Config& config,
                 base::RamBudget& budget, const ModelOptions& options, const AdapterSet* adapters,
                 const Length& length)
    : reader_(reader),
      blocks_(blocks),
      config_(config),
      budget_(budget),
      options_(options),
      adapters_(adapters),
      length_(length),
      most_at_once_(length.prompt),
      carried_(config, length.most) {
  assert(length.prompt >= 1 && length.most >= length.prompt);
  // In pieces, the prompt wants some experts more than once; so as few as there can be.
  plan_ = plan_for(most_at_once_);
  while (static_cast<std::uint64_t>(plan_.total_bytes()) > budget.free_bytes() &&
         most_at_once_ > 1) {
    most_at_once_ = (most_at_once_ + 1) / 2;
    plan_ = plan_for(most_at_once_);
  }
  if (static_cast<std::uint64_t>(plan_.total_bytes()) > budget.free_bytes()) {
    throw base::Error(
        "memory budget: a sequence of {} tokens, one at a time, needs {}, {} of {} are "
        "free\nneeded:\n{}held already:\n{}",
        length.most, base::format_bytes(static_cast<std::uint64_t>(plan_.total_bytes())),
        base::format_bytes(budget.free_bytes()), base::format_bytes(budget.limit_bytes()),
        plan_.table(), budget.table());
  }
  plan_.spend(budget.free_bytes());
  carried_ = CarriedState(config, length.most, budget);
  streams_.emplace(reader, blocks, config, budget, options, plan_);
}

SweepResult Decoder::run(std::span<const std::int32_t> tokens, const SweepHooks& hooks) {
  const auto count = static_cast<std::int64_t>(tokens.size());
  assert(count >= 1 && count <= most_at_once_);
  if (!wanted_) streams_->layers().want_sweep(config_.layers, false);
  // One sweep more is known than is run, so that its halves are kept rather than others, and read
  // while this one ends.
  wanted_ = carried_.tokens() + count < length_.most;
  if (wanted_) streams_->layers().want_sweep(config_.layers, false);
  const Batch batch = batch_of(tokens);
  return Sweep(reader_, blocks_, config_, budget_, options_, batch, adapters_, false, hooks,
               {&carried_, &*streams_})
      .run();
}

}  // namespace engine::model
