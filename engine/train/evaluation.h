#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "engine/data/feed.h"
#include "engine/model/model.h"

namespace engine::train {

// How well the adapters predict a held-out set.
struct Evaluation {
  double loss = 0.0;  // mean over the set's trained tokens, nats
  std::int64_t trained = 0;
  std::int64_t sequences = 0;
};

// Loss of every sequence with a trained target, in their order, `together` of them a sweep; no
// gradient. A document's nll is summed in token order, the documents' sums in theirs, in double: the
// bits do not depend on `together`, which the memory decides.
//
// `stop` is asked between sweeps; nothing if it says yes.
// Errors    whatever `forward` throws
std::optional<Evaluation> evaluate(
    const data::Feed& feed, std::int64_t together,
    const std::function<model::SweepResult(const model::Batch&)>& forward,
    const std::function<bool()>& stop);

// As many sequences a sweep (a power of two) as `require_budget` allows of every sweep over the set:
// each sweep reads the model once.
// Errors    whatever require_budget throws if not even one sequence fits
std::int64_t sequences_a_sweep(const data::Feed& feed,
                               const std::function<void(const model::Batch&)>& require_budget);

}  // namespace engine::train
