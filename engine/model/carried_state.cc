#include "engine/model/carried_state.h"

#include <cassert>

namespace engine::model {

CarriedState::CarriedState(const Config& config, std::int64_t most_tokens)
    : most_tokens_(most_tokens),
      kda_(static_cast<std::size_t>(config.layers)),
      mla_(static_cast<std::size_t>(config.layers)) {
  base::Arena measuring;
  lay_out(config, measuring);
  bytes_ = static_cast<std::int64_t>(measuring.peak_bytes());
}

CarriedState::CarriedState(const Config& config, std::int64_t most_tokens, base::RamBudget& budget)
    : CarriedState(config, most_tokens) {
  memory_ = budget.take<std::byte>("carried from token to token", bytes_);
  base::Arena arena(memory_.span());
  lay_out(config, arena);
}

void CarriedState::lay_out(const Config& config, base::Arena& arena) {
  for (std::size_t layer = 0; layer < kda_.size(); ++layer) {
    if (config.is_mla[layer]) {
      mla_[layer].latent = arena.take<float>(most_tokens_ * config.kv_lora_rank);
      mla_[layer].rope = arena.take<float>(most_tokens_ * config.rope_width);
      continue;
    }
    const std::int64_t tail = (config.conv_kernel - 1) * config.kda_inner();
    Kda& kda = kda_[layer];
    for (std::span<float>* field : {&kda.q_tail, &kda.k_tail, &kda.v_tail}) {
      *field = arena.take<float>(tail);
    }
    kda.state = arena.take<float>(config.kda_heads * config.kda_width * config.kda_width);
  }
}

void CarriedState::advance(std::int64_t count) {
  tokens_ += count;
  assert(tokens_ <= most_tokens_);
}

}  // namespace engine::model
