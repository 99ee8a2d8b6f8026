#pragma once

#include <filesystem>
#include <memory>
#include <vector>

#include "engine/measure/layer_routing.h"
#include "engine/measure/trace_manifest.h"
#include "engine/store/dump.h"
#include "engine/store/durable.h"

namespace engine::measure {
// A trace on its way to disk, layer by layer; it appears under its name with commit().
class TraceFolder {
 public:
  // Errors    Error naming `out` if something is there already or it cannot be made
  TraceFolder(const std::filesystem::path& out, const TraceShape& shape, bool hdf5);

  // Errors    Error as require_sound, that a weight is beyond f16, or the disk's reason
  void add(const LayerRouting& routing, bool is_kda);
  // Writes `manifest` with the rows and digests of what was added.
  void commit(TraceManifest manifest);

 private:
  std::filesystem::path out_;
  TraceShape shape_;
  store::TemporaryFolder folder_;
  store::DurableFile records_;
  std::unique_ptr<store::DumpWriter> hdf5_;
  std::vector<TracedLayer> rows_;
};

}  // namespace engine::measure
