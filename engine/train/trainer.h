#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/budget.h"
#include "engine/data/batching.h"
#include "engine/model/adapter_set.h"
#include "engine/model/model.h"
#include "engine/store/scale_scan.h"
#include "engine/train/breadcrumb.h"
#include "engine/train/manifest.h"
#include "engine/train/moments.h"
#include "engine/train/record.h"
#include "engine/train/settings.h"
#include "engine/train/snapshot.h"

namespace engine::train {

// What is asked for.
struct Job {
  std::filesystem::path run;
  bool resume = false;
  std::string name;  // part of the run id
  Settings settings;
  SettingTexts overrides;
  std::vector<std::string> sequence_names;           // for messages: the files
  std::vector<std::vector<std::int32_t>> sequences;  // their ids
  Identity identity;                                 // data_sha256 is filled in by open_run
  std::optional<store::ScaleScan> scales;            // of the whole model, if it was scanned
  Start start;
};

// A job that may begin: what can be refused before the adapters exist has been looked at.
struct OpenRun {
  Job job;  // its settings are those that hold
  std::string run_id;
  std::vector<data::Sequence> sequences;
  std::optional<Snapshot> from;        // where a resume goes on; nothing: step 1
  std::vector<SettingChange> changes;  // by --override
  std::vector<std::string> notices;    // for the user, one line each
};

// RUN must not be there without `resume`. With it, RUN may be complete, killed at any moment, or
// not be there yet. Writes nothing.
// Errors    Error: RUN is there or is no run; settings, model or data differ from the run's; no
//           checkpoint of several is whole; nothing to train in the data
OpenRun open_run(Job job);

// Asks `require_budget` about every batch that the run will make, so that the first day does not
// hide what the second needs; to be called before the adapters take memory. A batch of more tokens
// than `most_tokens` is refused before it is put together.
// Errors    Error for such a batch; whatever require_budget throws
void require_memory(const OpenRun& run, std::int64_t most_tokens,
                    const std::function<void(const model::Batch&)>& require_budget);

// The model, as far as training is concerned; a check puts a function of its own here.
struct SweepFunctions {
  std::function<model::SweepResult(const model::Batch&, model::AdapterSet&,
                                   const model::SweepHooks&)>
      forward_backward;
  std::function<void(Timing&)> add_reads;  // fills bytes_read and reads_retried
};

struct StepReport {
  std::int64_t step = 0;
  double loss = 0.0;
  double learning_rate = 0.0;
  double grad_norm = 0.0;
  std::int64_t trained = 0;
};

struct Observer {
  std::function<void(std::int64_t step, std::string_view direction, std::int64_t layer)> moved;
  std::function<void(const StepReport&)> stepped;
  std::function<void(std::int64_t step, const std::filesystem::path& checkpoint)> saved;
  std::function<void(const std::string& notice)> noticed;  // before the first step
};

// Steps from wherever a run stands to its end.
class Trainer {
 public:
  // Fills the adapters: first values from the seed, or the checkpoint's.
  // Errors    Error with a table if the budget or the disk cannot hold the run; nothing was written
  Trainer(OpenRun run, model::AdapterSet& adapters, base::RamBudget& budget, SweepFunctions sweep,
          Observer observer = {});

  const OpenRun& opened() const { return run_; }

  // Kill -9 at any moment leaves the newest checkpoint loadable, and a resume repeats the lost
  // steps bit for bit. At the end RUN/adapter.safetensors is the last checkpoint's.
  // Errors    Error for a loss or gradient that is not finite (nothing was changed), and whatever
  //           reading and writing may throw, with the step and the place in it
  void run();

 private:
  void open_record();
  model::Batch next_batch(std::int64_t step);
  void take_step(std::int64_t step);
  model::SweepResult sweep(std::int64_t step, const model::Batch& batch, Timing& forward_end);
  void checkpoint(std::int64_t step);
  void take_all_steps();
  void log(std::int64_t step, std::string_view phase, const JsonLine& fields);
  Timing timing() const;

  OpenRun run_;
  model::AdapterSet& adapters_;
  Moments moments_;
  SweepFunctions sweep_;
  Observer observer_;
  AdamwClock clock_;
  std::int64_t step_ = 0;
  std::int64_t cursor_ = 0;
  std::int64_t skipped_ = 0;
  std::optional<Record> record_;
  std::optional<Breadcrumb> breadcrumb_;
};

}  // namespace engine::train
