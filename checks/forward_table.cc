#include "checks/forward_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <stdexcept>
#include <string_view>

#include "checks/compare.h"
#include "checks/oracle_run.h"
#include "oracle/bound.h"
#include "oracle/layer.h"

namespace checks {
namespace {

double cosine(const std::vector<double>& a, const std::vector<double>& b) {
  double ab = 0.0, aa = 0.0, bb = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    ab += a[i] * b[i];
    aa += a[i] * a[i];
    bb += b[i] * b[i];
  }
  return ab / std::sqrt(aa * bb);
}

std::int64_t sets_that_differ(const std::vector<std::int32_t>& got,
                              const std::vector<std::int32_t>& want, std::int64_t chosen) {
  if (got.size() != want.size()) throw std::runtime_error("routing of different sizes");
  std::int64_t count = 0;
  for (auto g = got.begin(), w = want.begin(); g != got.end(); g += chosen, w += chosen) {
    count += std::set(g, g + chosen) != std::set(w, w + chosen) ? 1 : 0;
  }
  return count;
}

std::string kind_of(const engine::model::Config& config, std::int64_t layer) {
  return fmt::format("{} {}", config.is_mla[static_cast<std::size_t>(layer)] ? "MLA" : "KDA",
                     config.is_dense(layer) ? "dense" : "MoE");
}

const NamedTensor* find(const ForwardReference& reference, const std::string& name) {
  const auto found = reference.values.find(name);
  return found == reference.values.end() ? nullptr : &found->second;
}

// Fills what both tables have in common. `allowed` is one number an element.
LayerRow compare_layer(const engine::model::Config& config, std::int64_t layer,
                       const std::vector<double>& got, const std::vector<double>& want,
                       const std::vector<double>& allowed) {
  LayerRow row;
  row.layer = layer;
  row.kind = kind_of(config, layer);
  const Comparison compared = compare(got, want, allowed);
  row.holds = compared.holds;
  row.worst = compared.worst;
  if (got.size() != want.size()) return row;
  row.cosine = cosine(got, want);
  for (std::size_t i = 0; i < got.size(); ++i) {
    row.largest_difference = std::max(row.largest_difference, std::abs(got[i] - want[i]));
  }
  row.deviation_got = deviation(got);
  row.deviation_want = deviation(want);
  return row;
}

LayerRow free_running_row(Engine& engine, const engine::model::Trace& trace, std::int64_t layer,
                          const NamedTensor& want, const ForwardReference& reference) {
  const engine::model::Config& config = engine.config();
  const std::string point = layer + 1 < config.layers ? engine::model::Trace::at("h_in", layer + 1)
                                                      : std::string("h_out");
  const double limit = kLargestDifference * deviation(want.data);
  LayerRow row = compare_layer(config, layer, widen(trace.values.at(point)), want.data,
                               std::vector<double>(want.data.size(), limit));
  row.holds = row.holds && row.cosine >= kLeastCosine;
  if (config.is_dense(layer)) return row;
  const std::vector<float>& gap = trace.gap.at(layer);
  row.smallest_gap = *std::min_element(gap.begin(), gap.end());
  if (const NamedTensor* routing = find(reference, fmt::format("route_idx_{:03}", layer))) {
    row.compared_routing = true;
    row.routing_differs =
        sets_that_differ(trace.route_index.at(layer), routing->i32(), config.chosen);
    row.holds = row.holds && row.routing_differs == 0;
  }
  return row;
}

// The residual that enters `layer`: the embedding, or what the reference says left the layer
// before.
const NamedTensor* entering(const ForwardReference& reference, std::int64_t layer,
                            const NamedTensor& embedding) {
  return layer == 0 ? &embedding : find(reference, fmt::format("h_layer_{:03}", layer - 1));
}

std::vector<oracle::Bound> bounds_of(const std::vector<float>& values) {
  return {values.begin(), values.end()};
}

// The stages of a layer, by their name in the engine's trace and their place in the oracle's.
struct Stage {
  const char* name;
  std::vector<oracle::Bound> oracle::LayerTrace<oracle::Bound>::*field;
};
using BoundTrace = oracle::LayerTrace<oracle::Bound>;
constexpr Stage kStages[] = {{"attn_res", &BoundTrace::attn_res}, {"attn_in", &BoundTrace::attn_in},
                             {"attn_out", &BoundTrace::attn_out}, {"mlp_res", &BoundTrace::mlp_res},
                             {"mlp_in", &BoundTrace::mlp_in},     {"mlp_out", &BoundTrace::mlp_out},
                             {"route_w", &BoundTrace::route_w},   {"moe_z", &BoundTrace::moe_z},
                             {"moe_acc", &BoundTrace::moe_acc}};

// The engine walks one layer from the reference's inputs, and the oracle walks it stage by stage,
// each stage from what the engine had in front of it: what float32 may add in one stage is a bound
// with teeth, what it may add in a whole layer is not. Against a reference that is float32 itself
// the layer's output is held to the free run's gate.
LayerRow one_layer_row(Engine& engine, const oracle::Checkpoint& checkpoint,
                       const engine::model::Batch& batch, std::int64_t layer,
                       const std::vector<std::vector<float>>& bank, std::vector<float> h,
                       const NamedTensor& want) {
  const engine::model::Config& config = engine.config();
  const std::vector<oracle::Bound> entering_bound = bounds_of(h);
  std::vector<std::vector<oracle::Bound>> bank_bound;
  for (const auto& entry : bank) bank_bound.push_back(bounds_of(entry));

  engine::model::Trace trace;
  engine.model.forward_layer(layer, batch, bank, h, nullptr, &trace);
  BoundTrace given;
  for (const Stage& stage : kStages) {
    const auto found = trace.values.find(engine::model::Trace::at(stage.name, layer));
    if (found != trace.values.end()) given.*stage.field = bounds_of(found->second);
  }
  // Bounds hold for one choice of experts: the engine's. Whether it had to be that one is in the
  // gaps.
  std::vector<std::vector<std::int32_t>> replay(static_cast<std::size_t>(config.layers));
  oracle::Options<oracle::Bound> options;
  if (!config.is_dense(layer)) {
    replay[static_cast<std::size_t>(layer)] = trace.route_index.at(layer);
    options.replay_routing = &replay;
  }
  BoundTrace bounded = oracle::layer_forward<oracle::Bound>(
      checkpoint, layer, bank_bound, entering_bound, {}, oracle_batch(batch), options, &given);

  const double gate = kLargestDifference * deviation(want.data);
  LayerRow row = compare_layer(config, layer, widen(h), want.data,
                               std::vector<double>(want.data.size(), gate));
  row.worst = 0.0;
  const auto within_bound = [&](const char* name, const std::vector<float>& got,
                                const std::vector<oracle::Bound>& bound) {
    std::vector<double> exact, allowed;
    for (const oracle::Bound& b : bound) {
      exact.push_back(b.value);
      allowed.push_back(b.err);
    }
    const Comparison compared = compare(widen(got), exact, allowed);
    row.holds = row.holds && compared.holds;
    // The last addition uses up its allowance, one rounding, as it should: not worth a figure.
    if (std::string_view(name) != "h_layer" && !(compared.worst <= row.worst)) {
      row.worst = compared.worst;
      row.worst_stage = name;
    }
  };
  for (const Stage& stage : kStages) {
    const auto found = trace.values.find(engine::model::Trace::at(stage.name, layer));
    if (found != trace.values.end()) within_bound(stage.name, found->second, bounded.*stage.field);
  }
  within_bound("h_layer", h, bounded.h_out);
  for (std::size_t t = 0; t < bounded.gap.size(); ++t) {
    row.uncertified += bounded.gap[t] > bounded.gap_err[t] ? 0 : 1;
    row.smallest_gap = std::min(row.smallest_gap.value_or(bounded.gap[t]), bounded.gap[t]);
  }
  return row;
}

void compare_logits(const EngineRun& run, const NamedTensor& want, std::int64_t tokens,
                    ForwardTable& table) {
  const double limit = kLargestDifference * deviation(want.data);
  const Comparison compared =
      compare(widen(run.logits), want.data, std::vector<double>(want.data.size(), limit));
  table.logits_worst = compared.worst;
  table.logits_hold = compared.holds;
  table.argmax_differs = 0;
  const auto width = static_cast<std::ptrdiff_t>(run.logits.size()) / tokens;
  if (want.data.size() != run.logits.size()) return;
  for (std::int64_t t = 0; t < tokens; ++t) {
    const auto got = run.logits.begin() + t * width;
    const auto wanted = want.data.begin() + t * width;
    const auto got_at = std::max_element(got, got + width) - got;
    const auto want_at = std::max_element(wanted, wanted + width) - wanted;
    table.argmax_differs += got_at != want_at ? 1 : 0;
  }
  table.logits_hold = table.logits_hold && table.argmax_differs == 0;
}

}  // namespace

