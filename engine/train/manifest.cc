#include "engine/train/manifest.h"

#include <unistd.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "engine/base/error.h"
#include "engine/base/float_mode.h"
#include "engine/base/sha256.h"
#include "engine/store/at_path.h"
#include "engine/store/durable.h"
#include "engine/store/folder_kind.h"
#include "engine/store/json_text.h"

namespace engine::train {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr const char* kManifest = "manifest.json";
constexpr std::size_t kIdDigits = 16;

Json json_of(const Start& start, std::int64_t behind_step) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  Json commit = nullptr, digests = nullptr;
  if (!start.digests_sha256.empty()) digests = start.digests_sha256;
  if (!start.git_commit.empty()) commit = start.git_commit;
  return {
      {"behind_step", behind_step},
      {"start_unix_ns", std::chrono::duration_cast<std::chrono::nanoseconds>(now).count()},
      {"process", ::getpid()},
      {"arguments", start.arguments},
      {"model_folder", start.model_folder},
      {"content_verified", !start.digests_sha256.empty()},
      {"digests_sha256", digests},
      {"working_folder", start.working_folder},
      {"ids_files", start.ids_files},
      {"set_folder", start.set_folder},
      {"held_out_folder", start.held_out_folder},
      {"program", start.program},
      {"git_commit", commit},
      {"instruction_set", start.instruction_set},
      {"threads", start.threads},
      {"ram_bytes", start.ram_bytes},
      {"ram_source", start.ram_source},
      {"numerics", "canonical"},
      {"mxcsr", fmt::format("0x{:04x}", base::float_mode())},
  };
}

Json json_of(const Manifest& manifest, const std::optional<store::ScaleScan>& scales,
             const Start& start) {
  Json settings = Json::object();
  for (const auto& [name, text] : manifest.settings) settings[name] = text;
  Json odd = nullptr;
  if (scales) {
    odd = {{"groups", scales->nan_groups}, {"groups_with_codes", scales->nan_groups_with_codes}};
  }
  const Identity& identity = manifest.identity;
  return {
      {"run", manifest.run_id},
      {"config_sha256", identity.config_sha256},
      {"headers_sha256", identity.headers_sha256},
      {"data_sha256", identity.data_sha256},
      {"tokenizer_sha256", nullptr},  // a set says which one made it; ids do not
      {"preregistration_sha256", identity.preregistration_sha256},
      {"held_out_sha256", identity.held_out_sha256},
      {"sequences", manifest.sequences},
      {"e8m0_255", odd},
      {"settings", settings},
      {"starts", Json::array({json_of(start, 0)})},
  };
}

void write(const fs::path& path, const Json& json) {
  try {
    const std::string text = json.dump(1) + "\n";
    if (text.size() > kMostManifestBytes) {
      throw base::Error("{}: would have {} bytes with this start, and {} are read at most",
                        path.string(), text.size(), kMostManifestBytes);
    }
    store::write_file_durably(path, text);
  } catch (const nlohmann::json::exception& wrong) {  // an argument that is not UTF-8
    throw base::Error("{}: {}", path.string(), store::json_reason(wrong.what()));
  }
}

// The part of a run id that --name gave.
std::string name_in(const std::string& run_id) {
  return run_id.size() > kIdDigits ? run_id.substr(0, run_id.size() - kIdDigits - 1) : "";
}

// The id is made from what it stands for, and every line of the log bears it.
void require_own_id(const Manifest& manifest, const fs::path& path) {
  const std::string id =
      make_run_id(manifest.settings, manifest.identity, name_in(manifest.run_id));
  if (id == manifest.run_id) return;
  throw base::Error(
      "{}: says it is of run {}, and its settings and digests make run {}: one of them was changed",
      path.string(), manifest.run_id, id);
}

Json read(const fs::path& path) {
  return Json::parse(store::read_json_text(path, kMostManifestBytes));
}

}  // namespace

std::string headers_digest(const store::ShardReader& shards) {
  base::Sha256 hash;
  for (const store::TensorEntry& entry : shards.entries()) {
    const fs::path& file = shards.files()[static_cast<std::size_t>(entry.shard)].path();
    std::string line = fmt::format("{}|{}|{}|{}|{}", entry.name, base::name_of(entry.dtype),
                                   file.filename().string(), entry.offset, entry.bytes);
    for (const std::int64_t extent : entry.shape) line += fmt::format("|{}", extent);
    hash.update(line + "\n");
  }
  return hash.hex();
}

std::string data_digest(const std::vector<std::vector<std::int32_t>>& sequences) {
  base::Sha256 hash;
  for (const std::vector<std::int32_t>& ids : sequences) {
    hash.update(fmt::format("{}\n", ids.size()));
    hash.update_values(std::span<const std::int32_t>(ids));
  }
  return hash.hex();
}

std::string make_run_id(const SettingTexts& settings, const Identity& identity,
                        const std::string& name) {
  std::string text;
  for (const auto& [setting, value] : settings) text += setting + "=" + value + "\n";
  text += fmt::format("config={}\nheaders={}\ndata={}\npreregistration={}\nheld_out={}\nname={}\n",
                      identity.config_sha256, identity.headers_sha256, identity.data_sha256,
                      identity.preregistration_sha256, identity.held_out_sha256, name);
  const std::string digest = base::sha256_hex(text).substr(0, kIdDigits);
  return name.empty() ? digest : name + "-" + digest;
}

void create_run(const fs::path& run, const Manifest& manifest,
                const std::optional<store::ScaleScan>& scales, const Start& start) {
  store::TemporaryFolder folder(run);
  write(folder.path() / kManifest, json_of(manifest, scales, start));
  folder.commit();
}

void begin_anew(const fs::path& run, const Manifest& manifest,
                const std::optional<store::ScaleScan>& scales, const Start& start) {
  store::remove_all(run / kRestartsFile);
  write(run / kManifest, json_of(manifest, scales, start));
}

void add_start(const fs::path& run, const Start& start, std::int64_t step) {
  Json json = read(run / kManifest);
  json["starts"].push_back(json_of(start, step));
  write(run / kManifest, json);
}

std::vector<PastStart> read_starts(const fs::path& run) {
  const Json json = read(run / kManifest);
  std::vector<PastStart> starts;
  try {
    for (const Json& start : json.at("starts")) {
      starts.push_back({start.at("behind_step"), start.at("arguments"), start.at("working_folder"),
                        start.at("ram_bytes")});
    }
  } catch (const nlohmann::json::exception& wrong) {
    throw base::Error("{}: {}", (run / kManifest).string(), store::json_reason(wrong.what()));
  }
  return starts;
}

std::optional<Manifest> read_manifest(const fs::path& run) {
  store::require_kind(run, store::FolderKind::kRun);
  const fs::path path = run / kManifest;
  if (!store::is_there(path)) return std::nullopt;
  const Json json = read(path);
  try {
    Manifest manifest;
    manifest.run_id = json.at("run");
    manifest.identity = {json.at("config_sha256"), json.at("headers_sha256"),
                         json.at("data_sha256"), json.at("preregistration_sha256"),
                         json.at("held_out_sha256")};
    manifest.sequences = json.at("sequences");
    for (const auto& [name, text] : json.at("settings").items()) {
      manifest.settings.emplace_back(name, text);
    }
    require_own_id(manifest, path);
    return manifest;
  } catch (const nlohmann::json::exception& wrong) {
    throw base::Error("{}: {}", path.string(), store::json_reason(wrong.what()));
  }
}

}  // namespace engine::train
