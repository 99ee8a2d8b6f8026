#include "engine/train/status.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fstream>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>

#include "engine/base/error.h"
#include "engine/store/at_path.h"
#include "engine/train/cadence.h"
#include "engine/train/manifest.h"
#include "engine/train/run_adapter.h"
#include "engine/train/run_lock.h"
#include "engine/train/snapshot.h"

namespace engine::train {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr std::size_t kLosses = 5;
constexpr double kSilentSteps = 5.0;
// A disk that is asked to make a checkpoint durable may keep a small model waiting for a while.
constexpr double kLeastSilence = 60.0;
// Some hundred steps of the largest model.
constexpr std::uint64_t kTailBytes = 1 << 20;

// Calls line(json) for the whole lines at the file's end; what is no JSON (a line cut by where the
// end begins, one half written) is passed over.
void each_line_of_tail(const fs::path& path, const std::function<void(const Json&)>& line) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return;
  file.seekg(0, std::ios::end);
  const auto size = static_cast<std::uint64_t>(file.tellg());
  file.seekg(static_cast<std::streamoff>(size - std::min(size, kTailBytes)));
  for (std::string text; std::getline(file, text);) {
    const Json json = Json::parse(text, nullptr, false);
    if (json.is_object() && json.contains("phase")) line(json);
  }
}

double real(const Json& line, const char* key) {
  const auto found = line.find(key);
  return found != line.end() && found->is_number() ? found->get<double>()
                                                   : std::numeric_limits<double>::quiet_NaN();
}

void read_log(const fs::path& run, RunStatus& status, Settings& settings) {
  each_line_of_tail(run / "log.jsonl", [&](const Json& line) {
    const std::string phase = line.at("phase");
    if (phase == "override") set(settings, line.at("setting"), line.at("now"));
    if (phase == "evaluation") status.held_out = {line.at("step"), real(line, "loss")};
    if (phase != "step_end") return;
    status.step = line.at("step");
    status.cursor = line.at("cursor");
    status.losses.push_back({status.step, real(line, "loss")});
    if (status.losses.size() > kLosses) status.losses.erase(status.losses.begin());
  });
}

// A line's seconds are those since the line before: a step is three lines.
Cadence read_timings(const fs::path& run, RunStatus& status) {
  Cadence cadence;
  double step = std::numeric_limits<double>::quiet_NaN();  // until one is seen from its beginning
  each_line_of_tail(run / "timings.jsonl", [&](const Json& line) {
    const std::string phase = line.at("phase");
    const double seconds = real(line, "seconds");
    if (phase == "forward_end") step = seconds;
    if (phase == "backward_end") step += seconds;
    if (phase == "step_end" && std::isfinite(step + seconds)) cadence.add_step(step + seconds);
    if (phase == "checkpoint") cadence.add_checkpoint(seconds);
    if (phase == "evaluation") cadence.add_evaluation(seconds);
    status.rss_bytes = line.at("rss_bytes");
    status.peak_rss_bytes = line.at("peak_rss_bytes");
    status.swap_bytes = line.at("swap_bytes");
  });
  return cadence;
}

double seconds_since_written(const fs::path& run) {
  double least = std::numeric_limits<double>::infinity();
  for (const char* name : {"breadcrumb.json", "log.jsonl", "timings.jsonl", "manifest.json"}) {
    std::error_code missing;
    const auto written = fs::last_write_time(run / name, missing);
    if (missing) continue;
    const std::chrono::duration<double> age = fs::file_time_type::clock::now() - written;
    least = std::min(least, age.count());
  }
  return std::max(least, 0.0);
}

std::uint64_t bytes_in(const fs::path& folder) {
  std::uint64_t bytes = 0;
  std::error_code gone;  // pruned meanwhile
  for (fs::directory_iterator file(folder, gone), end; !gone && file != end; file.increment(gone)) {
    const std::uintmax_t size = file->file_size(gone);
    if (!gone) bytes += size;
  }
  return bytes;
}

// Of a run that no process holds. Whatever does not fit together was left by the kill that left the
// breadcrumb, and a resume puts it right; a run that ended well leaves none, and nothing to put right.
bool has_finished(const RunStatus& status, const fs::path& run, const Manifest& manifest,
                  const std::optional<Snapshot>& newest) {
  if (status.step < status.steps) return false;
  try {
    require_finished(run, manifest, status.steps, newest);
    return true;
  } catch (const base::Error&) {
    if (!status.where) throw;
    return false;
  }
}

Standing judge(const RunStatus& status, const std::optional<double>& stalled_after) {
  double limit = std::numeric_limits<double>::infinity();
  if (status.seconds_a_step) limit = std::max(kSilentSteps * *status.seconds_a_step, kLeastSilence);
  if (stalled_after) limit = *stalled_after;
  return status.silent_seconds > limit ? Standing::kStalled : Standing::kRunning;
}

}  // namespace

const char* name_of(Standing standing) {
  switch (standing) {
    case Standing::kFinished:
      return "finished";
    case Standing::kRunning:
      return "running";
    case Standing::kStalled:
      return "stalled";
    case Standing::kDead:
      break;
  }
  return "dead";
}

RunStatus read_status(const fs::path& run, const std::optional<double>& stalled_after) {
  const std::optional<Manifest> manifest = read_manifest(run);
  if (!manifest) throw base::Error("{}: is no run: it has no manifest.json", run.string());
  // Before all else: what a process that is gone has left does not change any more.
  const bool held = RunLock::held(run);
  RunStatus status;
  status.run_id = manifest->run_id;
  status.sequences = manifest->sequences;
  status.silent_seconds = seconds_since_written(run);
  status.where = read_breadcrumb(run);
  const std::optional<Snapshot> newest = glance_at_newest(run);
  Settings settings;
  for (const auto& [name, text] : newest ? newest->state.settings : manifest->settings) {
    set(settings, name, text);
  }
  if (newest) {
    status.checkpoint = newest->folder;
    status.checkpoint_step = status.step = newest->state.step;
    status.cursor = newest->state.cursor;
    status.checkpoint_bytes = bytes_in(newest->folder);
  }
  try {
    read_log(run, status, settings);
    const Cadence cadence = read_timings(run, status);
    status.seconds_a_step = cadence.seconds_a_step(settings);
    Remaining left = remaining(settings, status.step);
    const bool saved = newest && status.checkpoint_step == status.step;
    if (saved && left.checkpoints > 0) --left.checkpoints;
    const bool evaluated = status.held_out && status.held_out->step == status.step;
    if (evaluated && left.evaluations > 0) --left.evaluations;
    status.seconds_to_go = cadence.seconds_for(left);
  } catch (const nlohmann::json::exception& wrong) {
    throw base::Error("{}: log.jsonl or timings.jsonl: {}", run.string(), wrong.what());
  }
  status.steps = settings.schedule.total;
  if (held && status.where) {
    status.rss_bytes = status.where->rss_bytes;
    status.peak_rss_bytes = status.where->peak_rss_bytes;
  }
  std::error_code unknown;
  const fs::space_info space = fs::space(run, unknown);
  if (!unknown) status.disk_free_bytes = space.available;
  if (held) {
    status.standing = judge(status, stalled_after);
    return status;
  }
  if (newest) require_length(run / "log.jsonl", newest->state.log);
  const bool finished = has_finished(status, run, *manifest, newest);
  status.standing = finished ? Standing::kFinished : Standing::kDead;
  return status;
}

}  // namespace engine::train
