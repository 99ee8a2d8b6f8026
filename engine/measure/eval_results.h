#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/measure/bootstrap.h"
#include "engine/measure/eval_units.h"
#include "engine/measure/layer_norms.h"
#include "engine/measure/preregistration.h"

namespace engine::measure {

// Adapter minus base in one metric: loss (nats a token), bits_per_byte or top1.
struct Difference {
  std::string metric;
  double value = 0.0;
  std::optional<BootstrapInterval> interval;  // nothing with one unit
};

struct TaskResult {
  std::string name, kind, sha256;
  std::int64_t words = 0;
  bool has_bytes = false;
  std::optional<TextOrigin> origin;
  std::vector<UnitScore> base_units, adapter_units;  // adapter: empty without one
  std::vector<std::int64_t> unit_bytes;
  TaskScore base, adapter;
  std::vector<Difference> differences;
  std::vector<LayerChange> routing;  // empty without an adapter
};

// Without an adapter `scores` has the base model's alone.
// The draws of a task's interval are keyed by (seed, "eval TASK METRIC").
TaskResult make_result(const EvalTask& task, PairedScores scores, std::uint64_t seed);

enum class Outcome { kMet, kNotMet, kNotDecidable, kRefused, kExploratory };

struct Verdict {
  Outcome outcome = Outcome::kExploratory;
  std::string title;  // of the report: a negative result is called one
  std::vector<std::string> why;
  std::string time_proof;  // "own clock only", or what was verified
};

// Met if the whole interval lies where the registration says, not met if all of it lies beyond the
// threshold, not decidable otherwise: an interval around the threshold, other data, too few units.
// Refused, and said so, where objections() has any. Without a registration nothing was promised:
// exploratory, and the title says how the first task's loss moved.
Verdict judge(const RegistrationFacts& facts, const std::vector<TaskResult>& results);

struct LossPoint {
  std::int64_t step = 0;
  double loss = 0.0;
  std::int64_t line = 0;  // of log.jsonl, from 1
};

struct EvalRun {
  std::string run_id, data_sha256, log_sha256, log_head;
  std::int64_t log_lines = 0;
  std::vector<LossPoint> losses;
};

struct Evaluation {
  std::string config_sha256, headers_sha256, adapter_sha256;  // adapter: empty without one
  std::string tokenizer_sha256;
  std::int64_t experts = 0, chosen = 0;  // of a layer, by a token
  ChunkSettings chunks;
  std::uint64_t seed = 0;
  std::optional<EvalRun> run;
  std::vector<TaskResult> tasks;
  std::vector<LayerNorms> layers;  // empty without an adapter
  std::string gradient_of;         // empty: no gradient was asked for
  RegistrationFacts registration;
  std::string weights;  // what was verified of them; empty: no registration, or one without a model
  Verdict verdict;
};

// In the shape of lm-evaluation-harness: results by task, metric and filter ("none": the adapter, or
// the base model without one; "base"; "paired"); all else under "lazylora". Deterministic: no clock
// but the registration's, no path, nothing of the machine.
std::string evaluation_json(const Evaluation& evaluation);
// One line a unit and task: nll, tokens, bytes, correct of base and adapter.
std::string unit_lines(const Evaluation& evaluation);

std::string_view name_of(Outcome outcome);

}  // namespace engine::measure
