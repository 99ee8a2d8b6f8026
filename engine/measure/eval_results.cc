#include "engine/measure/eval_results.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <numbers>

namespace engine::measure {
namespace {

Difference difference(const TaskResult& result, std::string_view metric, std::uint64_t seed) {
  std::vector<double> above, below;
  double sum_above = 0.0, sum_below = 0.0;
  for (std::size_t i = 0; i < result.base_units.size(); ++i) {
    const UnitScore& base = result.base_units[i];
    const UnitScore& adapter = result.adapter_units[i];
    assert(base.tokens == adapter.tokens);
    above.push_back(metric == "top1" ? static_cast<double>(adapter.correct - base.correct)
                                     : adapter.nll - base.nll);
    below.push_back(metric == "bits_per_byte"
                        ? static_cast<double>(result.unit_bytes[i]) * std::numbers::ln2
                        : static_cast<double>(base.tokens));
    sum_above += above.back();
    sum_below += below.back();
  }
  return {std::string(metric), sum_above / sum_below,
          bootstrap_ratio(above, below, seed, fmt::format("eval {} {}", result.name, metric))};
}

std::string shown(const Difference& d) {
  if (!d.interval) return fmt::format("{:+.6f}, no interval", d.value);
  return fmt::format("{:+.6f}, 95 % interval {:+.6f} ... {:+.6f}", d.value, d.interval->low,
                     d.interval->high);
}

const Difference* find(const TaskResult& result, std::string_view metric) {
  const auto found = std::ranges::find(result.differences, metric, &Difference::metric);
  return found == result.differences.end() ? nullptr : &*found;
}

Verdict explore(const std::vector<TaskResult>& results) {
  Verdict verdict;
  const Difference* loss = results.empty() ? nullptr : find(results.front(), "loss");
  if (loss == nullptr) {
    verdict.title = "Base model only: nothing is compared";
  } else if (!loss->interval || (loss->interval->low <= 0.0 && loss->interval->high >= 0.0)) {
    verdict.title = fmt::format("Negative result: no difference shown on {}", results.front().name);
  } else if (loss->interval->high < 0.0) {
    verdict.title = fmt::format("The adapter lowers the loss on {}", results.front().name);
  } else {
    verdict.title =
        fmt::format("Negative result: the adapter raises the loss on {}", results.front().name);
  }
  verdict.why.push_back("nothing was registered before the run: every number is exploratory");
  return verdict;
}

// Why the registered number is not decided by this evaluation; empty: it can be.
std::string unanswerable(const Preregistration& r, const TaskResult* task, const Difference* d) {
  if (task == nullptr) return fmt::format("there is no task {}", r.task);
  const bool registered = std::ranges::any_of(
      r.data, [&](const RegisteredData& data) { return data.sha256 == task->sha256; });
  if (!registered) {
    return fmt::format("{} is of data with SHA-256 {}, which was not registered", task->name,
                       task->sha256);
  }
  const auto units = static_cast<std::int64_t>(task->base_units.size());
  if (units < r.units) return fmt::format("{} units, {} were registered", units, r.units);
  if (d == nullptr) return fmt::format("{} has no difference in {}", task->name, r.metric);
  if (!d->interval) return "there is no interval";
  return "";
}

Verdict decide(const Preregistration& r, const std::vector<TaskResult>& results) {
  const auto task = std::ranges::find(results, r.task, &TaskResult::name);
  const TaskResult* found = task == results.end() ? nullptr : &*task;
  const Difference* d = found == nullptr ? nullptr : find(*found, r.metric);
  Verdict verdict;
  verdict.outcome = Outcome::kNotDecidable;
  if (const std::string why = unanswerable(r, found, d); !why.empty()) {
    verdict.why.push_back(why);
  } else {
    const bool below = r.direction == "below";
    const auto& [low, high] = *d->interval;
    if (below ? high < r.threshold : low > r.threshold) verdict.outcome = Outcome::kMet;
    if (below ? low > r.threshold : high < r.threshold) verdict.outcome = Outcome::kNotMet;
    verdict.why.push_back(fmt::format("{} of {}: {}; wanted {} {}", r.metric, r.task, shown(*d),
                                      r.direction, r.threshold));
  }
  verdict.title =
      fmt::format("{}{}: {}", verdict.outcome == Outcome::kMet ? "" : "Negative result, ", r.name,
                  name_of(verdict.outcome));
  return verdict;
}

}  // namespace

std::string_view name_of(Outcome outcome) {
  switch (outcome) {
    case Outcome::kMet:
      return "met";
    case Outcome::kNotMet:
      return "not met";
    case Outcome::kNotDecidable:
      return "not decidable";
    case Outcome::kRefused:
      return "refused";
    case Outcome::kExploratory:
      return "exploratory";
  }
  return "";
}

TaskResult make_result(const EvalTask& task, PairedScores scores, std::uint64_t seed) {
  TaskResult result;
  result.name = task.name;
  result.kind = task.kind;
  result.sha256 = task.sha256;
  result.words = task.words;
  result.has_bytes = task.has_bytes;
  result.origin = task.origin;
  for (const EvalUnit& unit : task.units) result.unit_bytes.push_back(unit.bytes);
  result.base = sum_of(task, scores.base);
  result.base_units = std::move(scores.base);
  if (scores.adapter.empty()) return result;
  result.adapter = sum_of(task, scores.adapter);
  result.adapter_units = std::move(scores.adapter);
  result.routing = std::move(scores.routing);
  for (const std::string_view metric : kMetrics) {
    if (metric == "bits_per_byte" && !task.has_bytes) continue;
    result.differences.push_back(difference(result, metric, seed));
  }
  return result;
}

Verdict judge(const RegistrationFacts& facts, const std::vector<TaskResult>& results) {
  const std::vector<std::string> wrong = objections(facts);
  if (!wrong.empty()) {
    Verdict verdict;
    verdict.outcome = Outcome::kRefused;
    verdict.title = "Refused: this run cannot be judged by its preregistration";
    verdict.why = wrong;
    return verdict;
  }
  return facts.registered ? decide(*facts.registered, results) : explore(results);
}

}  // namespace engine::measure
