#include "engine/train/evaluation.h"

#include <algorithm>

#include "engine/base/error.h"
#include "engine/train/job.h"

namespace engine::train {
namespace {

// Calls body(sequences taken, batch) for each part of the set that has something trained in it.
template <class Body>
void each_part(const data::Feed& feed, std::int64_t together, const Body& body) {
  data::Order order(feed.count);
  for (std::int64_t first = 0; first < feed.count; first += together) {
    data::Taken taken = data::take(feed, order, first, std::min(together, feed.count - first));
    if (taken.sequences == 0) continue;
    if (!body(taken.sequences, batch_of(std::move(taken.joined)))) return;
  }
}

}  // namespace

std::optional<Evaluation> evaluate(
    const data::Feed& feed, std::int64_t together,
    const std::function<model::SweepResult(const model::Batch&)>& forward,
    const std::function<bool()>& stop) {
  Evaluation all;
  double sum = 0.0;
  bool stopped = false;
  each_part(feed, together, [&](std::int64_t sequences, const model::Batch& batch) {
    stopped = stop && stop();
    if (stopped) return false;
    const model::SweepResult result = forward(batch);
    for (std::size_t d = 0; d + 1 < batch.documents.size(); ++d) {
      double document = 0.0;
      for (std::int64_t t = batch.documents[d]; t < batch.documents[d + 1]; ++t) {
        document += result.nll[static_cast<std::size_t>(t)];
      }
      sum += document;
    }
    all.trained += result.trained;
    all.sequences += sequences;
    return true;
  });
  if (stopped) return std::nullopt;
  all.loss = sum / static_cast<double>(all.trained);
  return all;
}

std::int64_t sequences_a_sweep(const data::Feed& feed,
                               const std::function<void(const model::Batch&)>& require_budget) {
  const auto ask = [&](std::int64_t together) {
    each_part(feed, together, [&](std::int64_t, const model::Batch& batch) {
      require_budget(batch);
      return true;
    });
  };
  ask(1);
  std::int64_t together = 1;
  while (together < feed.count) {
    try {
      ask(2 * together);
    } catch (const base::Error&) {
      return together;
    }
    together *= 2;
  }
  return together;
}

}  // namespace engine::train
