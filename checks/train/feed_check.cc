#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "checks/engine_run.h"
#include "checks/train/toy.h"
#include "checks/train/toy_set.h"
#include "engine/base/error.h"
#include "engine/base/rng.h"
#include "engine/data/feed.h"
#include "engine/model/model.h"
#include "engine/ops/kda.h"

namespace {

namespace fs = std::filesystem;
using checks::dies_in;
using checks::Killed;
using checks::log_of;
using checks::phase;
using checks::reproducible;
using checks::run_toy;
using checks::ScratchFolder;
using checks::toy_job;
using checks::why_refused;
using engine::base::RamBudget;
using engine::data::Order;
using engine::data::PackedSequence;
using engine::model::AdapterSet;
using engine::model::Batch;
using engine::model::SweepHooks;
using engine::ops::Documents;
using engine::train::Job;
using testing::AllOf;
using testing::HasSubstr;
using Indices = std::vector<std::int64_t>;

Indices epoch_of(Order& order, std::int64_t count, std::int64_t epoch) {
  Indices indices;
  for (std::int64_t i = 0; i < count; ++i) indices.push_back(order.at(epoch * count + i));
  return indices;
}

bool is_permutation(Indices indices) {
  std::ranges::sort(indices);
  Indices want(indices.size());
  std::iota(want.begin(), want.end(), 0);
  return indices == want;
}

TEST(Order, AnEpochIsAPermutationOfSeedAndNumberAlone) {
  RamBudget budget(1 << 20);
  Order order(100, 7, budget), again(100, 7, budget), other(100, 8, budget);
  std::set<Indices> seen;
  for (std::int64_t epoch = 0; epoch < 10; ++epoch) {
    const Indices indices = epoch_of(order, 100, epoch);
    EXPECT_TRUE(is_permutation(indices));
    EXPECT_TRUE(seen.insert(indices).second) << "epoch " << epoch << " is one of those before";
    EXPECT_NE(epoch_of(other, 100, epoch), indices);
  }
  // From anywhere, in any order: what came before does not matter.
  for (const std::int64_t cursor : {999, 3, 412, 998, 0}) {
    EXPECT_EQ(again.at(cursor), order.at(cursor)) << cursor;
  }
  EXPECT_EQ(budget.used_bytes(), 3u * 100 * 16);
  Order cyclic(4);
  EXPECT_EQ(epoch_of(cyclic, 4, 3), (Indices{0, 1, 2, 3}));
}

// Each of the six orders of three comes about 2000 / 6 times: the standard deviation is
// sqrt(2000 (1/6) (5/6)) = 16.7, and six of them are beyond any chance.
TEST(Order, EveryPermutationIsAsLikelyAsAnother) {
  RamBudget budget(1 << 20);
  Order order(3, 1, budget);
  std::map<Indices, int> counts;
  for (std::int64_t epoch = 0; epoch < 2000; ++epoch) ++counts[epoch_of(order, 3, epoch)];
  ASSERT_EQ(counts.size(), 6u);
  for (const auto& [indices, count] : counts) EXPECT_NEAR(count, 2000.0 / 6.0, 6 * 16.7);
}

struct Fixture {
  ScratchFolder folder;
  Fixture() {
    checks::write_set(folder / "set", checks::toy_sequences(), 9);
    checks::write_set(folder / "held", {checks::toy_sequences()[2]}, 5);
  }
  Job job(const std::string& run) const {
    Job job = toy_job(folder / run);
    job.sequence_names.clear();
    job.sequences.clear();
    job.settings.mask_first = 0;
    job.settings.sequences = 2;
    job.set = checks::open_toy_set(folder / "set");
    return job;
  }
  Job resumed(const std::string& run) const {
    Job again = job(run);
    again.resume = true;
    return again;
  }
};

// What training is fed: documents apart, only what the set marks, in the order of seed and epoch.
TEST(PackedFeed, G4_DocumentsAndMaskAreTheSetsInTheOrderOfSeedAndEpoch) {
  const Fixture f;
  std::vector<Batch> seen;
  auto functions = checks::toy_functions();
  functions.forward_backward = [&](const Batch& batch, AdapterSet& set, const SweepHooks& hooks) {
    seen.push_back(batch);
    return checks::toy_sweep(batch, set, hooks);
  };
  run_toy(f.job("run"), functions);
  ASSERT_EQ(seen.size(), 7u);
  RamBudget budget(1 << 20);
  Order order(5, 11, budget);
  std::int64_t cursor = 0;
  for (const Batch& batch : seen) {
    engine::data::Joined want;
    for (int i = 0; i < 2; ++i) {
      const auto one =
          training_form(checks::toy_sequences()[static_cast<std::size_t>(order.at(cursor++))]);
      if (one.trained() > 0) append(want, one);
    }
    EXPECT_EQ(batch.tokens, want.tokens);
    EXPECT_EQ(batch.targets, want.targets);
    EXPECT_EQ(batch.documents, want.borders);
  }
  const auto steps = phase(log_of(f.folder / "run"), "step_end");
  EXPECT_EQ(steps.back().at("cursor"), 14) << "in the third epoch";
  EXPECT_EQ(phase(log_of(f.folder / "run"), "start")[0].at("data_sha256"),
            f.job("run").set->digest());
}

// What memory is planned from: the batch's borders, without its tokens.
TEST(PackedFeed, BordersAreThoseOfTheBatch) {
  const Fixture f;
  const auto run = engine::train::open_run(f.job("run"));
  RamBudget budget(1 << 20);
  Order order(5, 11, budget);
  std::int64_t skipped = 0;
  for (std::int64_t cursor = 0; cursor < 20; ++cursor) {
    const auto taken = take(run.feed, order, cursor, 3);
    skipped += taken.skipped;
    EXPECT_EQ(take_borders(run.feed, order, cursor, 3), taken.joined.borders) << cursor;
  }
  EXPECT_GT(skipped, 0) << "a sequence that is passed over has no border";
}

TEST(PackedFeed, G6_ResumedInTheMiddleOfAnEpochItTakesTheSameSequences) {
  const Fixture f;
  run_toy(f.job("straight"));
  for (int sweep = 1; sweep <= 7; ++sweep) {
    const std::string run = "killed" + std::to_string(sweep);
    EXPECT_THROW(run_toy(f.job(run), dies_in(sweep)), Killed);
    run_toy(f.resumed(run));
    EXPECT_EQ(reproducible(f.folder / run), reproducible(f.folder / "straight")) << sweep;
  }
}

TEST(PackedFeed, AnotherSetIsRefusedByName) {
  const Fixture f;
  EXPECT_THROW(run_toy(f.job("run"), dies_in(5)), Killed);
  auto sequences = checks::toy_sequences();
  sequences[0].ids[3] += 1;
  checks::write_set(f.folder / "other", sequences, 9);
  Job again = f.resumed("run");
  again.set = checks::open_toy_set(f.folder / "other");
  EXPECT_THAT(why_refused([&] { run_toy(again); }),
              AllOf(HasSubstr("not the run's data"), HasSubstr("other"),
                    HasSubstr(again.set->digest()), HasSubstr(f.job("run").set->digest())));
}

TEST(PackedFeed, G10_LessThanASequenceOrNothingTrainedIsRefusedWithCounts) {
  const Fixture f;
  checks::write_set(f.folder / "short", {checks::toy_sequences()[1]}, 8);
  EXPECT_THAT(why_refused([&] { checks::open_toy_set(f.folder / "short"); }),
              HasSubstr("0 samples: 7 ids in 2 documents, one sequence has 8"));
  checks::write_set(f.folder / "untrained", {checks::toy_sequences()[3]}, 2);
  EXPECT_THAT(why_refused([&] { checks::open_toy_set(f.folder / "untrained"); }),
              HasSubstr("0 samples: 1 sequences, 0 trained ids"));
}

// A step that one of its epochs brings together is asked about before the first, and only such: with
// one that covers it, a smaller one is not asked about again.
TEST(PackedFeed, MemoryIsAskedForTheLargestStepsOfTheWholeRun) {
  const Fixture f;
  Job job = f.job("run");
  job.settings.schedule.total = 200;
  const auto run = engine::train::open_run(job);
  RamBudget budget(1 << 20);
  std::vector<std::int64_t> asked;
  engine::train::require_memory(run, budget, 1000,
                                [&](Documents documents) { asked.push_back(documents.back()); });
  // Of 200 steps some take sequences 0 and 4, which have six tokens each; straddling two epochs, a
  // sequence may meet itself, with no more than that.
  ASSERT_FALSE(asked.empty());
  EXPECT_LE(asked.size(), 3u);
  EXPECT_EQ(std::ranges::max(asked), 12);
  EXPECT_EQ(budget.used_bytes(), 0u);
  EXPECT_THAT(
      why_refused([&] { engine::train::require_memory(run, budget, 11, [](Documents) {}); }),
      HasSubstr("a step of 2 sequences has 12 tokens"));
}

// What "largest" rests on: that a sweep's memory is a function of tokens, chunks and longest document,
// and grows with each.
TEST(PackedFeed, MemoryGrowsWithTokensChunksAndLongestDocumentAlone) {
  RamBudget budget(std::uint64_t{1} << 30);
  const engine::model::Model model(checks::tiny_checkpoint(), budget);
  struct Planned {
    std::int64_t tokens, chunks, longest, bytes;
  };
  std::vector<Planned> all;
  const engine::base::CounterRng rng(5, "documents");
  std::uint64_t next = 0;
  for (int i = 0; i < 60; ++i) {
    Batch batch;
    batch.documents = {0};
    std::int64_t longest = 0;
    for (std::uint32_t d = rng.bits(next++) % 4 + 1; d > 0; --d) {
      const std::int64_t length = 1 + 32 * (rng.bits(next++) % 6);
      batch.documents.push_back(batch.documents.back() + length);
      longest = std::max(longest, length);
    }
    batch.tokens.resize(static_cast<std::size_t>(batch.documents.back()));
    batch.targets.resize(batch.tokens.size());
    all.push_back({batch.size(), engine::ops::kda_chunks(batch.documents), longest,
                   model.plan(batch.documents, nullptr, true).least_bytes()});
  }
  int covered = 0, more = 0;
  for (const Planned& a : all) {
    for (const Planned& b : all) {
      const bool covers = a.tokens >= b.tokens && a.chunks >= b.chunks && a.longest >= b.longest;
      covered += covers ? 1 : 0;
      EXPECT_TRUE(!covers || a.bytes >= b.bytes);
      more += covers && a.bytes > b.bytes ? 1 : 0;
    }
  }
  EXPECT_GT(covered, 60 * 10);
  EXPECT_GT(more, covered / 2) << "nothing grows: the bytes are not those of these documents";
}

// Orders and places that a resume might get wrong; each is another run.
TEST(PackedFeed, PlantedFaults) {
  const Fixture f;
  run_toy(f.job("straight"));
  const auto want = reproducible(f.folder / "straight");
  Job seeded = f.job("seeded");
  seeded.settings.seed = 12;
  run_toy(seeded);
  EXPECT_NE(reproducible(f.folder / "seeded"), want) << "another seed";
  EXPECT_THROW(run_toy(f.job("moved"), dies_in(4)), Killed);
  const fs::path state = f.folder / "moved/checkpoints/step_00003/state.json";
  auto json = nlohmann::ordered_json::parse(checks::read_bytes(state));
  json.erase("sha256");
  json["data"]["cursor"] = 5;  // the epoch's beginning, not its place 1
  json["sha256"] = engine::base::sha256_hex(json.dump());
  checks::write_bytes(state, json.dump());
  run_toy(f.resumed("moved"));
  EXPECT_NE(reproducible(f.folder / "moved"), want) << "another place in the epoch";
  EXPECT_FALSE(is_permutation({0, 1, 1}));
}

}  // namespace
