#include "engine/cli/eval_run.h"

#include <fstream>
#include <nlohmann/json.hpp>

#include "engine/base/error.h"
#include "engine/base/sha256.h"
#include "engine/store/json_text.h"
#include "engine/train/manifest.h"
#include "engine/train/record.h"

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
  std::ifstream file(path, std::ios::binary);
  const Json first = Json::parse(file).at("starts").at(0);
  folder.model_folder = first.at("model_folder");
  folder.ids_files = first.at("ids_files");
  folder.first_start_unix_ns = first.at("start_unix_ns");
}

// The losses of the steps, and the digest of the adapter that the last checkpoint wrote.
std::string read_log(const fs::path& path, measure::EvalRun& facts) {
  const train::LogPosition end = train::check_log(path, nullptr);
  facts.log_sha256 = base::sha256_hex_of_file(path);
  facts.log_lines = end.lines;
  facts.log_head = end.head;
  std::string adapter, text;
  std::ifstream file(path, std::ios::binary);
  for (std::int64_t line = 1; std::getline(file, text); ++line) {
    const Json json = Json::parse(text);
    const std::string phase = json.at("phase");
    if (phase == "checkpoint") adapter = json.at("adapter_sha256");
    if (phase == "step_end") facts.losses.push_back({json.at("step"), json.at("loss"), line});
  }
  return adapter;
}

}  // namespace

RunFolder read_run(const fs::path& run) {
  RunFolder folder;
  folder.adapter = run / "adapter.safetensors";
  const fs::path log = run / "log.jsonl";
  try {
    read_manifest(run / "manifest.json", folder);
    if (!fs::exists(folder.adapter)) {
      throw base::Error("{}: is not there: the run is not finished", folder.adapter.string());
    }
    const std::string logged = read_log(log, folder.facts);
    const std::string found = base::sha256_hex_of_file(folder.adapter);
    if (logged != found) {
      throw base::Error("{}: has SHA-256 {}, the last checkpoint in {} wrote {}",
                        folder.adapter.string(), found, log.string(), logged);
    }
  } catch (const nlohmann::json::exception& wrong) {
    throw base::Error("{}: {}", run.string(), store::json_reason(wrong.what()));
  }
  return folder;
}

}  // namespace engine::cli
