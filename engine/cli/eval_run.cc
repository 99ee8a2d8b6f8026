#include "engine/cli/eval_run.h"

#include <algorithm>
#include <cassert>
#include <nlohmann/json.hpp>

#include "engine/base/decimal.h"
#include "engine/base/error.h"
#include "engine/base/sha256.h"
#include "engine/store/json_text.h"
#include "engine/train/manifest.h"
#include "engine/train/run_adapter.h"
#include "engine/train/timings.h"

namespace engine::cli {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

train::Manifest read_manifest(const fs::path& path, RunFolder& folder) {
  const auto manifest = train::read_manifest(path.parent_path());
  if (!manifest) throw base::Error("{}: is not there: no run of `lazylora train`", path.string());
  folder.facts.run_id = manifest->run_id;
  folder.facts.data_sha256 = manifest->identity.data_sha256;
  folder.preregistration_sha256 = manifest->identity.preregistration_sha256;
  const Json json = Json::parse(store::read_json_text(path, train::kMostManifestBytes));
  const auto read = [&](const char* name, auto& value) {
    try {
      json.at("starts").at(0).at(name).get_to(value);
    } catch (const nlohmann::json::exception& wrong) {
      throw base::Error("{}: {} of the first of its starts: {}", path.string(), name,
                        store::json_reason(wrong.what()));
    }
  };
  read("model_folder", folder.model_folder);
  read("ids_files", folder.ids_files);
  read("set_folder", folder.set_folder);
  read("start_unix_ns", folder.first_start_unix_ns);
  return *manifest;
}

// The losses of the steps, and how many steps the run was to take in the end. Digest and lines are those of the
// part that was checked, whatever a run that goes on appends meanwhile.
std::int64_t read_log(const fs::path& run, train::Timings& timings, measure::EvalRun& facts) {
  base::Sha256 hash;
  std::int64_t steps = 0;
  const auto each = [&](std::string_view text, const train::LogPosition& behind) {
    hash.update(text);
    hash.update("\n");
    timings.pass(behind);
    const Json json = Json::parse(text);
    const std::string phase = json.at("phase");
    if (phase == "step_end") {
      facts.losses.push_back({json.at("step"), json.at("loss"), behind.lines});
    }
    const char* now = phase == "start" ? "steps" : "now";
    if (phase == "start" || (phase == "override" && json.at("setting") == "steps")) {
      steps = base::parse_decimal<std::int64_t>(json.at(now).get<std::string>()).value_or(0);
    }
  };
  const train::LogPosition end = train::require_logged_run(run, each).end;
  facts.log_lines = end.lines;
  facts.log_head = end.head;
  facts.log_sha256 = hash.hex();
  return steps;
}

// A registered run is judged: the end of its log has to be what a checkpoint saw. state.json is enough for that.
void require_held(const fs::path& run, std::int64_t steps,
                  const std::optional<train::Snapshot>& newest) {
  const std::int64_t held = newest ? newest->state.step : 0;
  if (held == steps) return;
  throw base::Error(
      "{}: the newest state.json that is whole is behind step {}, and {} has {} steps: the run was "
      "registered, and nothing holds what its log says behind that",
      (run / "checkpoints").string(), held, (run / "log.jsonl").string(), steps);
}

// The clock of the first start, by which a registration is judged older than the run. A later one than the log's
// own first line was changed afterwards.
void require_start(const fs::path& run, const train::Timings& timings, RunFolder& folder) {
  const auto& began = timings.began_unix_ns();
  folder.start_is_timed = began.has_value();
  if (!began || folder.first_start_unix_ns <= *began) return;
  throw base::Error("{}: its first start_unix_ns is {}, the first line of {} was written at {}",
                    (run / "manifest.json").string(), folder.first_start_unix_ns,
                    (run / "timings.jsonl").string(), *began);
}

}  // namespace

RunFolder read_run(const fs::path& run) {
  RunFolder folder;
  try {
    const train::Manifest manifest = read_manifest(run / "manifest.json", folder);
    folder.adapter = train::adapter_file(run);
    const auto newest = train::glance_at_newest(run);
    train::Timings timings(run);
    const std::int64_t steps = read_log(run, timings, folder.facts);
    train::require_finished(run, manifest, steps, newest);
    if (!folder.preregistration_sha256.empty()) require_held(run, steps, newest);
    timings.require_all_passed();
    require_start(run, timings, folder);
  } catch (const nlohmann::json::exception& wrong) {
    throw base::Error("{}: {}", (run / "log.jsonl").string(), store::json_reason(wrong.what()));
  }
  return folder;
}

void add_training_data(const RunFolder& run, TaskFiles& files) {
  if (run.set_folder.empty()) {
    files.ids = run.ids_files;
  } else {
    files.sets.insert(files.sets.begin(), run.set_folder);
  }
}

void require_trained_on(const RunFolder& run, const std::vector<measure::EvalTask>& tasks) {
  const std::string_view kind = run.set_folder.empty() ? "ids" : "set";
  const auto task = std::ranges::find(tasks, kind, &measure::EvalTask::kind);
  assert(task != tasks.end());
  if (task->sha256 == run.facts.data_sha256) return;
  throw base::Error(
      "{}: SHA-256 of the data is {}, the run was trained on data of {}",
      run.set_folder.empty() ? fmt::format("{}", fmt::join(run.ids_files, ", ")) : run.set_folder,
      task->sha256, run.facts.data_sha256);
}

}  // namespace engine::cli
