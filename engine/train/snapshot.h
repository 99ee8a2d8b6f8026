#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "engine/model/adapter_set.h"
#include "engine/store/durable.h"
#include "engine/train/moments.h"
#include "engine/train/record.h"
#include "engine/train/settings.h"

namespace engine::train {

// What a run is about, by content: it may not change from one resume to the next.
struct Identity {
  std::string config_sha256;           // of config.json's bytes
  std::string headers_sha256;          // of what the shards' headers say (see headers_digest)
  std::string data_sha256;             // of the ids, sequence by sequence, or of a set's manifest
  std::string preregistration_sha256;  // empty: none
  std::string held_out_sha256;         // of the manifest of the set for evaluation; empty: none
};

// state.json: everything that a run needs besides the adapter and its moments to go on as if it had
// never stopped.
struct SnapshotState {
  std::string run_id;
  Identity identity;
  SettingTexts settings;        // the seed and the schedule are among them
  std::int64_t step = 0;        // steps taken, which is AdamW's t as well
  std::int64_t cursor = 0;      // sequences taken, the skipped ones among them
  std::int64_t skipped = 0;     // sequences without a trained target so far
  std::int64_t evaluated = -1;  // last step behind which the held-out set was evaluated; -1: none
  // Behind this checkpoint's own line, or, for one that was asked for out of turn, the step's last:
  // a run that was not asked to stop has no line for it.
  LogPosition log;
};

struct SnapshotDigests {
  std::string adapter;
  std::string moments;
};

// The native adapter file of a set: values, r, alpha, targets, and for which checkpoint they are:
// config_sha256 and headers_sha256.
void write_adapter(const std::filesystem::path& path, const model::AdapterSet& adapters,
                   const Identity& identity);

// RUN/checkpoints/step_NNNNN (more digits where needed) with adapter.safetensors,
// moments.safetensors and state.json, in two halves because the log line of a checkpoint carries
// the digests and state.json the digest of that line. It appears, complete and on the disk, in
// publish(); killed before, it is a folder with the ending .lazylora-tmp, which the next one clears away.
class SnapshotWriter {
 public:
  SnapshotWriter(const std::filesystem::path& run, std::int64_t step);

  // Errors    Error naming the file and the disk's reason; older checkpoints are untouched
  SnapshotDigests write_tensors(const model::AdapterSet& adapters, const Moments& moments,
                                const Identity& identity);
  // A folder of this step or a later one, which find_newest refused, is renamed to end in .damaged: it would
  // be in the way, or be kept for newer than this one.
  void publish(const SnapshotState& state);

 private:
  std::filesystem::path final_;
  store::TemporaryFolder folder_;
  SnapshotDigests digests_;
};

// Folders that bear a checkpoint's name.
std::int64_t count_snapshots(const std::filesystem::path& run);

// Removes all but the newest `keep` checkpoints, and what a kill left half written or half removed.
void prune_snapshots(const std::filesystem::path& run, std::int64_t keep);

// The newest checkpoint whose three files are whole: state.json's digest of itself and its digests
// of the other two hold, and its step is the one that its folder is named after. A newer one that is
// not whole is passed over, its reason reported: going on from the one before it gives the same
// bits, since a resume repeats what was lost.
struct Snapshot {
  std::filesystem::path folder;
  SnapshotState state;
};
struct FoundSnapshot {
  std::optional<Snapshot> newest;
  std::vector<std::string> refused;  // "step_00010: why", newest first
};
FoundSnapshot find_newest(const std::filesystem::path& run);

// The state of a checkpoint whose three files are whole.
// Errors    Error naming the file and what does not hold
SnapshotState read_snapshot(const std::filesystem::path& folder);

// The newest whose state.json holds by itself; the files of tensors are not read. For a glance at a
// run that may be at work, not to go on from.
std::optional<Snapshot> glance_at_newest(const std::filesystem::path& run);

// Errors    Error naming the first tensor that is missing or of another shape, or their number
void load_tensors(const std::filesystem::path& snapshot, const model::AdapterSet& adapters,
                  const Moments& moments);

// Bytes of a checkpoint's three files, at most.
std::uint64_t snapshot_bytes(const model::AdapterSet& adapters);

}  // namespace engine::train
