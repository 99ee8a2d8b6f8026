// Reads around the page cache: whole blocks, trimmed; and what happens where they are not to be had.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "checks/store/shard_files.h"
#include "engine/base/budget.h"
#include "engine/store/file.h"
#include "engine/store/shard_reader.h"

namespace {

using checks::error_of;
using engine::store::File;
using engine::store::kBlock;
using engine::store::ReadSettings;
using engine::store::ShardReader;
using testing::AnyOf;
using testing::HasSubstr;
using testing::StartsWith;
namespace fs = std::filesystem;

constexpr std::size_t kSize = 5 * kBlock + 1234;

std::string pattern() {
  std::string bytes;
  for (std::size_t i = 0; i < kSize; ++i) bytes += static_cast<char>(i * 7 + i / 251 + 1);
  return bytes;
}

bool is_direct(int descriptor) { return (::fcntl(descriptor, F_GETFL) & O_DIRECT) != 0; }

// What the faulty pread makes of direct reads; buffered ones are the system's once `away` are over.
struct Faults {
  std::size_t short_by = 0;  // a direct read of more than this ends so many bytes early
  int error = 0;             // of every direct read
  int direct = 0, buffered = 0;
  std::vector<std::pair<std::size_t, off_t>> direct_calls = {};  // count, offset
  bool aligned = true;
  int away = 0;  // so many buffered reads fail with EIO
};
Faults faults;

ssize_t faulty_pread(int descriptor, void* out, std::size_t count, off_t offset) {
  if (!is_direct(descriptor)) {
    ++faults.buffered;
    if (faults.away > 0) {
      --faults.away;
      errno = EIO;
      return -1;
    }
    return ::pread(descriptor, out, count, offset);
  }
  ++faults.direct;
  faults.direct_calls.emplace_back(count, offset);
  faults.aligned &= reinterpret_cast<std::uintptr_t>(out) % kBlock == 0 && count % kBlock == 0 &&
                    offset % static_cast<off_t>(kBlock) == 0;
  if (faults.error != 0) {
    errno = faults.error;
    return -1;
  }
  const ssize_t got = ::pread(descriptor, out, count, offset);
  const auto cut = static_cast<ssize_t>(faults.short_by);
  if (got <= cut) return got;
  // What the device has not delivered is not there.
  std::memset(static_cast<char*>(out) + got - cut, 0x7F, faults.short_by);
  return got - cut;
}

std::uint32_t no_direct_reads(int) { return 0; }
std::uint32_t wide_alignment(int) { return 65536; }
std::uint32_t sector_alignment(int) { return 512; }

class DirectCheck : public testing::Test {
 protected:
  File open(Faults what = {}, std::uint32_t (*alignment)(int) = nullptr) {
    faults = what;
    checks::write_bytes(path_, bytes_);
    ReadSettings settings{faulty_pread};
    settings.attempts = 2;
    settings.first_pause = std::chrono::milliseconds(0);
    settings.direct_alignment = alignment;
    File file(path_, settings);
    file.read_directly();
    return file;
  }
  // Poisoned before.
  std::string read(const File& file, std::uint64_t offset, std::size_t count) {
    std::memset(room_.data(), 0x7F, room_.size());
    const auto found = file.read_within(
        offset, count, room_.span().first(engine::store::room_bytes(offset, count)));
    EXPECT_EQ(found.data(), room_.data() + offset % kBlock) << "where it is does not depend on how";
    return {reinterpret_cast<const char*>(found.data()), found.size()};
  }
  void expect_all(const File& file) {
    const std::pair<std::size_t, std::size_t> ranges[] = {
        {0, kSize},           {0, 1},
        {1, kSize - 1},       {4095, 2},
        {4096, 4096},         {17, 8192},
        {kSize - 1, 1},       {kBlock * 5, 1234},
        {4000, 3 * 4096},     {3 * 4096 - 1, 1},
        {kSize - 5000, 5000},
    };
    for (const auto& [offset, count] : ranges) {
      EXPECT_TRUE(read(file, offset, count) == bytes_.substr(offset, count))
          << count << " bytes at " << offset;
    }
    // B6: tensors begin at any residue.
    for (std::size_t offset = 0; offset < kBlock + 3; offset += 61) {
      EXPECT_TRUE(read(file, offset, 4097) == bytes_.substr(offset, 4097)) << offset;
    }
  }

