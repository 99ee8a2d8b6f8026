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
  std::int64_t restarts = 3;                 // in a row behind one and the same checkpoint
  std::optional<std::uint64_t> free_disk;    // nothing: what two checkpoints take
  std::optional<std::uint64_t> free_memory;  // nothing: the budget of the last start
};

struct Restart {
  std::vector<std::string> arguments;  // of the last start, --resume among them
  std::filesystem::path folder;        // where relative paths among them start from
  std::int64_t restarts = 0;           // behind this checkpoint so far
};

// How the run, which is dead, is started again. A checkpoint is the measure of progress: a run that
// dies again and again before the next one would do so for ever.
// Errors    Error naming the limit that is reached and the two numbers; a manifest that does not say
//           how the run was started
Restart plan_restart(const std::filesystem::path& run, const RunStatus& status,
                     const RestartLimits& limits, std::uint64_t available_memory);

}  // namespace engine::train
