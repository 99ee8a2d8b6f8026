#include "engine/model/weight_streams.h"

#include <utility>

namespace engine::model {

WeightStreams::WeightStreams(const store::ShardReader& reader, const LayerBlocks& blocks,
                             const Config& config, base::RamBudget& budget,
                             const ModelOptions& options, const Plan& plan) {
  const auto take = [&](std::vector<std::span<std::byte>>& slots, const char* name,
                        std::int64_t count, std::int64_t bytes) {
    slots_.push_back(budget.take_room(name, count * bytes));
    for (std::int64_t i = 0; i < count; ++i) {
      slots.push_back(slots_.back().span().subspan(static_cast<std::size_t>(i * bytes),
                                                   static_cast<std::size_t>(bytes)));
    }
  };
  const std::int64_t halves_ahead = plan.weights_ahead();
  std::vector<std::span<std::byte>> halves, experts;
  take(halves, "weights of half a layer", 1, plan.weights_bytes);
  take(halves, "halves read ahead", halves_ahead, plan.weights_bytes);
  take(halves, plan.halves_kept_name(), plan.weights_slots - 1 - halves_ahead, plan.weights_bytes);
  const std::int64_t experts_ahead = plan.experts_ahead();
  take(experts, "one expert", 1, plan.expert_bytes);
  take(experts, "experts read ahead", experts_ahead, plan.expert_bytes);
  take(experts, plan.experts_kept_name(), plan.expert_slots - 1 - experts_ahead, plan.expert_bytes);
  queue_.emplace(reader, options.queue);
  layers_.emplace(blocks, *queue_, std::move(halves), static_cast<std::size_t>(halves_ahead));
  experts_.emplace(reader, config, options.strict, *queue_, std::move(experts),
                   static_cast<std::size_t>(experts_ahead), plan.repeated);
}

}  // namespace engine::model
