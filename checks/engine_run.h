#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "checks/reference.h"
#include "checks/table_record.h"
#include "engine/base/budget.h"
#include "engine/model/model.h"
#include "engine/model/trace.h"

namespace checks {

// A checkpoint opened by the engine, with memory enough for everything.
struct Engine {
  explicit Engine(const std::filesystem::path& folder);
  const engine::model::Config& config() const { return model.config(); }

  engine::base::RamBudget budget;
  engine::model::Model model;
};

// One sweep with all that it lets see.
struct EngineRun {
  engine::model::SweepResult result;
  engine::model::Trace trace;
  std::vector<float> logits;  // [T,V]
};
EngineRun run_forward(Engine& engine, const engine::model::Batch& batch,
                      const engine::model::AdapterSet* adapters);
// The gradient of the loss, or with logit_weights w [T,V] that of <w, logits>.
EngineRun run_backward(Engine& engine, const engine::model::Batch& batch,
                       engine::model::AdapterSet& adapters,
                       std::span<const float> logit_weights = {});

// n ids, all run, the first n-1 predictions trained, as `lazylora forward` does.
engine::model::Batch forward_batch(const std::vector<std::int32_t>& ids);

// An adapter set with every target, filled from named tensors.
std::unique_ptr<engine::model::AdapterSet> adapter_set(Engine& engine, std::int64_t rank,
                                                       double alpha, const NamedTensors& values);
// Rank, alpha and values drawn as in the gradient reference: A uniform +-1/sqrt(in), B normal-like
// with standard deviation 0.02, so that no gradient is zero.
std::unique_ptr<engine::model::AdapterSet> random_adapter_set(Engine& engine, std::int64_t rank,
                                                              double alpha, std::uint64_t seed);

// `count` token ids of a vocabulary, a function of seed.
std::vector<std::int32_t> random_ids(std::int64_t count, std::int64_t vocabulary,
                                     std::uint64_t seed);

// The tiny checkpoint of `make-model --shape tiny --seed 1`, made once a process in a temporary
// folder that goes with it.
const std::filesystem::path& tiny_checkpoint();

// "N passed, N failed, N skipped", the last line of every check program, and its exit status.
class Tally {
 public:
  void record(bool held) { held ? ++passed_ : ++failed_; }
  // A skip prints its reason.
  void skip(const std::string& reason);
  // Reference data that is not there: a skip, or a failure where only this part is missing.
  void absent(const Lookup& lookup);
  int finish() const;
  // The same, and the record's last line.
  int finish(TableRecord& record) const;
  int failed() const { return failed_; }

 private:
  int passed_ = 0, failed_ = 0, skipped_ = 0;
};

}  // namespace checks
