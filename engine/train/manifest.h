#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "engine/store/scale_scan.h"
#include "engine/store/shard_reader.h"
#include "engine/train/settings.h"
#include "engine/train/snapshot.h"

namespace engine::train {

// A start of a run, first or resumed: where and how, nothing of which may change a result.
struct Start {
  std::vector<std::string> arguments;
  std::string model_folder;
  std::string working_folder;          // what relative paths among the arguments start from
  std::vector<std::string> ids_files;  // either these or
  std::string set_folder;              // this
  std::string held_out_folder;         // empty: none
  std::string program;                 // name and version
  std::string git_commit;              // empty: not known
  std::string instruction_set;
  std::int64_t threads = 0;
  std::uint64_t ram_bytes = 0;
  std::string ram_source;
  // SHA-256 of the digest manifest that every tensor's bytes were compared with before this start;
  // empty: the content was not verified.
  std::string digests_sha256;
};

// SHA-256 of what the headers say: name, dtype, shape, file, offset and size of every tensor. Not
// of the content, which takes a read of everything (`lazylora shards --write-digests`).
std::string headers_digest(const store::ShardReader& shards);

// SHA-256 of the ids of all sequences in order, each behind its count.
std::string data_digest(const std::vector<std::vector<std::int32_t>>& sequences);

// From settings, model, data and name alone, so a repetition has the same id: the first 16 hex
// digits of a SHA-256, behind the name if there is one.
std::string make_run_id(const SettingTexts& settings, const Identity& identity,
                        const std::string& name);

// RUN/manifest.json: run id, identity, settings, and a list of starts, the first and every resume.
struct Manifest {
  std::string run_id;
  Identity identity;
  SettingTexts settings;
  std::int64_t sequences = 0;  // in the data: an epoch
};

// A start takes a page or two: these are ten thousand. What would be more is not written either.
inline constexpr std::uint64_t kMostManifestBytes = 16 << 20;

// RUN/restarts.json: how often a dead run was started again by whoever looks after it (restart.h).
inline constexpr const char* kRestartsFile = "restarts.json";

// Makes the run folder with the manifest in it, in one step. `scales`: nothing if not scanned.
// Errors    Error if RUN is there and not empty
void create_run(const std::filesystem::path& run, const Manifest& manifest,
                const std::optional<store::ScaleScan>& scales, const Start& start);
// The manifest of a new run over that of one which took no step, and which is the caller's by its lock.
// How often that one was started again is forgotten.
void begin_anew(const std::filesystem::path& run, const Manifest& manifest,
                const std::optional<store::ScaleScan>& scales, const Start& start);
// Adds a start that goes on behind `step`.
void add_start(const std::filesystem::path& run, const Start& start, std::int64_t step);
// Nothing if RUN/manifest.json is not there.
// Errors    Error naming file and field; Error if the run id is not that of the settings and digests beside it, or
//           RUN is a folder of another kind (require_kind)
std::optional<Manifest> read_manifest(const std::filesystem::path& run);

// A start as the manifest has it.
struct PastStart {
  std::int64_t behind_step = 0;
  std::vector<std::string> arguments;
  std::string working_folder;
  std::uint64_t ram_bytes = 0;
};
// Errors    Error naming file and field
std::vector<PastStart> read_starts(const std::filesystem::path& run);

}  // namespace engine::train
