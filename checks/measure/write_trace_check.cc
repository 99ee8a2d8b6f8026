// Traces of a model: what the sweep chose is what stands in the file, and it is the same each time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "checks/compare.h"
#include "checks/engine_run.h"
#include "checks/hdf5_file.h"
#include "checks/scratch_folder.h"
#include "engine/base/dtype.h"
#include "engine/base/error.h"
#include "engine/base/f16.h"
#include "engine/base/parallel.h"
#include "engine/measure/routing_trace.h"

namespace {

namespace measure = engine::measure;
using checks::Engine;
using checks::read_bytes;
using checks::ScratchFolder;

measure::TraceOrigin origin_of(const Engine& engine) {
  measure::TraceOrigin origin;
  origin.config_sha256 = engine.config().sha256;
  origin.documents = {checks::random_ids(13, 512, 5), checks::random_ids(8, 512, 6)};
  return origin;
}

// The same two texts as the sweep itself sees them.
engine::model::Batch batch_of(const measure::TraceOrigin& origin) {
  std::vector<std::int32_t> ids = origin.documents[0];
  ids.insert(ids.end(), origin.documents[1].begin(), origin.documents[1].end());
  engine::model::Batch batch = checks::forward_batch(ids);
  batch.documents = {0, 13, 21};
  batch.targets[12] = -1;
  return batch;
}

std::string all_bytes(const std::filesystem::path& trace) {
  return read_bytes(trace / "trace.bin") + read_bytes(trace / "trace.json") +
         read_bytes(trace / "trace.h5");
}

TEST(WriteTrace, J8_ThreeTimesTheSame) {
  Engine engine(checks::tiny_checkpoint());
  const ScratchFolder scratch;
  const auto written = [&](const std::string& name) {
    measure::write_trace(engine.model, engine.budget, nullptr, origin_of(engine), scratch / name,
                         true);
    return all_bytes(scratch / name);
  };
  const std::string first = written("first");
  // Other work in between: gradients of other texts, another trace, other threads.
  const auto adapters = checks::random_adapter_set(engine, 4, 8.0, 3);
  checks::run_backward(engine, checks::forward_batch(checks::random_ids(30, 512, 9)), *adapters);
  EXPECT_EQ(written("second"), first);
  measure::write_trace(engine.model, engine.budget, adapters.get(), origin_of(engine),
                       scratch / "adapted", true);
  const int threads = engine::base::threads();
  engine::base::set_threads(threads + 2);
  EXPECT_EQ(written("third"), first);
  engine::base::set_threads(threads);
  // The test can see a difference: adapters choose otherwise somewhere.
  EXPECT_NE(read_bytes(scratch / "adapted" / "trace.bin"),
            read_bytes(scratch / "first" / "trace.bin"));
}

TEST(WriteTrace, HoldsWhatTheSweepChose) {
  Engine engine(checks::tiny_checkpoint());
  const ScratchFolder scratch;
  const measure::TraceOrigin origin = origin_of(engine);
  const std::uint64_t held = engine.budget.used_bytes();
  const auto result =
      measure::write_trace(engine.model, engine.budget, nullptr, origin, scratch / "trace", true);
  EXPECT_EQ(engine.budget.used_bytes(), held);
  const checks::EngineRun run = checks::run_forward(engine, batch_of(origin), nullptr);
  const measure::RoutingTrace trace(scratch / "trace");
  const checks::NamedTensors hdf5 = checks::read_hdf5(scratch / "trace" / "trace.h5");
  ASSERT_EQ(trace.layers().size(), run.trace.route_index.size());
  EXPECT_EQ(trace.shape().documents, (std::vector<std::int64_t>{0, 13, 21}));
  EXPECT_EQ(trace.manifest()->loss, run.result.loss);
  EXPECT_EQ(result.loss, run.result.loss);
  for (std::size_t i = 0; i < trace.layers().size(); ++i) {
    const std::int64_t layer = trace.layers()[i];
    const measure::LayerRouting read = trace.read(i);
    EXPECT_EQ(read.index, run.trace.route_index.at(layer));
    const auto& weight = run.trace.values.at(engine::model::Trace::at("route_w", layer));
    std::vector<float> halves = weight;
    for (float& w : halves) w = engine::base::f16_to_float(engine::base::float_to_f16(w));
    EXPECT_TRUE(checks::same_bits(read.weight, halves));
    const std::string at = fmt::format("{:03}", layer);
    EXPECT_TRUE(checks::same_bits(checks::at(hdf5, "route_w_" + at).f32(), weight));
    EXPECT_EQ(checks::at(hdf5, "route_idx_" + at).i32(), read.index);
    EXPECT_EQ(trace.manifest()->layers[i].is_kda,
              !engine.config().is_mla[static_cast<std::size_t>(layer)]);
    EXPECT_EQ(trace.manifest()->layers[i].distinct,
              run.result.distinct_experts[static_cast<std::size_t>(layer)]);
  }
}

// Texts are documents: together they are traced as each would be alone.
TEST(WriteTrace, TextsDoNotSeeEachOther) {
  Engine engine(checks::tiny_checkpoint());
  const ScratchFolder scratch;
  measure::TraceOrigin origin = origin_of(engine);
  measure::write_trace(engine.model, engine.budget, nullptr, origin, scratch / "both", false);
  origin.documents.erase(origin.documents.begin());
  measure::write_trace(engine.model, engine.budget, nullptr, origin, scratch / "second", false);
  const measure::RoutingTrace both(scratch / "both"), second(scratch / "second");
  const auto skipped = 13 * both.shape().chosen;
  bool later = false;
  for (std::size_t i = 0; i < both.layers().size(); ++i) {
    const auto all = both.read(i).index;
    const auto alone = second.read(i).index;
    EXPECT_EQ(std::vector<std::int32_t>(all.begin() + skipped, all.end()), alone);
    later = later || std::vector<std::int32_t>(all.begin(), all.end() - skipped) != alone;
  }
  EXPECT_TRUE(later) << "a planted fault: the first text's tokens are not the second's";
}

TEST(WriteTrace, RefusesBeforeTheSweep) {
  Engine engine(checks::tiny_checkpoint());
  const ScratchFolder scratch;
  checks::write_bytes(scratch / "there", "x");
  const std::uint64_t read = engine.model.shards().bytes_read();
  EXPECT_THROW(measure::write_trace(engine.model, engine.budget, nullptr, origin_of(engine),
                                    scratch / "there", false),
               engine::base::Error);
  EXPECT_EQ(engine.model.shards().bytes_read(), read);
  EXPECT_EQ(read_bytes(scratch / "there"), "x");
  engine::base::RamBudget tight(1000);
  EXPECT_THAT(
      [&] {
        measure::write_trace(engine.model, tight, nullptr, origin_of(engine), scratch / "new",
                             false);
      },
      testing::ThrowsMessage<engine::base::Error>(testing::HasSubstr("trace of one layer")));
  EXPECT_FALSE(std::filesystem::exists(scratch / "new"));
}

}  // namespace
