#include "engine/train/snapshot.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "engine/adapter/native.h"
#include "engine/base/error.h"
#include "engine/base/sha256.h"
#include "engine/store/at_path.h"
#include "engine/store/json_text.h"
#include "engine/store/safetensors_writer.h"
#include "engine/store/shard_reader.h"

namespace engine::train {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr const char* kAdapterFile = "adapter.safetensors";
constexpr const char* kMomentsFile = "moments.safetensors";
constexpr const char* kStateFile = "state.json";
constexpr const char* kFormat = "lazylora checkpoint 1";
constexpr std::string_view kPrefix = "step_";
constexpr std::uint64_t kMostStateBytes = 1'000'000;

fs::path checkpoints(const fs::path& run) { return run / "checkpoints"; }

fs::path folder_of(const fs::path& run, std::int64_t step) {
  return checkpoints(run) / fmt::format("{}{:05}", kPrefix, step);
}

// The step that a folder is named after; nothing if that is no checkpoint's name.
std::optional<std::int64_t> step_of(const fs::path& folder) {
  const std::string name = folder.filename().string();
  const bool digits = name.size() >= kPrefix.size() + 5 && name.size() <= kPrefix.size() + 18 &&
                      name.find_first_not_of("0123456789", kPrefix.size()) == std::string::npos;
  if (!digits || !name.starts_with(kPrefix)) return std::nullopt;
  return std::stoll(name.substr(kPrefix.size()));
}

// Whole checkpoints by name, newest first; nothing if there is no folder of them.
std::vector<fs::path> list_snapshots(const fs::path& run) {
  std::vector<std::pair<std::int64_t, fs::path>> found;
  if (!store::is_there(checkpoints(run))) return {};
  for (const fs::path& path : store::entries(checkpoints(run))) {
    if (const auto step = step_of(path)) found.emplace_back(*step, path);
  }
  std::sort(found.rbegin(), found.rend());
  std::vector<fs::path> paths;
  for (const auto& [step, path] : found) paths.push_back(path);
  return paths;
}

std::string digest_of(const Json& state) { return base::sha256_hex(state.dump()); }

Json json_of(const SnapshotState& state, const SnapshotDigests& files) {
  Json settings = Json::object();
  for (const auto& [name, text] : state.settings) settings[name] = text;
  Json json = {
      {"format", kFormat},
      {"run", state.run_id},
      {"step", state.step},
      {"settings", settings},
      {"data",
       {{"sha256", state.identity.data_sha256},
        {"cursor", state.cursor},
        {"skipped", state.skipped},
        {"held_out_sha256", state.identity.held_out_sha256},
        {"evaluated", state.evaluated}}},
      {"generator", "philox4x32-10 keyed by SHA-256(seed, name), counter = index: no state"},
      {"model",
       {{"config_sha256", state.identity.config_sha256},
        {"headers_sha256", state.identity.headers_sha256}}},
      {"preregistration_sha256", state.identity.preregistration_sha256},
      {"log", {{"lines", state.log.lines}, {"bytes", state.log.bytes}, {"head", state.log.head}}},
      {"files", {{kAdapterFile, files.adapter}, {kMomentsFile, files.moments}}},
  };
  json["sha256"] = digest_of(json);
  return json;
}

SnapshotState state_of(const Json& json) {
  SnapshotState state;
  state.run_id = json.at("run");
  state.step = json.at("step");
  for (const auto& [name, text] : json.at("settings").items()) {
    state.settings.emplace_back(name, text);
  }
  const Json& data = json.at("data");
  state.cursor = data.at("cursor");
  state.skipped = data.at("skipped");
  state.evaluated = data.at("evaluated");
  const Json& model = json.at("model");
  state.identity = {model.at("config_sha256"), model.at("headers_sha256"), data.at("sha256"),
                    json.at("preregistration_sha256"), data.at("held_out_sha256")};
  const Json& log = json.at("log");
  state.log = {log.at("lines"), log.at("bytes"), log.at("head")};
  return state;
}

// state.json without its digest, which holds, as does the name of its folder.
Json read_state(const fs::path& folder) {
  const fs::path path = folder / kStateFile;
  try {
    Json json = Json::parse(store::read_json_text(path, kMostStateBytes));
    const std::string format = json.at("format");
    if (format != kFormat) {
      throw base::Error("{}: format \"{}\", this program reads \"{}\"", path.string(), format,
                        kFormat);
    }
    const std::string written = json.at("sha256");
    json.erase("sha256");
    const std::string found = digest_of(json);
    if (written != found) {
      throw base::Error("{}: says its SHA-256 is {}, it is {}", path.string(), written, found);
    }
    const std::int64_t step = json.at("step");
    if (const auto named = step_of(folder); named && *named != step) {
      throw base::Error("{}: is the state behind step {}, its folder is named after step {}",
                        path.string(), step, *named);
    }
    return json;
  } catch (const nlohmann::json::exception& wrong) {
    throw base::Error("{}: {}", path.string(), store::json_reason(wrong.what()));
  }
}

void write_moments(const fs::path& path, const model::AdapterSet& adapters,
                   const Moments& moments) {
  std::vector<store::TensorSpec> specs;
  for (const char* prefix : {"m.", "v."}) {
    for (const model::AdapterTensor& tensor : adapters.tensors()) {
      specs.push_back({prefix + tensor.name, base::Dtype::kF32, {tensor.rows, tensor.cols}});
    }
  }
  store::SafetensorsWriter writer(path, specs);
  std::size_t next = 0;
  const auto write = [&](const AdamwTensor& tensor, std::span<const float> moment) {
    writer.write(specs[next++].name, std::as_bytes(moment));
    put_away(tensor);
  };
  for (const AdamwTensor& tensor : moments.tensors()) write(tensor, tensor.m);
  for (const AdamwTensor& tensor : moments.tensors()) write(tensor, tensor.v);
  writer.finish();
}

}  // namespace

