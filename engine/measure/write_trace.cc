#include <cmath>
#include <utility>

#include "engine/base/error.h"
#include "engine/measure/routing_trace.h"
#include "engine/measure/trace_folder.h"
#include "engine/model/trace.h"

namespace engine::measure {
namespace {

// Every id is fed; the last of a text has nothing to predict.
model::Batch batch_of(const std::vector<std::vector<std::int32_t>>& documents) {
  model::Batch batch;
  batch.documents = {0};
  for (const std::vector<std::int32_t>& ids : documents) {
    batch.tokens.insert(batch.tokens.end(), ids.begin(), ids.end());
    batch.targets.insert(batch.targets.end(), ids.begin() + 1, ids.end());
    batch.targets.push_back(-1);
    batch.documents.push_back(batch.size());
  }
  return batch;
}

TraceManifest manifest_of(const TraceOrigin& origin, const TraceShape& shape,
                          const model::Config& config, double loss) {
  TraceManifest manifest;
  manifest.tag = origin.tag;
  manifest.experts = shape.experts;
  manifest.layers_requested = config.layers;
  manifest.compute_dtype = "float32";
  manifest.config_sha256 = origin.config_sha256;
  manifest.headers_sha256 = origin.headers_sha256;
  manifest.adapter_sha256 = origin.adapter_sha256;
  if (std::isfinite(loss)) manifest.loss = loss;
  for (const std::vector<std::int32_t>& ids : origin.documents) {
    manifest.documents.push_back({static_cast<std::int64_t>(ids.size()), ids_digest(ids)});
    if (origin.with_ids) manifest.ids.insert(manifest.ids.end(), ids.begin(), ids.end());
  }
  return manifest;
}

}  // namespace

model::SweepResult write_trace(model::Model& model, base::RamBudget& budget,
                               const model::AdapterSet* adapters, const TraceOrigin& origin,
                               const std::filesystem::path& out, bool hdf5) {
  const model::Config& config = model.config();
  if (config.experts > kMaxExperts) {
    throw base::Error("{}: {} experts a layer, a trace numbers at most {}", out.string(),
                      config.experts, kMaxExperts);
  }
  if (config.dense_layers >= config.layers) {
    throw base::Error("{}: {} layers, {} of them dense: no token chooses anything", out.string(),
                      config.layers, config.dense_layers);
  }
  const model::Batch batch = batch_of(origin.documents);
  const TraceShape shape{config.experts, batch.size(), config.chosen, batch.documents};
  // Choice and weights as the layer left them, as a f16 gives them back, and as bytes; gaps.
  const base::Charge held(
      budget, "trace of one layer",
      static_cast<std::uint64_t>(shape.requests() * (8 + 8 + 4) + 4 * shape.tokens));
  model.require_budget(batch.documents, adapters, false);

  TraceFolder folder(out, shape, hdf5);
  model::Trace trace;
  trace.routing_only = true;
  model::SweepHooks hooks;
  hooks.trace = &trace;
  hooks.progress = [&](std::string_view, std::int64_t layer) {
    if (!config.is_dense(layer)) {
      LayerRouting routing{layer, std::move(trace.route_index.at(layer)),
                           std::move(trace.values.at(model::Trace::at("route_w", layer)))};
      folder.add(routing, !config.is_mla[static_cast<std::size_t>(layer)]);
    }
    trace = {};
    trace.routing_only = true;
  };
  const model::SweepResult result = model.forward(batch, adapters, hooks);
  folder.commit(manifest_of(origin, shape, config, result.loss));
  return result;
}

}  // namespace engine::measure
