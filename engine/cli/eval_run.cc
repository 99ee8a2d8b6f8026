#include "engine/cli/eval_run.h"

#include <algorithm>
#include <cassert>
#include <nlohmann/json.hpp>

#include "engine/base/error.h"
#include "engine/base/sha256.h"
#include "engine/store/json_text.h"
#include "engine/train/manifest.h"
#include "engine/train/run_adapter.h"

namespace engine::cli {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

void read_manifest(const fs::path& path, RunFolder& folder) {
  const auto manifest = train::read_manifest(path.parent_path());
  if (!manifest) throw base::Error("{}: is not there: no run of `lazylora train`", path.string());
  folder.facts.run_id = manifest->run_id;
  folder.facts.data_sha256 = manifest->identity.data_sha256;
  folder.preregistration_sha256 = manifest->identity.preregistration_sha256;
  const Json first =
      Json::parse(store::read_json_text(path, train::kMostManifestBytes)).at("starts").at(0);
  folder.model_folder = first.at("model_folder");
  folder.ids_files = first.at("ids_files");
  folder.set_folder = first.at("set_folder");
  folder.first_start_unix_ns = first.at("start_unix_ns");
}

// The losses of the steps. Digest and lines are those of the part that was checked, whatever a run
// that goes on appends meanwhile.
void read_log(const fs::path& run, measure::EvalRun& facts) {
  base::Sha256 hash;
  const auto each = [&](std::string_view text, const train::LogPosition& behind) {
    hash.update(text);
    hash.update("\n");
    const Json json = Json::parse(text);
    if (json.at("phase") == "step_end") {
      facts.losses.push_back({json.at("step"), json.at("loss"), behind.lines});
    }
  };
  const train::LogPosition end = train::require_logged_run(run, each).end;
  facts.log_lines = end.lines;
  facts.log_head = end.head;
  facts.log_sha256 = hash.hex();
}

}  // namespace

RunFolder read_run(const fs::path& run) {
  RunFolder folder;
  try {
    read_manifest(run / "manifest.json", folder);
    folder.adapter = train::adapter_file(run);
    read_log(run, folder.facts);
  } catch (const nlohmann::json::exception& wrong) {
    throw base::Error("{}: {}", run.string(), store::json_reason(wrong.what()));
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