void write_adapter(const fs::path& path, const model::AdapterSet& adapters,
                   const Identity& identity) {
  std::vector<adapter::NativeTensor> tensors;
  for (const model::AdapterTensor& tensor : adapters.tensors()) {
    tensors.push_back({tensor.name, {tensor.rows, tensor.cols}, tensor.values});
  }
  const model::AdapterSettings& settings = adapters.settings();
  adapter::write_native_adapter(
      path, tensors,
      {settings.rank,
       settings.alpha,
       settings.targets,
       {{"config_sha256", identity.config_sha256}, {"headers_sha256", identity.headers_sha256}}},
      [&](std::size_t i) { adapters.put_away(adapters.tensors()[i]); });
}

SnapshotWriter::SnapshotWriter(const fs::path& run, std::int64_t step)
    : final_(folder_of(run, step)), folder_(final_) {}

SnapshotDigests SnapshotWriter::write_tensors(const model::AdapterSet& adapters,
                                              const Moments& moments, const Identity& identity) {
  const fs::path adapter_path = folder_.path() / kAdapterFile;
  const fs::path both = folder_.path() / kMomentsFile;
  write_adapter(adapter_path, adapters, identity);
  write_moments(both, adapters, moments);
  digests_ = {base::sha256_hex_of_file(adapter_path), base::sha256_hex_of_file(both)};
  return digests_;
}

void SnapshotWriter::publish(const SnapshotState& state) {
  const std::string text = json_of(state, digests_).dump(1) + "\n";
  store::write_file_durably(folder_.path() / kStateFile, text);
  for (const fs::path& refused : list_snapshots(final_.parent_path().parent_path())) {
    if (*step_of(refused) < *step_of(final_)) break;
    const fs::path aside = fs::path(refused) += ".damaged";
    store::remove_all(aside);
    store::rename(refused, aside);
  }
  folder_.commit();
}

std::int64_t count_snapshots(const fs::path& run) { return std::ssize(list_snapshots(run)); }

