// What an adapter does to the choice of experts, read off the sweeps that score: on paper, with nothing
// changed, and against two traces of the same texts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "checks/compare.h"
#include "checks/engine_run.h"
#include "checks/measure/toy_routing.h"
#include "checks/scratch_folder.h"
#include "engine/base/error.h"
#include "engine/base/parallel.h"
#include "engine/measure/eval_units.h"
#include "engine/measure/evaluate.h"
#include "engine/measure/routing_comparison.h"

namespace {

namespace measure = engine::measure;
using checks::Engine;
using measure::LayerChange;
using measure::RoutingChange;
using testing::HasSubstr;

bool agrees(std::optional<double> got, double want) {
  return got && checks::compare(std::vector<double>{*got}, std::vector<double>{want},
                                std::vector<double>{16 * std::numeric_limits<double>::epsilon()});
}

// A dense layer, then one with experts.
engine::model::Config toy_config() {
  engine::model::Config config;
  config.layers = 2;
  config.dense_layers = 1;
  config.experts = 4;
  config.chosen = 2;
  return config;
}

// A sweep's layers, as the model tells its hooks of them.
void sweep(const engine::model::SweepHooks& hooks, std::vector<std::int32_t> index) {
  hooks.progress("forward", 0);
  hooks.trace->route_index[1] = std::move(index);
  hooks.trace->values[engine::model::Trace::at("route_w", 1)] = {};
  hooks.progress("forward", 1);
}

using Rows = std::vector<std::int32_t>;
void both(RoutingChange& change, const Rows& base, const Rows& adapter, const Rows& targets) {
  engine::model::SweepHooks hooks;
  change.watch_base(hooks);
  sweep(hooks, base);
  change.watch_adapter(hooks, targets);
  sweep(hooks, adapter);
}

// The toy's experts; and with {0,2} for token 3, and token 5's set in the other order.
const Rows kBase = checks::toy_layer().index;
const Rows kAdapter{0, 1, 1, 0, 2, 1, 0, 2, 1, 2, 1, 2};

TEST(RoutingChange, OnPaper) {
  const engine::model::Config config = toy_config();
  RoutingChange change(config);
  both(change, kBase, kAdapter, Rows(6, 7));
  ASSERT_EQ(change.layers().size(), 1u);
  EXPECT_EQ(change.layers()[0].layer, 1);
  EXPECT_EQ(change.layers()[0].overlap.pairs(), 6);
  EXPECT_TRUE(agrees(change.layers()[0].overlap.jaccard(), 8.0 / 9.0));  // five times 1, once 1/3
  EXPECT_TRUE(agrees(change.layers()[0].overlap.equal(), 5.0 / 6.0));

  // In two sweeps the very same.
  RoutingChange parts(config);
  both(parts, {kBase.begin(), kBase.begin() + 8}, {kAdapter.begin(), kAdapter.begin() + 8},
       Rows(4));
  both(parts, {kBase.begin() + 8, kBase.end()}, {kAdapter.begin() + 8, kAdapter.end()}, Rows(2));
  EXPECT_EQ(parts.layers()[0].overlap.jaccard(), change.layers()[0].overlap.jaccard());

  // Token 3 is context only: what it chooses is nobody's.
  RoutingChange scored(config);
  both(scored, kBase, kAdapter, {7, 7, 7, -1, 7, 7});
  EXPECT_EQ(scored.layers()[0].overlap.pairs(), 5);
  EXPECT_EQ(scored.layers()[0].overlap.jaccard(), 1.0);
  EXPECT_EQ(scored.layers()[0].overlap.equal(), 1.0);

  // Nothing in common.
  RoutingChange apart(config);
  both(apart, {0, 1, 1, 0}, {2, 3, 3, 2}, Rows(2));
  EXPECT_EQ(apart.layers()[0].overlap.jaccard(), 0.0);
  EXPECT_EQ(apart.layers()[0].overlap.equal(), 0.0);
}

measure::EvalTask task_of(std::int64_t chunk, std::int64_t stride) {
  measure::EvalTask task;
  task.name = "text:a.txt";
  task.units = measure::chunk_units(
      checks::random_ids(50, 512, 5), {chunk, stride}, [](std::int32_t) { return std::int64_t{1}; },
      "a.txt");
  return task;
}

std::vector<double> figures(const std::vector<LayerChange>& layers) {
  std::vector<double> all;
  for (const auto& [layer, overlap] : layers) {
    all.push_back(static_cast<double>(layer));
    all.push_back(*overlap.jaccard());
    all.push_back(*overlap.equal());
  }
  return all;
}

std::vector<double> nlls(const std::vector<measure::UnitScore>& scores) {
  std::vector<double> all;
  for (const measure::UnitScore& score : scores) all.push_back(score.nll);
  return all;
}

// The base against itself is 1 in every layer, to the last bit, and so is the mean of the layers.
TEST(RoutingChange, AnAdapterThatChangesNothing) {
  Engine engine(checks::tiny_checkpoint());
  engine::model::AdapterSet zero(engine.config(), {4, 8.0}, engine.budget);
  zero.initialize(1);
  const auto scores = measure::score_pair(engine.model, engine.budget, zero, task_of(12, 7));
  ASSERT_EQ(static_cast<std::int64_t>(scores.routing.size()),
            engine.config().layers - engine.config().dense_layers);
  for (const auto& [layer, overlap] : scores.routing) {
    EXPECT_EQ(overlap.pairs(), 49) << layer;  // each scored id once, however the chunks overlap
    EXPECT_EQ(overlap.jaccard(), 1.0) << layer;
    EXPECT_EQ(overlap.equal(), 1.0) << layer;
  }
  EXPECT_EQ(measure::over_layers(scores.routing).jaccard(), 1.0);
  // Planted: an adapter that does change something is seen.
  const auto some = measure::score_pair(
      engine.model, engine.budget, *checks::random_adapter_set(engine, 4, 8.0, 2), task_of(12, 7));
  EXPECT_LT(measure::over_layers(some.routing).jaccard(), 1.0);
  EXPECT_LT(measure::over_layers(some.routing).equal(), 1.0);
}

// Scores and overlaps are functions of the inputs: of no batching and no threads. Nothing stays held.
TEST(RoutingChange, SameBitsHoweverItIsSwept) {
  Engine engine(checks::tiny_checkpoint());
  const measure::EvalTask task = task_of(12, 7);
  const auto adapters = checks::random_adapter_set(engine, 4, 8.0, 2);
  const std::uint64_t held = engine.budget.used_bytes();
  const auto pair = [&](std::int64_t batch) {
    return measure::score_pair(engine.model, engine.budget, *adapters, task, {batch});
  };
  const measure::PairedScores together = pair(4096);
  EXPECT_EQ(engine.budget.used_bytes(), held);
  const auto alone = [&](const engine::model::AdapterSet* set) {
    return nlls(measure::score_units(engine.model, engine.budget, set, task));
  };
  EXPECT_EQ(nlls(together.base), alone(nullptr));
  EXPECT_EQ(nlls(together.adapter), alone(adapters.get()));
  EXPECT_EQ(figures(pair(1).routing), figures(together.routing));
  const int threads = engine::base::threads();
  engine::base::set_threads(threads + 2);
  EXPECT_EQ(figures(pair(25).routing), figures(together.routing));
  engine::base::set_threads(threads);
  engine::base::RamBudget tight(RoutingChange(engine.config()).bytes_of_sweep(1));
  EXPECT_THAT([&] { measure::score_pair(engine.model, tight, *adapters, task); },
              testing::ThrowsMessage<engine::base::Error>(HasSubstr("experts chosen in a sweep")));
}

// `lazylora trace` of the same chunks, twice, and `analyze --against` find the same.
TEST(RoutingChange, IsThatOfTwoTraces) {
  Engine engine(checks::tiny_checkpoint());
  const measure::EvalTask task = task_of(12, 12);  // side by side: all that is fed is scored
  const auto adapters = checks::random_adapter_set(engine, 4, 8.0, 2);
  const auto scores = measure::score_pair(engine.model, engine.budget, *adapters, task);
  measure::TraceOrigin origin;
  for (const measure::EvalUnit& unit : task.units) origin.documents.push_back(unit.tokens);
  const checks::ScratchFolder scratch;
  measure::write_trace(engine.model, engine.budget, nullptr, origin, scratch / "base", false);
  measure::write_trace(engine.model, engine.budget, adapters.get(), origin, scratch / "adapter",
                       false);
  const measure::RoutingTrace base(scratch / "base"), adapter(scratch / "adapter");
  const auto comparison = measure::compare(adapter, base, engine.budget);
  std::vector<double> want;
  for (const measure::LayerComparison& layer : comparison.layers) {
    want.push_back(static_cast<double>(layer.layer));
    want.push_back(*layer.token_jaccard);
    want.push_back(*layer.same_set);
  }
  EXPECT_EQ(figures(scores.routing), want);
  const auto itself = measure::compare(base, base, engine.budget);
  EXPECT_EQ(itself.token_jaccard, 1.0);
  EXPECT_EQ(itself.same_set, 1.0);
  EXPECT_EQ(itself.usage_overlap, 1.0);
}

TEST(RoutingChange, PlantedFaults) {
  const engine::model::Config config = toy_config();
  // All that is fed counts, context too.
  RoutingChange fed(config);
  both(fed, kBase, kAdapter, Rows(6, 7));
  EXPECT_NE(fed.layers()[0].overlap.jaccard(), 1.0);
  // Rows of one model a token late.
  RoutingChange late(config);
  Rows shifted(kAdapter.begin() + 2, kAdapter.end());
  shifted.insert(shifted.end(), {1, 2});
  both(late, kBase, shifted, Rows(6, 7));
  EXPECT_FALSE(agrees(late.layers()[0].overlap.jaccard(), 8.0 / 9.0));
  // The base model's choice of the sweep before.
  RoutingChange stale(config);
  both(stale, {2, 3, 2, 3}, {2, 3, 2, 3}, Rows(2));
  both(stale, {0, 1, 0, 1}, {0, 1, 0, 1}, Rows(2));
  EXPECT_EQ(stale.layers()[0].overlap.jaccard(), 1.0);
}

}  // namespace
