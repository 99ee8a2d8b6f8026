#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "engine/train/breadcrumb.h"

namespace engine::train {

// How a run stands, as its exit code says it too.
enum class Standing {
  kFinished = 0,
  kRunning = 3,
  kStalled = 4,  // a process holds it, and has given no sign of life for too long
  kDead = 5,     // not finished, and no process holds it: killed, broken off, or asked to stop
};
const char* name_of(Standing standing);

struct LossAt {
  std::int64_t step = 0;
  double loss = 0.0;  // NaN where the log has null
};

// A run from outside, whether a process works on it or not. What there is nothing to say of yet is
// left at nothing.
struct RunStatus {
  std::string run_id;
  Standing standing = Standing::kDead;
  std::int64_t step = 0;  // the last that was taken
  std::int64_t steps = 0;
  std::vector<LossAt> losses;  // of the last five steps, the newest last
  std::optional<LossAt> held_out;
  std::int64_t cursor = 0;     // sequences taken
  std::int64_t sequences = 0;  // in the data
  std::optional<double> seconds_a_step;
  std::optional<double> seconds_to_go;
  double silent_seconds = 0.0;       // since the last sign of life
  std::optional<Whereabouts> where;  // of a process at work, or of one that did not end well
  std::filesystem::path checkpoint;  // the newest; empty: none
  std::int64_t checkpoint_step = 0;
  std::uint64_t checkpoint_bytes = 0;
  std::uint64_t rss_bytes = 0, peak_rss_bytes = 0, swap_bytes = 0;
  std::uint64_t disk_free_bytes = 0;
};

// Reads the manifest, the ends of the log and of the timings, the breadcrumb and the newest
// checkpoint's state, asks for the lock, and changes nothing. Cadence is that of the log's last steps
// (engine/train/cadence.h).
//
// A process has stalled if no layer was done and nothing was written for `stalled_after` seconds; if
// that is nothing, for five times the time of a step, a minute at least. Where no step was taken yet
// there is no measure, and it is running.
//
// Finished is a run whose folder says so without contradiction (see require_finished). What is a contradiction
// there is none where a breadcrumb says that the last start did not end well: the run is dead then.
// Cost      of a run that has taken all its steps, a read of its log and of its adapter
// Errors    Error if RUN is no run, its files cannot be read, or it contradicts itself while no process
//           works on it: also a log that is shorter than the newest checkpoint has seen it
RunStatus read_status(const std::filesystem::path& run,
                      const std::optional<double>& stalled_after = {});

}  // namespace engine::train
