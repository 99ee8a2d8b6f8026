#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <filesystem>
#include <vector>

#include "checks/store/shard_files.h"
#include "engine/store/disk_probe.h"
#include "engine/store/scratch_file.h"

namespace {

using checks::error_of;
using engine::base::RamBudget;
using engine::store::DiskProbe;
using engine::store::doubts;
using engine::store::probe_disk;
using engine::store::ProbedReads;
using engine::store::ScratchFile;
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

constexpr std::size_t kBlocks = 10;
constexpr std::size_t kBlockBytes = 1 << 18;
std::array<std::atomic<int>, kBlocks> times_read;
std::atomic<int> other_reads;

ssize_t counting_pread(int descriptor, void* out, std::size_t count, off_t offset) {
  const auto place = static_cast<std::size_t>(offset);
  const bool whole = count == kBlockBytes && place % kBlockBytes == 0;
  ++(whole && place / kBlockBytes < kBlocks ? times_read[place / kBlockBytes] : other_reads);
  return ::pread(descriptor, out, count, offset);
}

// One block again and again comes from the device's own cache, whatever `bytes` says. Both buffered
// passes; that the direct ones are left out is said with the reason.
TEST(DiskProbeCheck, EveryPassReadsEveryBlockOnce) {
  for (std::atomic<int>& times : times_read) times = 0;
  other_reads = 0;
  const checks::ScratchFolder folder;
  RamBudget budget(64 << 20);
  engine::store::ReadSettings settings{counting_pread};
  settings.direct_alignment = [](int) { return std::uint32_t{0}; };
  const DiskProbe probe =
      probe_disk(folder.path(), kBlocks * kBlockBytes, kBlockBytes, 3, budget, settings);
  for (const ProbedReads& reads : probe.reads) EXPECT_EQ(reads.not_measured.empty(), !reads.direct);
  for (std::size_t i = 0; i < kBlocks; ++i) EXPECT_EQ(times_read[i], 2) << i;
  EXPECT_EQ(other_reads, 0);
}

double cached_part(const ScratchFile& file, std::size_t bytes) {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  void* memory = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, file.descriptor(), 0);
  if (memory == MAP_FAILED) return -1.0;
  std::vector<unsigned char> resident((bytes + page - 1) / page);
  const int status = ::mincore(memory, bytes, resident.data());
  ::munmap(memory, bytes);
  if (status != 0) return -1.0;
  const auto count = std::ranges::count_if(resident, [](unsigned char r) { return r & 1; });
  return static_cast<double>(count) / static_cast<double>(resident.size());
}

// What it wrote has left the page cache before every pass, wherever a file can be made to: where one
// of this check's own is seen in the cache when written, and no more once it is to go.
TEST(DiskProbeCheck, EveryPassBeginsWithoutThePageCache) {
  const checks::ScratchFolder folder;
  const std::string bytes(1 << 20, '7');
  ScratchFile own(folder.path());
  own.write(0, std::as_bytes(std::span(bytes)));
  ASSERT_EQ(::fdatasync(own.descriptor()), 0);
  const double written = cached_part(own, bytes.size());
  ::posix_fadvise(own.descriptor(), 0, 0, POSIX_FADV_DONTNEED);
  const double dropped = cached_part(own, bytes.size());
  if (written < 1.0 || dropped != 0.0) {
    GTEST_SKIP() << "of a file written here " << written << " is cached, of one to go " << dropped;
  }
  RamBudget budget(64 << 20);
  const DiskProbe probe = probe_disk(folder.path(), 3'000'000, 300'000, 3, budget);
  for (const ProbedReads& reads : probe.reads) {
    ASSERT_TRUE(reads.cached.has_value());
    // All of it, if nothing is dropped; a page that the kernel holds on to for a moment is no half.
    EXPECT_LT(*reads.cached, 0.5) << (reads.direct ? "direct, " : "buffered, ") << reads.in_flight;
  }
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
