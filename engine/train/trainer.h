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
#include "engine/train/evaluation.h"
#include "engine/train/job.h"
#include "engine/train/moments.h"
#include "engine/train/record.h"
#include "engine/train/settings.h"
#include "engine/train/snapshot.h"

namespace engine::train {

// The model, as far as training is concerned; a check puts a function of its own here.
struct SweepFunctions {
  std::function<model::SweepResult(const model::Batch&, model::AdapterSet&,
                                   const model::SweepHooks&)>
      forward_backward;
  std::function<void(Timing&)> add_reads;  // fills bytes_read and reads_retried
  // Without a gradient; wanted only where there is a held-out set.
  std::function<model::SweepResult(const model::Batch&, const model::AdapterSet&,
                                   const model::SweepHooks&)>
      forward = {};
};

// A layer is done; seconds and bytes are those since the step or the evaluation began.
struct Movement {
  std::int64_t step = 0;
  std::string_view direction;  // "forward", "backward", "evaluation"
  std::int64_t layer = 0;
  double seconds = 0.0;
  std::uint64_t bytes_read = 0;
};

struct StepReport {
  std::int64_t step = 0;
  double loss = 0.0;
  double learning_rate = 0.0;
  double grad_norm = 0.0;
  std::int64_t trained = 0;
  std::int64_t tokens = 0;
  double seconds = 0.0;          // of the step alone: what follows it is reported by itself
  std::uint64_t bytes_read = 0;  // from the checkpoint, by the reader's own count
};

struct Observer {
  std::function<void(const Movement&)> moved;
  std::function<void(const StepReport&)> stepped;
  std::function<void(std::int64_t step, const Evaluation&, double seconds)> evaluated;
  std::function<void(std::int64_t step, const std::filesystem::path& checkpoint, double seconds)>
      saved;
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
  // `stop` is asked between steps and between the sweeps of an evaluation. Once it says yes, what
  // is not saved yet is saved out of turn, without a line in the log, and the answer is false: a
  // resume then goes on to the same adapter and the same log as if it had not been asked.
  // Errors    Error for a loss or gradient that is not finite (nothing was changed), and whatever
  //           reading and writing may throw, with the step and the place in it
  bool run(const std::function<bool()>& stop = {});

 private:
  void open_record();
  bool is_finished() const;
  bool log_is_at_its_end() const;
  data::Taken next(std::int64_t step);
  void take_step(std::int64_t step);
  template <class Walk>
  model::SweepResult walk(std::int64_t step, std::string_view name, const Walk& walk,
                          Timing& forward_end);
  void checkpoint(bool in_turn);
  void log_checkpoint(const SnapshotDigests& digests);
  bool evaluation_is_due() const;
  void evaluate(const std::function<bool()>& stop);
  bool take_all_steps(const std::function<bool()>& stop);
  void log(std::int64_t step, std::string_view phase, const JsonLine& fields);
  Timing timing() const;

  OpenRun run_;
  model::AdapterSet& adapters_;
  Moments moments_;
  SweepFunctions sweep_;
  Observer observer_;
  data::Order order_;
  AdamwClock clock_;
  std::int64_t step_ = 0;
  std::int64_t cursor_ = 0;
  std::int64_t skipped_ = 0;
  std::int64_t evaluated_ = -1;
  bool finished_ = false;   // nothing is left to do or to write
  std::int64_t saved_ = 0;  // the newest checkpoint's step; 0: nothing to save yet
  std::optional<Record> record_;
  std::optional<Breadcrumb> breadcrumb_;
};

}  // namespace engine::train
