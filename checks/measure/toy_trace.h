#pragma once

#include <filesystem>
#include <vector>

#include "checks/measure/toy_routing.h"
#include "engine/measure/routing_trace.h"
#include "engine/measure/trace_folder.h"

namespace checks {

inline std::vector<engine::measure::LayerRouting> toy_layers() {
  return {toy_layer(), toy_layer_behind(), toy_last_layer()};
}

// Ids of the toy's two texts.
inline const std::vector<std::vector<std::int32_t>> kToyTexts{{3, 1, 4, 1}, {5, 9}};

// Two layers of KDA and one that is not, as a trace folder at `out`.
inline void write_toy_trace(
    const std::filesystem::path& out, bool with_ids = true, bool hdf5 = false,
    const std::vector<engine::measure::LayerRouting>& layers = toy_layers()) {
  engine::measure::TraceFolder folder(out, toy_shape(), hdf5);
  for (const auto& layer : layers) folder.add(layer, layer.layer != 4);
  engine::measure::TraceManifest manifest;
  manifest.tag = "toy";
  manifest.experts = 4;
  manifest.layers_requested = 5;
  manifest.compute_dtype = "float32";
  manifest.config_sha256 = std::string(64, 'c');
  manifest.headers_sha256 = std::string(64, 'd');
  manifest.loss = 1.25;
  for (const auto& ids : kToyTexts) {
    manifest.documents.push_back(
        {static_cast<std::int64_t>(ids.size()), engine::measure::ids_digest(ids)});
    if (with_ids) manifest.ids.insert(manifest.ids.end(), ids.begin(), ids.end());
  }
  folder.commit(std::move(manifest));
}

}  // namespace checks
