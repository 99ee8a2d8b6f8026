#include "engine/measure/evaluate.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>
#include <numbers>

#include "engine/base/error.h"
#include "engine/base/math.h"

namespace engine::measure {
namespace {

// The highest logit of every row so far; bands come with ascending ids, so > keeps the lowest.
struct Best {
  std::vector<float> logit;
  std::vector<std::int32_t> id;

  explicit Best(std::int64_t rows)
      : logit(static_cast<std::size_t>(rows), -std::numeric_limits<float>::infinity()),
        id(static_cast<std::size_t>(rows), -1) {}

  void look(std::int64_t first, std::int64_t count, std::span<const float> band) {
    for (std::size_t t = 0; t < logit.size(); ++t) {
      const std::span<const float> row =
          band.subspan(t * static_cast<std::size_t>(count), static_cast<std::size_t>(count));
      const auto most = std::ranges::max_element(row);
      if (!(*most > logit[t])) continue;
      logit[t] = *most;
      id[t] = static_cast<std::int32_t>(first + (most - row.begin()));
    }
  }
};

// Units that are swept together, of a task.
struct Sweep {
  const EvalTask& task;
  std::span<const EvalUnit> units;
  const model::Batch batch;
};

template <class Work>
void for_each_sweep(const EvalTask& task, const EvalSweeps& sweeps, const Work& work) {
  std::span<const EvalUnit> left = task.units;
  while (!left.empty()) {
    const std::span<const EvalUnit> now = left.first(units_of_a_sweep(left, sweeps));
    left = left.subspan(now.size());
    work(Sweep{task, now, batch_of(now)});
  }
}

// Adds the scores of a sweep's units. `hooks`: what else listens.
void score_sweep(model::Model& model, base::RamBudget& budget, const model::AdapterSet* adapters,
                 const Sweep& sweep, model::SweepHooks hooks, std::vector<UnitScore>& scores) {
  const auto held =
      budget.take<std::byte>("highest logits of a sweep", sweep.batch.size() * std::int64_t{8});
  model.require_budget(sweep.batch.documents, adapters, false);
  Best best(sweep.batch.size());
  hooks.logits = [&](std::int64_t first, std::int64_t count, std::span<const float> band) {
    best.look(first, count, band);
  };
  const model::SweepResult result = model.forward(sweep.batch, adapters, hooks);
  std::size_t at = 0;
  for (const EvalUnit& unit : sweep.units) {
    UnitScore score;
    for (const std::int32_t target : unit.targets) {
      if (target >= 0) {
        score.nll += result.nll[at];
        ++score.tokens;
        score.correct += best.id[at] == target ? 1 : 0;
      }
      ++at;
    }
    if (!std::isfinite(score.nll)) {
      throw base::Error("{}: unit {} of {}: the loss is {}", sweep.task.name, scores.size(),
                        sweep.task.units.size(), score.nll);
    }
    scores.push_back(score);
  }
}

}  // namespace

model::Batch batch_of(std::span<const EvalUnit> units) {
  model::Batch batch;
  batch.documents = {0};
  for (const EvalUnit& unit : units) {
    batch.tokens.insert(batch.tokens.end(), unit.tokens.begin(), unit.tokens.end());
    batch.targets.insert(batch.targets.end(), unit.targets.begin(), unit.targets.end());
    batch.documents.push_back(batch.size());
  }
  return batch;
}

std::size_t units_of_a_sweep(std::span<const EvalUnit> units, const EvalSweeps& sweeps) {
  std::int64_t tokens = 0;
  std::size_t count = 0;
  while (count < units.size()) {
    tokens += static_cast<std::int64_t>(units[count].tokens.size());
    if (count > 0 && tokens > sweeps.batch_tokens) break;
    ++count;
  }
  return count;
}

std::vector<UnitScore> score_units(model::Model& model, base::RamBudget& budget,
                                   const model::AdapterSet* adapters, const EvalTask& task,
                                   const EvalSweeps& sweeps) {
  std::vector<UnitScore> scores;
  for_each_sweep(task, sweeps, [&](const Sweep& sweep) {
    score_sweep(model, budget, adapters, sweep, {}, scores);
  });
  return scores;
}

PairedScores score_pair(model::Model& model, base::RamBudget& budget,
                        const model::AdapterSet& adapters, const EvalTask& task,
                        const EvalSweeps& sweeps) {
  PairedScores scores;
  RoutingChange routing(model.config());
  for_each_sweep(task, sweeps, [&](const Sweep& sweep) {
    const base::Charge held(budget, "experts chosen in a sweep",
                            routing.bytes_of_sweep(sweep.batch.size()));
    model::SweepHooks hooks;
    routing.watch_base(hooks);
    score_sweep(model, budget, nullptr, sweep, hooks, scores.base);
    routing.watch_adapter(hooks, sweep.batch.targets);
    score_sweep(model, budget, &adapters, sweep, hooks, scores.adapter);
  });
  scores.routing = routing.layers();
  return scores;
}

double TaskScore::perplexity() const { return base::exp(loss()); }

double TaskScore::bits_per_byte() const {
  return nll / (static_cast<double>(bytes) * std::numbers::ln2);
}

double TaskScore::byte_perplexity() const { return base::exp(nll / static_cast<double>(bytes)); }

TaskScore sum_of(const EvalTask& task, std::span<const UnitScore> scores) {
  assert(task.units.size() == scores.size());
  TaskScore sum;
  for (std::size_t i = 0; i < scores.size(); ++i) {
    sum.nll += scores[i].nll;
    sum.tokens += scores[i].tokens;
    sum.correct += scores[i].correct;
    sum.bytes += task.units[i].bytes;
  }
  return sum;
}

}  // namespace engine::measure
