#include "engine/train/restart.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "engine/base/budget.h"
#include "engine/base/error.h"
#include "engine/store/at_path.h"
#include "engine/store/durable.h"
#include "engine/store/json_text.h"
#include "engine/train/manifest.h"

namespace engine::train {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::uint64_t kMostRestartsBytes = 4096;

void require_free(const std::filesystem::path& run, const char* what, std::uint64_t free,
                  std::uint64_t wanted) {
  if (free >= wanted) return;
  throw base::Error("{}: {} of {} free, {} wanted: it is not started again", run.string(),
                    base::format_bytes(free), what, base::format_bytes(wanted));
}

// The folder that was named, wherever the run was when it was started: it may be a copy, or moved.
void direct_to(const std::filesystem::path& run, std::vector<std::string>& arguments) {
  const std::string out = store::absolute_path(run).string();
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].starts_with("--out=")) {
      arguments[i] = "--out=" + out;
      return;
    }
    if (arguments[i] == "--out" && i + 1 < arguments.size()) {
      arguments[i + 1] = out;
      return;
    }
  }
  throw base::Error("{}: its manifest does not say that it was started with --out", run.string());
}

// Attempts that were counted behind this step; those behind another one count no more.
std::int64_t restarts_behind(const std::filesystem::path& run, std::int64_t step) {
  const std::filesystem::path path = run / kRestartsFile;
  if (!store::is_there(path)) return 0;
  try {
    const Json json = Json::parse(store::read_json_text(path, kMostRestartsBytes));
    const std::int64_t behind = json.at("behind_step"), restarts = json.at("restarts");
    return behind == step ? restarts : 0;
  } catch (const nlohmann::json::exception& wrong) {
    throw base::Error("{}: {}", path.string(), store::json_reason(wrong.what()));
  }
}

}  // namespace

Restart plan_restart(const std::filesystem::path& run, const RunStatus& status,
                     const RestartLimits& limits, std::uint64_t available_memory) {
  const std::vector<PastStart> starts = read_starts(run);
  if (starts.empty() || starts.back().arguments.empty()) {
    throw base::Error("{}: its manifest does not say how it was started", run.string());
  }
  const std::int64_t restarts = restarts_behind(run, status.checkpoint_step);
  if (restarts >= limits.restarts) {
    throw base::Error(
        "{}: started again {} times behind step {} without a newer checkpoint, {} are allowed: it "
        "is "
        "not started again until there is one, or {} is removed",
        run.string(), restarts, status.checkpoint_step, limits.restarts,
        (run / kRestartsFile).string());
  }
  require_free(run, "its disk", status.disk_free_bytes,
               limits.free_disk.value_or(2 * status.checkpoint_bytes));
  require_free(run, "memory", available_memory,
               limits.free_memory.value_or(starts.back().ram_bytes));
  Restart restart{starts.back().arguments, starts.back().working_folder, restarts};
  if (std::ranges::find(restart.arguments, "--resume") == restart.arguments.end()) {
    restart.arguments.emplace_back("--resume");
  }
  direct_to(run, restart.arguments);
  return restart;
}

void count_restart(const std::filesystem::path& run, const RunStatus& status,
                   const Restart& restart) {
  const Json json = {{"behind_step", status.checkpoint_step}, {"restarts", restart.restarts + 1}};
  store::write_file_durably(run / kRestartsFile, json.dump() + "\n");
}

}  // namespace engine::train
