#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "engine/train/status.h"

namespace engine::train {

// When a dead run may be started once more without anybody looking at it.
struct RestartLimits {
  std::int64_t restarts = 3;                 // behind one and the same checkpoint
  std::optional<std::uint64_t> free_disk;    // nothing: what two checkpoints take
  std::optional<std::uint64_t> free_memory;  // nothing: the budget of the last start
};

struct Restart {
  std::vector<std::string> arguments;  // of the last start, --resume among them
  std::filesystem::path folder;        // where relative paths among them start from
  std::int64_t restarts = 0;           // behind this checkpoint so far
};

// How the run, which is dead, is started again. A checkpoint is the measure of progress: a run that
// dies again and again before the next one would do so for ever. What is counted are the attempts in
// RUN/restarts.json, not the starts in the manifest: a start that is refused before its first step, say
// because the model is gone, is in no manifest, and a timer would try it for ever.
// Errors    Error naming the limit that is reached and the two numbers; a manifest that does not say
//           how the run was started; a restarts.json that cannot be read
Restart plan_restart(const std::filesystem::path& run, const RunStatus& status,
                     const RestartLimits& limits, std::uint64_t available_memory);

// Counts one attempt more behind the run's newest checkpoint, on the disk; to be called before the
// attempt, which may end in any way. A newer checkpoint begins the count anew, nothing else does.
// Errors    Error naming the file and the disk's reason: then there is no attempt
void count_restart(const std::filesystem::path& run, const RunStatus& status,
                   const Restart& restart);

}  // namespace engine::train
