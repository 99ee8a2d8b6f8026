#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "engine/train/log.h"
#include "engine/train/manifest.h"
#include "engine/train/snapshot.h"

namespace engine::train {

// The file that a path to an adapter means: itself, or adapter.safetensors in a folder (a finished run,
// a checkpoint, what an import wrote).
// Errors    Error where a folder has none; of a run that is not finished, naming the newest checkpoint
//           that can be taken instead
std::filesystem::path adapter_file(const std::filesystem::path& path);

// What the log of a run that wrote its adapter says: its end, the step of its last evaluation (-1: none), and of
// its last checkpoint the run, the step, and the first line behind it that no finished run has there (0: none).
struct LoggedRun {
  LogPosition end;
  std::string run_id;
  std::int64_t step = 0;
  std::int64_t evaluated = -1;
  std::int64_t odd_line = 0;
};

// That the log of a finished run is one chain to its end and wrote the run's adapter. Every line is shown
// to `each`.
// Cost      reads the log and the adapter
// Errors    Error naming file and place, and the two digests that disagree
LoggedRun require_logged_run(const std::filesystem::path& run, const LogVisitor& each = {});

// That a folder which says of itself that its run has taken all `steps` agrees with itself: the newest checkpoint
// is of what the manifest says, the log holds what that checkpoint saw, is of this run and of these steps to its
// last checkpoint, has the evaluation behind that if there are held-out data, and wrote the adapter.
// Errors    those of require_logged_run; Error naming the file and the two values that disagree
void require_finished(const std::filesystem::path& run, const Manifest& manifest,
                      std::int64_t steps, const std::optional<Snapshot>& newest);

// The same of whatever adapter is asked for, as far as a run stands around it: RUN/adapter.safetensors,
// or that of a checkpoint in RUN/checkpoints, whose log has to be the one that the checkpoint saw.
void require_logged(const std::filesystem::path& adapter);
// Of a checkpoint that was found whole already.
void require_logged(const Snapshot& snapshot);

}  // namespace engine::train
