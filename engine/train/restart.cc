#include "engine/train/restart.h"

#include <algorithm>

#include "engine/base/budget.h"
#include "engine/base/error.h"
#include "engine/train/manifest.h"

namespace engine::train {
namespace {

void require_free(const std::filesystem::path& run, const char* what, std::uint64_t free,
                  std::uint64_t wanted) {
  if (free >= wanted) return;
  throw base::Error("{}: {} of {} free, {} wanted: it is not started again", run.string(),
                    base::format_bytes(free), what, base::format_bytes(wanted));
}

// The folder that was named, wherever the run was when it was started: it may be a copy, or moved.
void direct_to(const std::filesystem::path& run, std::vector<std::string>& arguments) {
  const std::string out = std::filesystem::absolute(run).string();
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

}  // namespace

Restart plan_restart(const std::filesystem::path& run, const RunStatus& status,
                     const RestartLimits& limits, std::uint64_t available_memory) {
  const std::vector<PastStart> starts = read_starts(run);
  if (starts.empty() || starts.back().arguments.empty()) {
    throw base::Error("{}: its manifest does not say how it was started", run.string());
  }
  const auto behind = [&](const PastStart& s) { return s.behind_step == status.checkpoint_step; };
  const auto other = std::find_if_not(starts.rbegin(), starts.rend(), behind);
  std::int64_t restarts = other - starts.rbegin();
  if (other == starts.rend()) --restarts;  // the very first start was none
  if (restarts >= limits.restarts) {
    throw base::Error(
        "{}: started {} times behind step {} and dead each time before the next checkpoint, {} are "
        "allowed: it is not started again",
        run.string(), restarts + 1, status.checkpoint_step, limits.restarts);
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

}  // namespace engine::train
