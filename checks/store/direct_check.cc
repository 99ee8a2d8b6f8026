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

namespace {

using checks::error_of;
using engine::store::File;
using engine::store::kBlock;
using engine::store::ReadSettings;
using testing::HasSubstr;
namespace fs = std::filesystem;

constexpr std::size_t kSize = 5 * kBlock + 1234;

std::string pattern() {
  std::string bytes;
  for (std::size_t i = 0; i < kSize; ++i) bytes += static_cast<char>(i * 7 + i / 251 + 1);
  return bytes;
}

bool is_direct(int descriptor) { return (::fcntl(descriptor, F_GETFL) & O_DIRECT) != 0; }

// What the faulty pread makes of direct reads; buffered ones are the system's.
struct Faults {
  std::size_t short_by = 0;  // a direct read of more than this ends so many bytes early
  int error = 0;             // of every direct read
  int direct = 0, buffered = 0;
  std::vector<std::pair<std::size_t, off_t>> direct_calls = {};  // count, offset
  bool aligned = true;
  bool pretend = false;  // the file system knows no direct reads: carry them out all the same
};
Faults faults;

ssize_t faulty_pread(int descriptor, void* out, std::size_t count, off_t offset) {
  if (!is_direct(descriptor)) {
    ++faults.buffered;
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
    const fs::path path = folder_.path() / "file";
    checks::write_bytes(path, bytes_);
    ReadSettings settings{faulty_pread};
    settings.attempts = 2;
    settings.first_pause = std::chrono::milliseconds(0);
    settings.direct_alignment = alignment;
    File file(path, settings);
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

}  // namespace