void prune_snapshots(const fs::path& run, std::int64_t keep) {
  std::vector<fs::path> gone;
  const std::vector<fs::path> all = list_snapshots(run);
  for (auto i = static_cast<std::size_t>(keep); i < all.size(); ++i) {
    // Out of the way in one step: killed while removing, no half a checkpoint bears a good name.
    const fs::path removed = fs::path(all[i]) += ".removed";
    store::rename(all[i], removed);
  }
  for (const fs::path& path : store::entries(checkpoints(run))) {
    const std::string ending = path.extension().string();
    if (ending == ".lazylora-tmp" || ending == ".removed") gone.push_back(path);
  }
  for (const fs::path& path : gone) store::remove_all(path);
}

SnapshotState read_snapshot(const fs::path& folder) {
  const Json json = read_state(folder);
  try {
    for (const auto& [name, digest] : json.at("files").items()) {
      const std::string got = base::sha256_hex_of_file(folder / name);
      if (digest != got) {
        throw base::Error("{}: SHA-256 {}, {} says {}", (folder / name).string(), got, kStateFile,
                          digest.get<std::string>());
      }
    }
    return state_of(json);
  } catch (const nlohmann::json::exception& wrong) {
    throw base::Error("{}: {}", (folder / kStateFile).string(), store::json_reason(wrong.what()));
  }
}

FoundSnapshot find_newest(const fs::path& run) {
  FoundSnapshot found;
  for (const fs::path& folder : list_snapshots(run)) {
    try {
      found.newest = Snapshot{folder, read_snapshot(folder)};
      return found;
    } catch (const base::Error& wrong) {
      found.refused.push_back(folder.filename().string() + ": " + wrong.what());
    }
  }
  return found;
}

std::optional<Snapshot> glance_at_newest(const fs::path& run) {
  for (const fs::path& folder : list_snapshots(run)) {
    try {
      return Snapshot{folder, state_of(read_state(folder))};
    } catch (const std::exception&) {
      // Not whole, or pruned meanwhile: the one before it will do.
    }
  }
  return std::nullopt;
}

void load_tensors(const fs::path& snapshot, const model::AdapterSet& adapters,
                  const Moments& moments) {
  // A checkpoint folder is a folder of safetensors files: the strict reader of shards reads it.
  const store::ShardReader reader(snapshot);
  const auto load = [&](const std::string& name, const model::AdapterTensor& like,
                        std::span<float> out) {
    const store::TensorEntry& entry = reader.find(name);
    if (entry.dtype != base::Dtype::kF32 ||
        entry.shape != std::vector<std::int64_t>{like.rows, like.cols}) {
      throw base::Error("{}: {} is {} of {} dimensions with {} bytes, wanted F32 [{}, {}]",
                        snapshot.string(), name, base::name_of(entry.dtype), entry.shape.size(),
                        entry.bytes, like.rows, like.cols);
    }
    reader.read(entry, std::as_writable_bytes(out));
  };
  const std::span<const model::AdapterTensor> tensors = adapters.tensors();
  if (reader.entries().size() != 3 * tensors.size()) {
    throw base::Error("{}: {} tensors, wanted {} (values and two moments of {})", snapshot.string(),
                      reader.entries().size(), 3 * tensors.size(), tensors.size());
  }
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    load(tensors[i].name, tensors[i], tensors[i].values);
    load("m." + tensors[i].name, tensors[i], moments.tensors()[i].m);
    load("v." + tensors[i].name, tensors[i], moments.tensors()[i].v);
    put_away(moments.tensors()[i]);
  }
}

std::uint64_t snapshot_bytes(const model::AdapterSet& adapters) {
  // A tensor's line in a header is its name and less than 150 bytes; state.json is below 16 KiB.
  std::uint64_t bytes = 16 * 1024;
  for (const model::AdapterTensor& tensor : adapters.tensors()) {
    bytes += 3 * (tensor.values.size_bytes() + tensor.name.size() + 150);
  }
  return bytes;
}

}  // namespace engine::train
