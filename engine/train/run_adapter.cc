#include "engine/train/run_adapter.h"

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "engine/base/error.h"
#include "engine/base/sha256.h"
#include "engine/store/at_path.h"

namespace engine::train {
namespace {

namespace fs = std::filesystem;

constexpr const char* kAdapter = "adapter.safetensors";
constexpr const char* kLog = "log.jsonl";

// A string of a log line; empty if there is none of that name, or it is no string.
std::string text_of(const nlohmann::json& line, const char* name) {
  const auto found = line.find(name);
  return found != line.end() && found->is_string() ? found->get<std::string>() : "";
}

// Digest of the adapter that the log's last checkpoint wrote; empty if it has none. Its lines are JSON
// objects: the chain was followed. More than that a chain does not say of them.
std::string written_adapter(const fs::path& log) {
  std::string adapter, text;
  std::ifstream file(log, std::ios::binary);
  while (std::getline(file, text)) {
    const auto line = nlohmann::json::parse(text);
    if (text_of(line, "phase") == "checkpoint") adapter = text_of(line, "adapter_sha256");
  }
  return adapter;
}

}  // namespace

fs::path adapter_file(const fs::path& path) {
  if (!store::is_folder(path)) return path;
  if (store::is_there(path / kAdapter)) return path / kAdapter;
  if (!store::is_there(path / "manifest.json")) {
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

LogPosition require_logged_run(const fs::path& run) {
  const fs::path log = run / kLog;
  const LogPosition end = check_log(log);
  if (end.lines == 0) {
    throw base::Error("{}: is empty, and the log of a run begins with its start", log.string());
  }
  const std::string logged = written_adapter(log);
  if (logged.empty()) {
    throw base::Error("{}: {} lines, and no checkpoint among them: it wrote no adapter",
                      log.string(), end.lines);
  }
  const std::string found = base::sha256_hex_of_file(run / kAdapter);
  if (logged != found) {
    throw base::Error("{}: has SHA-256 {}, the last checkpoint in {} wrote {}",
                      (run / kAdapter).string(), found, log.string(), logged);
  }
  return end;
}

void require_logged(const Snapshot& snapshot) {
  const fs::path run = snapshot.folder.parent_path().parent_path();
  if (store::is_there(run / "manifest.json")) check_log(run / kLog, &snapshot.state.log);
}

void require_logged(const fs::path& adapter) {
  if (adapter.filename() != kAdapter) return;
  const fs::path folder = fs::absolute(adapter).parent_path();
  const fs::path run = folder.parent_path().parent_path();
  if (store::is_there(folder / "state.json") && store::is_there(run / "manifest.json")) {
    require_logged(Snapshot{folder, read_snapshot(folder)});
  } else if (store::is_there(folder / "manifest.json")) {
    require_logged_run(folder);
  }
}

}  // namespace engine::train
