#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/base/budget.h"
#include "engine/measure/routing_change.h"
#include "engine/model/model.h"

namespace engine::measure {

// A stretch of ids that is fed as one document, and which of its predictions count.
struct EvalUnit {
  std::vector<std::int32_t> tokens;   // [T] fed
  std::vector<std::int32_t> targets;  // [T] predicted, -1: not scored here
  std::int64_t bytes = 0;             // of the text of the scored targets
};

// Of a text of a corpus (data/corpus.h): what its list said of it.
struct TextOrigin {
  std::string corpus_sha256;  // of the manifest
  std::string after, date, revision, source;
};

// A text, or a held-out set, under the name that results give it.
struct EvalTask {
  std::string name;
  std::string kind;    // "text", "ids" or "set"
  std::string sha256;  // of the file, or of the set's manifest
  std::vector<EvalUnit> units;
  bool has_bytes = false;  // bits per byte are defined: every scored target is text
  std::int64_t words = 0;  // of the whole text
  std::optional<TextOrigin> origin;
};

struct UnitScore {
  double nll = 0.0;          // nats, sum over the scored targets in order
  std::int64_t tokens = 0;   // scored targets
  std::int64_t correct = 0;  // of them the highest logit; of equal logits the lowest id
};

// What the units' sweeps are like. No result depends on it.
struct EvalSweeps {
  std::int64_t batch_tokens = 4096;  // fed in one sweep, at least one unit
};

// Scores of all units under the base model (no adapters) or an adapted one: the engine's forward,
// whose logits are those behind the output mix and the final norm, not of the last layer's residual.
//
// Order     nll is summed target by target, unit by unit; so neither batching nor threads matter
// Cost      one sweep for batch_tokens; eight bytes a token fed
// Errors    Error naming task and unit if a loss is not finite, and what a sweep throws
std::vector<UnitScore> score_units(model::Model& model, base::RamBudget& budget,
                                   const model::AdapterSet* adapters, const EvalTask& task,
                                   const EvalSweeps& sweeps = {});

struct PairedScores {
  std::vector<UnitScore> base, adapter;
  std::vector<LayerChange> routing;  // of the layers with experts
};
// Both models, a batch under the one and then under the other: what the experts' choice is compared
// by are the sweeps that score, of one batch at a time.
//
// Order     as score_units: the scores are its
// Cost      two sweeps for batch_tokens; RoutingChange::bytes_of_sweep besides
PairedScores score_pair(model::Model& model, base::RamBudget& budget,
                        const model::AdapterSet& adapters, const EvalTask& task,
                        const EvalSweeps& sweeps = {});

// The units of [first, first + count) as documents of one batch.
model::Batch batch_of(std::span<const EvalUnit> units);
// How many units from the front of `units` make one sweep.
std::size_t units_of_a_sweep(std::span<const EvalUnit> units, const EvalSweeps& sweeps);

// Sums over units.
struct TaskScore {
  double nll = 0.0;
  std::int64_t tokens = 0;
  std::int64_t correct = 0;
  std::int64_t bytes = 0;

  double loss() const { return nll / static_cast<double>(tokens); }  // nats a token
  double perplexity() const;                                         // exp(loss)
  double bits_per_byte() const;    // loss * tokens / (bytes * ln 2)
  double byte_perplexity() const;  // exp(nll / bytes)
  double top1() const { return static_cast<double>(correct) / static_cast<double>(tokens); }
};
TaskScore sum_of(const EvalTask& task, std::span<const UnitScore> scores);

}  // namespace engine::measure