  checks::ScratchFolder folder_;
  const fs::path path_ = folder_ / "file";
  engine::base::RamBudget budget_{1 << 20};
  engine::base::Buffer<std::byte> room_ = budget_.take<std::byte>("room", 8 * kBlock);
  const std::string bytes_ = pattern();
};

TEST_F(DirectCheck, B6_AnyResidueIsWidenedToBlocksAndTrimmed) {
  for (const auto alignment : {sector_alignment, static_cast<std::uint32_t (*)(int)>(nullptr)}) {
    const File file = open({}, alignment);
    if (!file.why_buffered().empty()) GTEST_SKIP() << file.why_buffered();
    expect_all(file);
    EXPECT_EQ(file.why_buffered(), "");
    EXPECT_GT(faults.direct, 0);
    EXPECT_EQ(faults.buffered, 0);
    EXPECT_TRUE(faults.aligned);
  }
}

// B4: the device stops in the middle of a block, at a sector: that block is asked for again as a
// whole, and no byte of the poison is delivered.
TEST_F(DirectCheck, B4_ShortByAMultipleOfASector) {
  for (const std::size_t short_by : {512, 1024, 3584, 4096, 4608, 7680}) {
    const File file = open({short_by});
    if (!file.why_buffered().empty()) GTEST_SKIP() << file.why_buffered();
    expect_all(file);
    EXPECT_TRUE(faults.aligned);
  }
  // Two blocks of which the second comes up short: asked for once more, as a block and directly,
  // and only when nothing new came, the rest through the page cache.
  const File file = open({512});
  EXPECT_TRUE(read(file, 0, 2 * kBlock) == bytes_.substr(0, 2 * kBlock));
  using Calls = std::vector<std::pair<std::size_t, off_t>>;
  EXPECT_EQ(faults.direct_calls, (Calls{{2 * kBlock, 0}, {kBlock, kBlock}}));
  EXPECT_EQ(faults.buffered, 1);
}

TEST_F(DirectCheck, RefusedAtTheFirstReadIsBufferedFromThenOn) {
  const File file = open({.error = EINVAL});
  if (!file.why_buffered().empty()) GTEST_SKIP() << file.why_buffered();
  expect_all(file);
  EXPECT_EQ(faults.direct, 1);
  EXPECT_THAT(file.why_buffered(), HasSubstr("refused when read at offset 0"));
}

TEST_F(DirectCheck, RefusedWhenOpenedOrByAlignmentIsBuffered) {
  for (const auto alignment : {no_direct_reads, wide_alignment}) {
    const File file = open({}, alignment);
    expect_all(file);
    EXPECT_EQ(faults.direct, 0);
    EXPECT_THAT(file.why_buffered(),
                HasSubstr(alignment(0) == 0 ? "alignment of 0" : "alignment of 65536"));
  }
  // procfs has no direct reads.
  File text("/proc/cpuinfo");
  EXPECT_NE(text.why_buffered(), "");
  text.read_directly();
  EXPECT_THAT(text.why_buffered(), HasSubstr("refused when opened"));
}

// Trouble is told as read() tells it, and a device that comes back is read on.
TEST_F(DirectCheck, TroubleIsThatOfRead) {
  File file = open();
  EXPECT_THAT(
      error_of([&] { read(file, kSize - 100, 101); }),
      HasSubstr("short read at offset " + std::to_string(kSize - 100) + ", got 100 of 101"));
  EXPECT_THAT(error_of([&] { read(file, 7 * kBlock, 16); }), HasSubstr("got 0 of 16"));
  EXPECT_THAT(error_of([&] { read(file, 0x7FFF'FFFF'FFFF'FFF8u, 16); }),
              HasSubstr("beyond what a file can hold"));
  faults.error = EIO;
  expect_all(file);
  faults.error = 0;
  expect_all(file);
}

// A device gone for both kinds of reads has the file opened again: for both.
TEST_F(DirectCheck, BehindAReconnectReadsAreDirectAgain) {
  const File file = open();
  if (!file.why_buffered().empty()) GTEST_SKIP() << file.why_buffered();
  faults.error = EIO;
  faults.away = 1;
  EXPECT_TRUE(read(file, 17, 8192) == bytes_.substr(17, 8192));
  EXPECT_EQ(file.reads_retried(), 1u);
  EXPECT_EQ(file.why_buffered(), "");
  faults = {};
  expect_all(file);
  EXPECT_GT(faults.direct, 0);
  EXPECT_EQ(faults.buffered, 0);
}

// The second descriptor is opened by the path, where another file may stand by then. Alike in size
// and time but of another inode, or in size and inode but of another time: what was opened first is
// read on.
TEST_F(DirectCheck, AnotherFileOfTheSameSizeIsNotReadDirectly) {
  if (const std::string why = open().why_buffered(); !why.empty()) GTEST_SKIP() << why;
  const fs::file_time_type time = fs::last_write_time(path_);
  File replaced(path_);
  checks::write_bytes(folder_ / "other", std::string(kSize, 'x'));
  fs::last_write_time(folder_ / "other", time);
  fs::rename(folder_ / "other", path_);
  replaced.read_directly();
  EXPECT_THAT(replaced.why_buffered(), HasSubstr("another file stands there"));
  EXPECT_TRUE(read(replaced, 0, kSize) == bytes_);

  File rewritten(path_);
  fs::last_write_time(path_, time + std::chrono::hours(1));
  rewritten.read_directly();
  EXPECT_THAT(rewritten.why_buffered(), HasSubstr("another file stands there"));

  File same(path_);  // the control
  same.read_directly();
  EXPECT_EQ(same.why_buffered(), "");
}

// Unless told otherwise, a reader goes around the page cache only with more than that could hold.
TEST_F(DirectCheck, OnlyWhatThePageCacheCannotHoldIsReadDirectly) {
  const fs::path shard = folder_ / "model.safetensors";
  const auto with_data = [](std::uint64_t bytes) {
    return checks::safetensors(R"({"t":{"dtype":"U8","shape":[)" + std::to_string(bytes) +
                                   R"(],"data_offsets":[0,)" + std::to_string(bytes) + "]}}",
                               0);
  };
  const auto how_read = [&](std::uint64_t data_bytes, std::error_code& failed) {
    checks::write_bytes(shard, with_data(data_bytes));
    fs::resize_file(shard, with_data(data_bytes).size() + data_bytes, failed);  // a hole
    return failed ? "" : ShardReader(folder_.path()).how_read();
  };
  std::error_code failed;
  EXPECT_EQ(how_read(10, failed), "buffered");
  // With its header more than the limit. A reason behind "buffered" is the file system's.
  const std::string how = how_read(engine::base::default_ram_bytes(), failed);
  if (failed) GTEST_SKIP() << "no file as large as half the memory: " << failed.message();
  EXPECT_THAT(how, AnyOf("direct", StartsWith("buffered: ")));
}

}  // namespace
