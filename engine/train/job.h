#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/budget.h"
#include "engine/data/feed.h"
#include "engine/data/packed_set.h"
#include "engine/model/batch.h"
#include "engine/ops/documents.h"
#include "engine/store/scale_scan.h"
#include "engine/train/manifest.h"
#include "engine/train/run_lock.h"
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
  // Either files of ids (names for messages), gone through in their order, or a set, shuffled anew
  // every epoch, whose own mask holds: mask_first is 0 then.
  std::vector<std::string> sequence_names;
  std::vector<std::vector<std::int32_t>> sequences;
  std::shared_ptr<const data::PackedSet> set;
  std::shared_ptr<const data::PackedSet> held_out;  // there if and only if eval_every is not 0
  Identity identity;                       // the digests of the data are filled in by open_run
  std::optional<store::ScaleScan> scales;  // of the whole model, if it was scanned
  Start start;
};

// A job that may begin: what can be refused before the adapters exist has been looked at.
struct OpenRun {
  Job job;  // its settings are those that hold
  std::string run_id;
  data::Feed feed;
  std::optional<Snapshot> from;        // where a resume goes on; nothing: step 1
  bool from_is_logged = false;         // whether the log has its line: one out of turn has none
  std::vector<SettingChange> changes;  // by --override
  std::vector<std::string> notices;    // for the user, one line each
  std::shared_ptr<RunLock> lock;       // of a run that is there, to go on with or to take over
  std::int64_t held_out_together = 1;  // sequences a sweep of an evaluation; no bit depends on it
};

// With `resume` RUN is a run, complete or killed at any moment. Without it nothing is there, or an empty
// folder, or a run that ended before its first step: there is nothing in that to lose, and the name is
// not blocked by it. To be asked before work is begun; open_run asks as well.
// Errors    Error naming RUN and what stands there, and what to do; that of store::require_unused
void require_place(const std::filesystem::path& run, bool resume);

// Writes nothing but RUN/lock, where a run is.
// Errors    those of require_place; Error: another process works on RUN; settings, model or data differ
//           from the run's; its log is not the one that its checkpoint saw (see check_log); no
//           checkpoint of several is whole, or none is there though there was one; nothing to train in
//           the data
OpenRun open_run(Job job);

// The order in which the run takes its sequences.
data::Order order_of(const OpenRun& run, base::RamBudget& budget);

// Asks `require_budget` about the documents (borders, 0 ... T) of batches of the run such that every other
// one has no more tokens, KDA chunks and longest document than one of them, so that the first day does not hide what the second
// needs; to be called before the adapters take memory. A batch of more tokens than `most_tokens` is
// refused before even its borders are put together.
// Errors    Error for such a batch; whatever require_budget throws
void require_memory(const OpenRun& run, base::RamBudget& budget, std::int64_t most_tokens,
                    const std::function<void(ops::Documents)>& require_budget);

// As a batch of the model.
model::Batch batch_of(data::Joined joined);

}  // namespace engine::train
