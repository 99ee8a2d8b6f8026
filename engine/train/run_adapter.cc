#include "engine/train/run_adapter.h"

#include <tuple>

#include "engine/base/error.h"
#include "engine/base/sha256.h"
#include "engine/store/at_path.h"
#include "engine/store/folder_kind.h"

namespace engine::train {
namespace {

namespace fs = std::filesystem;

constexpr const char* kAdapter = "adapter.safetensors";
constexpr const char* kLog = "log.jsonl";
constexpr const char* kManifest = "manifest.json";

// A checkpoint carries what its run is about, digest by digest.
void require_of(const fs::path& run, const Manifest& manifest, const Snapshot& snapshot) {
  const SnapshotState& state = snapshot.state;
  const Identity &saved = state.identity, &said = manifest.identity;
  const std::tuple<const char*, const std::string&, const std::string&> all[] = {
      {"run", state.run_id, manifest.run_id},
      {"config_sha256", saved.config_sha256, said.config_sha256},
      {"headers_sha256", saved.headers_sha256, said.headers_sha256},
      {"data_sha256", saved.data_sha256, said.data_sha256},
      {"held_out_sha256", saved.held_out_sha256, said.held_out_sha256},
      {"preregistration_sha256", saved.preregistration_sha256, said.preregistration_sha256}};
  for (const auto& [name, in_state, in_manifest] : all) {
    if (in_state == in_manifest) continue;
    throw base::Error("{}: {} is \"{}\", {} has \"{}\"", (snapshot.folder / "state.json").string(),
                      name, in_state, (run / kManifest).string(), in_manifest);
  }
}

}  // namespace

fs::path adapter_file(const fs::path& path) {
  if (!store::is_folder(path)) return path;
  if (store::is_there(path / kAdapter)) return path / kAdapter;
  store::require_kind(path, store::FolderKind::kRun);
  if (!store::is_there(path / kManifest)) {
    throw base::Error("{}: holds no {}, and is no run", path.string(), kAdapter);
  }
  const FoundSnapshot found = find_newest(path);
  if (!found.newest) {
    throw base::Error("{}: the run is not finished, and has no whole checkpoint yet{}",
                      path.string(), found.refused.empty() ? "" : ": " + found.refused.front());
  }
  throw base::Error("{}: the run is not finished (no {}); its newest checkpoint is {}",
                    path.string(), kAdapter, found.newest->folder.string());
}

LoggedRun require_logged_run(const fs::path& run, const LogVisitor& each) {
  const fs::path log = run / kLog;
  LoggedRun found;
  std::string logged;  // digest of the adapter
  found.end = check_log(log, nullptr, [&](std::string_view line, const LogPosition& behind) {
    const std::string phase = text_of(line, "phase");
    if (phase == "checkpoint") {
      logged = text_of(line, "adapter_sha256");
      found.run_id = text_of(line, "run");
      found.step = number_of(line, "step");
      found.odd_line = 0;
    } else if (phase == "evaluation") {
      found.evaluated = number_of(line, "step");
    } else if (phase != "override" && found.odd_line == 0) {
      found.odd_line = behind.lines;
    }
    if (each) each(line, behind);
  });
  if (found.end.lines == 0) {
    throw base::Error("{}: is empty, and the log of a run begins with its start", log.string());
  }
  if (logged.empty()) {
    throw base::Error("{}: {} lines, and no checkpoint among them: it wrote no adapter",
                      log.string(), found.end.lines);
  }
  const std::string there = base::sha256_hex_of_file(run / kAdapter);
  if (logged != there) {
    throw base::Error("{}: has SHA-256 {}, the last checkpoint in {} wrote {}",
                      (run / kAdapter).string(), there, log.string(), logged);
  }
  return found;
}

void require_finished(const fs::path& run, const Manifest& manifest, std::int64_t steps,
                      const std::optional<Snapshot>& newest) {
  const fs::path log = run / kLog;
  if (newest) {
    require_of(run, manifest, *newest);
    check_log(log, &newest->state.log);
  }
  if (!store::is_there(run / kAdapter)) {
    const std::string helps =
        newest
            ? fmt::format("the run's command with --resume goes on behind {} and writes it again",
                          newest->folder.string())
            : "nor is a checkpoint that it could be written from: put either back, or begin anew "
              "with another --out";
    throw base::Error("{}: is not there, and {} has all {} steps; {}", (run / kAdapter).string(),
                      log.string(), steps, helps);
  }
  const LoggedRun logged = require_logged_run(run);
  if (logged.run_id != manifest.run_id) {
    throw base::Error("{}: is of run {}, {} is of run {}", log.string(), logged.run_id,
                      (run / kManifest).string(), manifest.run_id);
  }
  if (logged.step != steps) {
    throw base::Error("{}: its last checkpoint is behind step {}, and the run has {} steps",
                      log.string(), logged.step, steps);
  }
  if (logged.odd_line > 0) {
    throw base::Error("{} line {} of {}: stands behind the checkpoint of the run's last step, {}",
                      log.string(), logged.odd_line, logged.end.lines, steps);
  }
  if (!manifest.identity.held_out_sha256.empty() && logged.evaluated != steps) {
    throw base::Error("{}: its last evaluation is behind step {}, and the run has {} steps",
                      log.string(), logged.evaluated, steps);
  }
}

void require_logged(const Snapshot& snapshot) {
  const fs::path run = snapshot.folder.parent_path().parent_path();
  if (store::is_there(run / kManifest)) check_log(run / kLog, &snapshot.state.log);
}

void require_logged(const fs::path& adapter) {
  if (adapter.filename() != kAdapter) return;
  const fs::path folder = store::absolute_path(adapter).parent_path();
  const fs::path run = folder.parent_path().parent_path();
  if (store::is_there(folder / "state.json") && store::is_there(run / kManifest)) {
    require_logged(Snapshot{folder, read_snapshot(folder)});
  } else if (store::is_there(folder / kManifest)) {
    require_logged_run(folder);
  }
}

}  // namespace engine::train
