#pragma once

#include <filesystem>

#include "engine/train/record.h"
#include "engine/train/snapshot.h"

namespace engine::train {

// The file that a path to an adapter means: itself, or adapter.safetensors in a folder (a finished run,
// a checkpoint, what an import wrote).
// Errors    Error where a folder has none; of a run that is not finished, naming the newest checkpoint
//           that can be taken instead
std::filesystem::path adapter_file(const std::filesystem::path& path);

// That the log of a finished run is one chain to its end and wrote the run's adapter. Returns its end.
// Errors    Error naming file and place, and the two digests that disagree
LogPosition require_logged_run(const std::filesystem::path& run);

// The same of whatever adapter is asked for, as far as a run stands around it: RUN/adapter.safetensors,
// or that of a checkpoint in RUN/checkpoints, whose log has to be the one that the checkpoint saw.
void require_logged(const std::filesystem::path& adapter);
// Of a checkpoint that was found whole already.
void require_logged(const Snapshot& snapshot);

}  // namespace engine::train
