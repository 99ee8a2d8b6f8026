// Reading ahead and keeping what is wanted twice: no bit may depend on it, every byte is accounted
// for, and memory stays what the plan says.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "checks/compare.h"
#include "checks/engine_run.h"
#include "checks/model/stream_case.h"
#include "checks/scratch_folder.h"
#include "engine/model/expert_stream.h"
#include "engine/model/layer_stream.h"
#include "engine/model/synthesize.h"

namespace {

using checks::kAmple;
using checks::Outcome;
using checks::run;
using checks::same_bits;
using checks::some_batch;
using engine::base::RamBudget;
using engine::model::AdapterSet;
using engine::model::Batch;
using engine::model::Model;
using engine::model::ModelOptions;
using engine::model::Plan;
using engine::model::SweepResult;
using engine::store::DirectReads;

// From one slot of each kind to memory for everything.
std::vector<std::uint64_t> budgets(const Plan& plan) {
  const auto expert = static_cast<std::uint64_t>(plan.expert_bytes);
  const auto half = static_cast<std::uint64_t>(plan.weights_bytes);
  return {0,
          expert - 1,
          expert,
          3 * expert,
          8 * expert + half,
          8 * expert + half + 5 * expert + 17,
          static_cast<std::uint64_t>(plan.expert_slots_useful) * expert + 4 * half,
          kAmple};
}

void expect_same(const Outcome& got, const Outcome& want, const std::string& what) {
  EXPECT_TRUE(same_bits(got.logits, want.logits)) << what;
  EXPECT_TRUE(same_bits(got.gradients, want.gradients)) << what;
  EXPECT_EQ(got.result.loss, want.result.loss) << what;
  EXPECT_EQ(got.result.distinct_experts, want.result.distinct_experts) << what;
  EXPECT_EQ(got.result.bytes_read + got.result.bytes_saved,
            want.result.bytes_read + want.result.bytes_saved)
      << what;
}

TEST(Stream, SameBitsForEveryBudgetAndEveryWayOfReading) {
  const Outcome want = run(0);
  EXPECT_GT(std::ranges::count_if(want.gradients, [](float g) { return g != 0.0f; }), 1000);
  for (const std::uint64_t bytes : budgets(want.plan)) {
    for (const bool ring : {false, true}) {
      ModelOptions options;
      options.queue.io_uring = ring;
      options.reads.direct = ring ? DirectReads::kAlways : DirectReads::kNever;
      expect_same(run(bytes, options), want, fmt::format("{} bytes more, ring {}", bytes, ring));
    }
  }
  ModelOptions options;
  options.queue = {false, 1};
  options.reads.direct = DirectReads::kAlways;
  expect_same(run(8 << 20, options), want, "one thread, direct");
  options.queue = {true, 1};
  options.reads.direct = DirectReads::kNever;
  expect_same(run(8 << 20, options), want, "io_uring, buffered");
}

// The budget is spent as the plan says, to the byte, and more of it means less to read.
TEST(Stream, C2_ResidentAndKeptAreOneSumAndNeverMoreThanTheBudget) {
  const Plan plan = run(0).plan;
  const auto least = static_cast<std::uint64_t>(plan.least_bytes());
  std::uint64_t saved_before = 0;
  for (const std::uint64_t bytes : budgets(plan)) {
    const Outcome now = run(bytes);
    EXPECT_EQ(now.taken, static_cast<std::uint64_t>(now.plan.total_bytes()));
    EXPECT_LE(now.taken, least + bytes);
    EXPECT_GE(now.result.bytes_saved, saved_before) << bytes;
    saved_before = now.result.bytes_saved;
    if (now.plan.expert_slots > 9) {
      EXPECT_THAT(now.plan.table(), testing::HasSubstr("experts kept for the way down"));
    }
  }
  // A plan that would spend one byte more than there is must be seen as such: it takes a slot more.
  Plan other = plan;
  other.spend(least + static_cast<std::uint64_t>(plan.expert_bytes));
  EXPECT_EQ(other.expert_slots, 2);
  Plan tight = plan;
  tight.spend(least + static_cast<std::uint64_t>(plan.expert_bytes) - 1);
  EXPECT_EQ(tight.expert_slots, 1);
}

TEST(Stream, BytesAreWhatTheIdentitySaysForEveryBudget) {
  RamBudget budget(kAmple);
  const Model model(checks::tiny_checkpoint(), budget);
  const auto& config = model.config();
  std::uint64_t trunk = 0, head = 0, dense_again = 0, dense_gate = 0;
  for (const auto& entry : model.shards().entries()) {
    const std::string name(entry.name);
    if (name.find(".experts.") != std::string::npos) continue;
    if (name.find("embed_tokens") != std::string::npos) continue;
    trunk += entry.bytes;
    if (name.find("lm_head") != std::string::npos) head = entry.bytes;
    // Of a dense MLP only one matrix is in memory: on the way down gate and up are wanted twice.
    if (name.find(".mlp.gate_proj") != std::string::npos) dense_gate = entry.bytes;
    if (name.find(".mlp.gate_proj") != std::string::npos ||
        name.find(".mlp.up_proj") != std::string::npos) {
      dense_again += entry.bytes;
    }
  }
  EXPECT_GT(dense_again, dense_gate);
  const Batch batch = some_batch();
  const std::set<std::int32_t> tokens(batch.tokens.begin(), batch.tokens.end());
  const std::uint64_t embedding = tokens.size() * static_cast<std::uint64_t>(config.hidden) * 2;
  const Plan plan = run(0).plan;
  for (const std::uint64_t bytes : budgets(plan)) {
    const SweepResult result = run(bytes).result;
    std::uint64_t experts = 0;
    for (const std::int64_t distinct : result.distinct_experts) {
      experts += static_cast<std::uint64_t>(distinct * engine::model::ExpertStream::bytes(config));
    }
    const std::uint64_t all = 2 * (trunk + experts) + dense_again + embedding;
    EXPECT_EQ(result.bytes_read + result.bytes_saved, all) << bytes;
    // A head of one band is followed by itself, and so is a dense gate: even a single slot has them
    // still. The last expert of the last layer is not the first of the way down.
    if (bytes == 0) {
      EXPECT_EQ(result.bytes_saved, head + dense_gate);
    }
    // Planted: who forgets what was saved finds the sum wrong.
    EXPECT_NE(result.bytes_read, all) << bytes;
    if (bytes == kAmple) {
      EXPECT_EQ(result.bytes_saved, trunk + experts + dense_again);
    }
  }
}

// The dense MLP in bands of rows: no bit knows of it, and neither do the bytes but for what one slot
// still has.
TEST(Stream, SameBitsForEveryBandOfTheDenseMlp) {
  const Outcome want = run(0);
  for (const std::int64_t rows : {1 << 20, 319, 64, 33}) {
    ModelOptions options;
    options.dense_band_rows = rows;
    for (const std::uint64_t bytes : {std::uint64_t{0}, kAmple}) {
      expect_same(run(bytes, options), want, fmt::format("{} rows, {} bytes more", rows, bytes));
    }
  }
}

TEST(Stream, SameBitsWithAdaptersOnDisk) {
  const checks::ScratchFolder scratch;
  const Outcome want = run(0), got = run(0, {}, scratch.path());
  expect_same(got, want, "on disk");
  EXPECT_TRUE(std::filesystem::is_empty(scratch.path()));
  RamBudget memory(kAmple), disk(kAmple);
  const AdapterSet here(engine::model::checkpoint_shape("tiny").config, {}, memory);
  const AdapterSet there(engine::model::checkpoint_shape("tiny").config, {}, disk, scratch.path());
  const auto bytes = static_cast<std::uint64_t>(here.parameters()) * sizeof(float);
  EXPECT_EQ(memory.used_bytes(), 2 * bytes);  // moments are the optimizer's to take
  EXPECT_EQ(disk.used_bytes(), static_cast<std::uint64_t>(there.memory_bytes(true)));
  EXPECT_LT(disk.used_bytes(), bytes / 2);
}

// No memory for the dense MLP beyond that of the largest other half, whatever its size; and a model
// of which it is the largest part by far has bands without being asked.
TEST(Stream, TheDenseMlpIsNeverTheLargest) {
  engine::model::CheckpointShape shape = engine::model::checkpoint_shape("tiny");
  shape.config.layers = 2;
  shape.config.is_mla = {false, true};
  shape.config.dense_inner = 32 * shape.config.dense_inner;
  const checks::ScratchFolder scratch;
  RamBudget budget(kAmple);
  engine::model::synthesize(scratch / "wide", shape, 1, budget);
  const engine::store::ShardReader reader(scratch / "wide");
  const auto config = engine::model::load_config(scratch / "wide");
  const engine::model::LayerBlocks banded(reader, config), whole(reader, config, 1 << 30);
  using enum engine::model::DensePart;
  const std::int64_t bands = banded.dense_bands(0, kGate);
  EXPECT_GT(bands, 8);
  EXPECT_EQ(whole.dense_bands(0, kGate), 1);
  EXPECT_EQ(banded.count() - whole.count(),
            bands + banded.dense_bands(0, kUp) + banded.dense_bands(0, kDown) - 3);
  const auto dense = static_cast<std::int64_t>(
      reader.find("language_model.model.layers.0.mlp.gate_proj.weight").bytes);
  EXPECT_LT(banded.slot_bytes(), dense / 8);
  // Planted: a matrix in one piece is a slot of its size.
  EXPECT_GE(whole.slot_bytes(), dense);
}

}  // namespace
