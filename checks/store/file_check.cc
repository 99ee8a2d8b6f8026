#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>

#include "checks/store/shard_files.h"
#include "engine/store/file.h"

namespace {

using checks::error_of;
using engine::store::File;
using engine::store::ReadSettings;
using testing::AllOf;
using testing::HasSubstr;
namespace fs = std::filesystem;

std::string pattern(std::size_t size) {
  std::string bytes;
  for (std::size_t i = 0; i < size; ++i) bytes += static_cast<char>(i * 7 + 1);
  return bytes;
}

std::string read_all(const File& file, std::uint64_t offset, std::size_t size) {
  std::string bytes(size, '\x7F');
  file.read(offset, std::as_writable_bytes(std::span(bytes)));
  return bytes;
}

// What the next calls of the faulty pread do; the calls that follow are the system's.
struct Script {
  std::vector<int> errors = {};          // errno of the next calls, in order
  std::size_t at_most = 1 << 30;         // a call delivers no more
  std::vector<std::size_t> counts = {};  // asked for, of every call
  std::vector<off_t> offsets = {};
};
Script script;

ssize_t scripted_pread(int descriptor, void* out, std::size_t count, off_t offset) {
  script.counts.push_back(count);
  script.offsets.push_back(offset);
  if (!script.errors.empty()) {
    errno = script.errors.front();
    script.errors.erase(script.errors.begin());
    return -1;
  }
  return ::pread(descriptor, out, std::min(count, script.at_most), offset);
}

// Says yes and writes nothing, so that no memory is needed for the bytes.
ssize_t boundless_pread(int, void*, std::size_t count, off_t offset) {
  script.counts.push_back(count);
  script.offsets.push_back(offset);
  return static_cast<ssize_t>(count);
}

ReadSettings scripted(Script what, std::size_t chunk_bytes = 2'147'479'552) {
  script = std::move(what);
  return {scripted_pread, chunk_bytes, 5, std::chrono::milliseconds(0)};
}

class FileCheck : public testing::Test {
 protected:
  fs::path make(const std::string& name, const std::string& bytes) {
    checks::write_bytes(folder_.path() / name, bytes);
    return folder_.path() / name;
  }
  checks::ScratchFolder folder_;
};

TEST_F(FileCheck, ReadsExactlyWhatIsAskedFor) {
  const std::string bytes = pattern(96);
  const File file(make("a", bytes));
  EXPECT_EQ(file.size(), 96u);
  EXPECT_EQ(read_all(file, 0, 96), bytes);
  EXPECT_EQ(read_all(file, 17, 33), bytes.substr(17, 33));
  EXPECT_EQ(read_all(file, 96, 0), "");
}

// B2: 96 bytes in calls of 7, every residue, shortened further and interrupted by signals.
TEST_F(FileCheck, B2_SmallChunks) {
  const std::string bytes = pattern(96);
  const fs::path path = make("a", bytes);
  const File chunked(path, scripted({}, 7));
  EXPECT_EQ(read_all(chunked, 0, 96), bytes);
  EXPECT_EQ(script.counts.size(), 14u);
  EXPECT_EQ(*std::max_element(script.counts.begin(), script.counts.end()), 7u);
  const File shortened(path, scripted({{EINTR, EINTR}, 3}, 7));
  EXPECT_EQ(read_all(shortened, 5, 90), bytes.substr(5, 90));
  EXPECT_EQ(script.counts.size(), 32u);  // 2 interrupted, 30 of 3 bytes
  EXPECT_EQ(shortened.reads_retried(), 0u);
}

// B2: one byte and more beyond what Linux reads in a call, from a sparse file, into a range of
// addresses whose memory is one 64 MiB piece over and over, so that the check needs no 2 GB.
TEST_F(FileCheck, B2_BeyondTheSystemsCap) {
  constexpr std::size_t kCap = 2'147'479'552;
  constexpr std::size_t kPiece = 64 << 20;
  constexpr std::size_t kPieces = 33;
  const fs::path path = make("sparse", "first");
  constexpr std::size_t kSize = kCap + 1;
  ASSERT_EQ(::truncate(path.c_str(), kSize - 4), 0);
  std::ofstream(path, std::ios::binary | std::ios::app) << "last";

  const int memory = ::memfd_create("piece", 0);
  ASSERT_EQ(::ftruncate(memory, kPiece), 0);
  void* base = ::mmap(nullptr, kPiece * kPieces, PROT_NONE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(base, MAP_FAILED);
  auto* bytes = static_cast<std::byte*>(base);
  for (std::size_t i = 0; i < kPieces; ++i) {
    ASSERT_NE(::mmap(bytes + i * kPiece, kPiece, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
                     memory, 0),
              MAP_FAILED);
  }
  const File file(path, scripted({{}, SIZE_MAX}));
  file.read(0, std::span(bytes, kSize));
  EXPECT_EQ(std::memcmp(bytes + kSize - 4, "last", 4), 0);
  EXPECT_EQ(script.counts, (std::vector<std::size_t>{kCap, 1}));
  ::munmap(base, kPiece * kPieces);
  ::close(memory);
}

// B12: 2^32 bytes and more keep their length and their offsets; what no file can hold is refused.
TEST_F(FileCheck, B12_LongRequestsAndNegativeOffsets) {
  constexpr std::size_t kLong = (std::size_t{1} << 32) + 5;
  void* base =
      ::mmap(nullptr, kLong, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(base, MAP_FAILED);
  const std::span out(static_cast<std::byte*>(base), kLong);
  const fs::path path = make("a", pattern(96));
  script = {};
  const File file(path, {boundless_pread});
  const std::uint64_t offset = (std::uint64_t{1} << 40) + 3;
  file.read(offset, out);
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < script.counts.size(); ++i) {
    EXPECT_LE(script.counts[i], 2'147'479'552u);
    EXPECT_EQ(script.offsets[i], static_cast<off_t>(offset + sum));
    sum += script.counts[i];
  }
  EXPECT_EQ(sum, kLong);
  script = {};
  for (const std::int64_t negative : {-1LL, -4096LL, -9223372036854775807LL - 1}) {
    EXPECT_THAT(error_of([&] { file.read(static_cast<std::uint64_t>(negative), out.first(16)); }),
                AllOf(HasSubstr(path.string()), HasSubstr("16 bytes"),
                      HasSubstr(std::to_string(static_cast<std::uint64_t>(negative)))));
  }
  EXPECT_THAT(error_of([&] { file.read(0x7FFF'FFFF'FFFF'FFF8u, out.first(16)); }),
              HasSubstr("beyond what a file can hold"));
  EXPECT_TRUE(script.counts.empty()) << "refused before anything is read";
  ::munmap(base, kLong);
}

TEST_F(FileCheck, ShortReadNamesOffsetAndBothCounts) {
  const fs::path path = make("a", pattern(96));
  const File file(path);
  EXPECT_THAT(error_of([&] { read_all(file, 90, 16); }),
              AllOf(HasSubstr(path.string()), HasSubstr("short read at offset 90, got 6 of 16")));
  EXPECT_THAT(error_of([&] { read_all(file, 97, 1); }), HasSubstr("got 0 of 1"));
  EXPECT_EQ(error_of([&] { read_all(file, 80, 16); }), "");
}

TEST_F(FileCheck, DeviceThatComesBack) {
  const std::string bytes = pattern(96);
  for (const int error : {EIO, ENODEV, ENXIO}) {
    const File file(make("a", bytes), scripted({{error, error, error, error}}));
    EXPECT_EQ(read_all(file, 8, 80), bytes.substr(8, 80));
    EXPECT_EQ(file.reads_retried(), 4u);
  }
}

TEST_F(FileCheck, DeviceThatStaysAway) {
  const fs::path path = make("a", pattern(96));
  const File file(path, scripted({{EIO, EIO, EIO, EIO, EIO}}));
  EXPECT_THAT(error_of([&] { read_all(file, 8, 80); }),
              AllOf(HasSubstr(path.string()), HasSubstr("80 bytes at offset 8"),
                    HasSubstr("attempt 5 of 5"), HasSubstr("Input/output error")));
  // Another reason is none to try again.
  const File other(path, scripted({{EISDIR}}));
  EXPECT_THAT(error_of([&] { read_all(other, 8, 80); }), HasSubstr("attempt 1 of 5"));
}

TEST_F(FileCheck, PauseDoubles) {
  const File file(make("a", pattern(96)),
                  {scripted_pread, 1 << 20, 5, std::chrono::milliseconds(4)});
  script = {{EIO, EIO, EIO}};
  const auto start = std::chrono::steady_clock::now();
  read_all(file, 0, 96);
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(4 + 8 + 16));
}

// Another file under the same name after a device came back: same size, other content.
TEST_F(FileCheck, AnotherFileInItsPlaceIsNotReadOn) {
  const fs::path path = make("a", pattern(96));
  const File file(path, scripted({{EIO}}));
  fs::rename(make("b", std::string(96, 'x')), path);
  EXPECT_THAT(error_of([&] { read_all(file, 0, 96); }),
              AllOf(HasSubstr(path.string()), HasSubstr("another file"), HasSubstr("inode")));
  // Control: the same file opened again is read on.
  const File same(path, scripted({{EIO}}));
  EXPECT_EQ(read_all(same, 0, 96), std::string(96, 'x'));
}

TEST_F(FileCheck, A12_OnlyRegularFiles) {
  const fs::path fifo = folder_.path() / "fifo";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  EXPECT_THAT(error_of([&] { File file(fifo); }),
              AllOf(HasSubstr(fifo.string()), HasSubstr("FIFO")));
  const fs::path directory = folder_.path() / "directory";
  fs::create_directory(directory);
  EXPECT_THAT(error_of([&] { File file(directory); }), HasSubstr("a directory"));
  const fs::path dangling = folder_.path() / "dangling";
  fs::create_symlink("nowhere/at/all", dangling);
  EXPECT_THAT(error_of([&] { File file(dangling); }),
              AllOf(HasSubstr(dangling.string()), HasSubstr("link to nowhere/at/all")));
  EXPECT_THAT(error_of([&] { File file(folder_.path() / "absent"); }), HasSubstr("No such file"));
  const fs::path link = folder_.path() / "link";
  fs::create_symlink(make("a", "data"), link);
  EXPECT_EQ(read_all(File(link), 0, 4), "data");
  const fs::path to_fifo = folder_.path() / "to_fifo";
  fs::create_symlink(fifo, to_fifo);
  EXPECT_THAT(error_of([&] { File file(to_fifo); }), HasSubstr("FIFO"));
}

TEST_F(FileCheck, J6_AnyPath) {
  for (const char* name : {"a b", "it's \"quoted\"", "Größe-模型", "new\nline", "%s{}$HOME"}) {
    fs::create_directory(folder_.path() / name);
    const fs::path path = make(std::string(name) + "/" + name, "data");
    EXPECT_EQ(read_all(File(path), 0, 4), "data") << name;
  }
}

TEST_F(FileCheck, TextHasALimit) {
  const fs::path path = make("a", pattern(96));
  EXPECT_EQ(engine::store::read_text(path, 96), pattern(96));
  EXPECT_THAT(error_of([&] { engine::store::read_text(path, 95); }),
              AllOf(HasSubstr("96"), HasSubstr("95")));
  EXPECT_THAT(error_of([&] { engine::store::read_text(make("b", ""), 96); }), HasSubstr("empty"));
}

// What a reader without the loop would deliver: the check of the content must see it.
TEST_F(FileCheck, PlantedFaults) {
  const std::string bytes = pattern(96);
  const fs::path path = make("a", bytes);
  const int descriptor = ::open(path.c_str(), O_RDONLY);
  script = {{}, 7};
  std::string once(96, '\x7F');
  EXPECT_EQ(scripted_pread(descriptor, once.data(), once.size(), 0), 7);
  EXPECT_NE(once, bytes);
  // A length cut to 32 bits would ask for 5 bytes of 2^32 + 5.
  EXPECT_EQ(static_cast<std::uint32_t>((std::uint64_t{1} << 32) + 5), 5u);
  ::close(descriptor);
}

}  // namespace
