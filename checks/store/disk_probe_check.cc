#include <gmock/gmock.h>

#include <filesystem>

#include "checks/store/shard_files.h"
#include "engine/store/disk_probe.h"

namespace {

using checks::error_of;
using engine::base::RamBudget;
using engine::store::DiskProbe;
using engine::store::doubts;
using engine::store::probe_disk;
using engine::store::ProbedReads;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(DiskProbeCheck, FourLabelledRatesAndNothingLeftBehind) {
  const checks::ScratchFolder folder;
  RamBudget budget(64 << 20);
  const DiskProbe probe = probe_disk(folder.path(), 3'000'000, 300'000, 3, budget);
  ASSERT_EQ(probe.reads.size(), 4u);
  for (std::size_t i = 0; i < 4; ++i) {
    const ProbedReads& reads = probe.reads[i];
    EXPECT_EQ(reads.direct, i < 2);
    EXPECT_EQ(reads.in_flight, i % 2 == 0 ? 1 : 3);
    if (!reads.not_measured.empty()) continue;
    EXPECT_EQ(reads.bytes, 3'000'000u);
    EXPECT_GT(reads.seconds, 0.0);
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  EXPECT_EQ(budget.used_bytes(), 0u);
}

TEST(DiskProbeCheck, RefusesBeforeItWrites) {
  const checks::ScratchFolder folder;
  RamBudget budget(64 << 20);
  EXPECT_THAT(
      error_of([&] { probe_disk(folder.path(), std::uint64_t{1} << 60, 300'000, 2, budget); }),
      AllOf(HasSubstr(folder.path().string()), HasSubstr("free, the probe would write")));
  EXPECT_THAT(error_of([&] { probe_disk(folder.path() / "nowhere", 600'000, 300'000, 2, budget); }),
              HasSubstr("is no folder"));
  EXPECT_THAT(error_of([&] { probe_disk(folder.path(), 299'999, 300'000, 2, budget); }),
              HasSubstr("hold no block"));
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

ProbedReads reads(bool direct, double megabytes_per_second, std::optional<double> cached = 0.0) {
  return {direct, 1, 1'000'000'000, 1e3 / megabytes_per_second, cached, ""};
}

TEST(DiskProbeCheck, ARateOfThePageCacheIsCalledThat) {
  EXPECT_THAT(doubts({false, {reads(true, 1500), reads(false, 400)}}), IsEmpty());
  EXPECT_THAT(doubts({false, {reads(true, 1500), reads(false, 2900)}}), IsEmpty());
  EXPECT_THAT(doubts({false, {reads(true, 1500), reads(false, 3100)}}),
              ElementsAre(HasSubstr("can only be a page cache")));
  EXPECT_THAT(doubts({false, {reads(true, 1500), reads(false, 400, 0.3)}}),
              ElementsAre(HasSubstr("30 % of the file lay in the page cache")));
  EXPECT_THAT(doubts({false, {reads(true, 1500), reads(false, 400, std::nullopt)}}),
              ElementsAre(HasSubstr("nothing tells what lay in the page cache")));
  EXPECT_THAT(doubts({true, {reads(true, 1500)}}), ElementsAre(HasSubstr("lies in memory")));
  ProbedReads refused = reads(true, 1500);
  refused.not_measured = "refused";
  EXPECT_THAT(doubts({false, {refused, reads(false, 9000)}}),
              ElementsAre(HasSubstr("nothing tells the disk from the page cache")));
}

}  // namespace
