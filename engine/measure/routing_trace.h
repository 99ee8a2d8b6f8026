#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/measure/layer_routing.h"
#include "engine/measure/trace_manifest.h"
#include "engine/model/model.h"
#include "engine/store/file.h"

namespace engine::measure {

// A routing trace is a folder: trace.bin, LazyLoRA's records, one for every layer with experts in
// the order of the layers,
//
//   i32 layer, i32 n, i32 k, i16[n,k] experts, f16[n,k] weights        12 + 4nk bytes
//
// its manifest trace.json, and if asked for trace.h5, the same with weights in float32.
// docs/formats.md has all three.

struct TraceOrigin {
  std::string tag;
  std::string config_sha256, headers_sha256, adapter_sha256;  // the last empty: the base model
  std::vector<std::vector<std::int32_t>> documents;           // ids of each text
  bool with_ids = false;                                      // in the manifest, not digests alone
};

// Runs the model over the texts, documents of one batch in which every id is fed, and leaves the
// trace in `out`. Equal arguments make equal bytes. A folder at `out` appears when it is complete.
//
// Errors    Error naming `out` if something is there already, a layer and token whose weight does
//           not fit a f16, or what the model or the disk has to say
model::SweepResult write_trace(model::Model& model, base::RamBudget& budget,
                               const model::AdapterSet* adapters, const TraceOrigin& origin,
                               const std::filesystem::path& out, bool hdf5);

// A trace on disk, read layer by layer.
class RoutingTrace {
 public:
  // `path`: the folder, or a file of records alone, which is one text. `experts` is asked for where
  // the manifest does not say it, and must agree where it does.
  //
  // Errors    Error naming file, offset and the two values that disagree: a record cut short, bytes
  //           behind the last, layers not ascending, n or k that change or do not fit, a manifest
  //           that says otherwise, a listed file that is not there or has another digest; or that
  //           nobody says how many experts there are
  explicit RoutingTrace(const std::filesystem::path& path, std::int64_t experts = 0);

  const TraceShape& shape() const { return shape_; }
  const std::vector<std::int64_t>& layers() const { return layers_; }
  const std::optional<TraceManifest>& manifest() const { return manifest_; }
  std::string name() const { return file_->path().string(); }

  // Of layers()[at].
  // Errors    Error as require_sound, or if the manifest counts other distinct experts
  LayerRouting read(std::size_t at) const;
  // What holding one layer takes.
  std::uint64_t bytes_of_a_layer() const;

 private:
  void scan();
  void check_manifest();

  TraceShape shape_;
  std::vector<std::int64_t> layers_;
  std::vector<std::uint64_t> offsets_;
  std::optional<TraceManifest> manifest_;
  std::unique_ptr<store::File> file_;
};

// The same trace without the tag, and without ids and text, which stay as digests; trace.h5 and whatever a manifest of
// LazyLoRA says about clocks, paths and machine stay behind.
//
// Errors    those of RoutingTrace and its read(), and Error if something is at `out` already, or the
//           budget cannot hold a layer
void export_trace(const std::filesystem::path& from, const std::filesystem::path& out,
                  base::RamBudget& budget);

}  // namespace engine::measure