double deviation(const std::vector<double>& values) {
  double mean = 0.0;
  for (const double v : values) mean += v / static_cast<double>(values.size());
  double square = 0.0;
  for (const double v : values) square += (v - mean) * (v - mean);
  return std::sqrt(square / static_cast<double>(values.size()));
}

ForwardTable compare_forward(Engine& engine, const std::filesystem::path& model,
                             const std::vector<std::int32_t>& ids,
                             const ForwardReference& reference) {
  const engine::model::Config& config = engine.config();
  require_fit(reference, config, ids);
  const engine::model::Batch batch = forward_batch(ids);
  const EngineRun run = run_forward(engine, batch, nullptr);
  const oracle::Checkpoint checkpoint(model);
  ForwardTable table;
  const NamedTensor embedding{{batch.size(), config.hidden}, widen(run.trace.values.at("embed"))};
  std::vector<std::vector<float>> bank;
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    const NamedTensor* want = find(reference, fmt::format("h_layer_{:03}", layer));
    const std::vector<float> given = entering(reference, layer, embedding)->f32();
    table.free_running.push_back(free_running_row(engine, run.trace, layer, *want, reference));
    table.layer_by_layer.push_back(
        one_layer_row(engine, checkpoint, batch, layer, bank, given, *want));
    if (config.is_boundary(layer)) bank.push_back(given);
  }
  if (const NamedTensor* logits = find(reference, "logits")) {
    compare_logits(run, *logits, batch.size(), table);
  }
  return table;
}

}  // namespace checks
