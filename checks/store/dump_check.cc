// Dumps are there as a whole or not at all, whatever the disk does under them.

#include <gmock/gmock.h>

#include <vector>

#include "checks/hdf5_file.h"
#include "checks/store/shard_files.h"
#include "engine/store/dump.h"

namespace {

using checks::error_of;
using checks::FileSizeLimit;
using checks::ScratchFolder;
using engine::store::DumpWriter;
using engine::store::MatrixSpool;
using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
namespace fs = std::filesystem;

constexpr std::int64_t kRows = 34;
constexpr std::int64_t kCols = 128;

std::vector<float> values(int seed) {
  std::vector<float> v(static_cast<std::size_t>(kRows * kCols));
  for (std::size_t i = 0; i < v.size(); ++i)
    v[i] = static_cast<float>(i) + 0.25f * static_cast<float>(seed);
  return v;
}

struct Logits : MatrixSpool {
  explicit Logits(const ScratchFolder& scratch) : MatrixSpool(scratch.path(), kRows, kCols) {
    write_columns(0, kCols, values(7));
  }
};

// What a forward pass does, smaller: text above HDF5's 64 KiB, arrays of both types, rows.
void write_dump(const fs::path& path, const MatrixSpool& matrix) {
  DumpWriter dump(path);
  dump.attribute("ids", std::string(100'000, '7'));
  dump.attribute("config_sha256", "abc");
  for (int i = 0; i < 6; ++i) {
    dump.write("h_layer_00" + std::to_string(i), kRows, kCols, values(i));
  }
  const std::vector<std::int32_t> index(static_cast<std::size_t>(kRows * 2), 3);
  dump.write("route_idx_001", kRows, 2, index);
  dump.write("logits", matrix);
  dump.commit();
}

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) {
    names.push_back(entry.path().filename().string());
  }
  return names;
}

TEST(Dump, HoldsWhatWasWritten) {
  const ScratchFolder scratch;
  const Logits matrix(scratch);
  write_dump(scratch / "a.h5", matrix);
  write_dump(scratch / "b.h5", matrix);
  write_dump(scratch / "raw", matrix);
  EXPECT_EQ(checks::read_bytes(scratch / "a.h5"), checks::read_bytes(scratch / "b.h5"));
  const checks::NamedTensors read = checks::read_hdf5(scratch / "a.h5");
  EXPECT_EQ(read.size(), 8u);
  EXPECT_EQ(checks::at(read, "h_layer_005").f32(), values(5));
  EXPECT_EQ(checks::at(read, "h_layer_005").shape, (std::vector<std::int64_t>{kRows, kCols}));
  EXPECT_EQ(checks::at(read, "logits").f32(), values(7));
  EXPECT_EQ(checks::at(read, "route_idx_001").i32().back(), 3);
  EXPECT_TRUE(checks::read_hdf5_attribute(scratch / "a.h5", "ids") == std::string(100'000, '7'));
  EXPECT_EQ(checks::read_hdf5_attribute(scratch / "a.h5", "config_sha256"), "abc");
  const std::string raw = checks::read_bytes(scratch / "raw/logits.bin");
  ASSERT_EQ(raw.size(), values(7).size() * sizeof(float));
  EXPECT_EQ(std::memcmp(raw.data(), values(7).data(), raw.size()), 0);
  EXPECT_EQ(checks::read_bytes(scratch / "raw/config_sha256.txt"), "abc\n");
}

// The disk is full, at any moment: an Error with path and reason, no crash, nothing left. HDF5 alone
// ends in a segmentation fault at most of these.
TEST(Dump, FullDisk) {
  const ScratchFolder scratch;
  const Logits matrix(scratch);
  write_dump(scratch / "whole.h5", matrix);
  const auto whole = static_cast<rlim_t>(fs::file_size(scratch / "whole.h5"));
  fs::remove(scratch / "whole.h5");
  const std::vector<std::string> before = names_in(scratch.path());
  for (rlim_t limit = 1; limit < whole; limit = limit * 17 / 16 + 40) {
    const std::string error = [&] {
      const FileSizeLimit full(limit);
      return error_of([&] { write_dump(scratch / "cut.h5", matrix); });
    }();
    EXPECT_THAT(error, AllOf(HasSubstr((scratch / "cut.h5").string()), HasSubstr("File too large")))
        << limit;
    EXPECT_EQ(names_in(scratch.path()), before) << limit;
  }
  for (const rlim_t limit : {0, 1000, 99'999}) {
    const std::string error = [&] {
      const FileSizeLimit full(limit);
      return error_of([&] { write_dump(scratch / "cut", matrix); });
    }();
    EXPECT_THAT(error, AllOf(HasSubstr((scratch / "cut").string()), HasSubstr("File too large")));
    EXPECT_EQ(names_in(scratch.path()), before) << limit;
  }
}

TEST(Dump, NothingIsWrittenOver) {
  const ScratchFolder scratch;
  const Logits matrix(scratch);
  checks::write_bytes(scratch / "there.h5", "mine");
  fs::create_directory(scratch / "there");
  fs::create_symlink("nowhere", scratch / "link.h5");
  for (const char* name : {"there.h5", "there", "link.h5"}) {
    EXPECT_THAT(error_of([&] { DumpWriter dump(scratch / name); }),
                AllOf(HasSubstr((scratch / name).string()), HasSubstr("nothing is written over")));
  }
  EXPECT_EQ(checks::read_bytes(scratch / "there.h5"), "mine");
  EXPECT_THAT(error_of([&] { DumpWriter dump(scratch / "there.h5/below.h5"); }),
              HasSubstr("there.h5: cannot be created: Not a directory"));
}

// A forward pass takes hours: the name that was free when it began need not be when it ends. A link
// to nowhere is a name that is taken.
TEST(Dump, NorWhatCameMeanwhile) {
  const ScratchFolder scratch;
  const fs::path path = scratch / "late.h5";
  const auto late = [&](const auto& comes) {
    DumpWriter dump(path);
    dump.write("embed", kRows, kCols, values(1));
    comes();
    EXPECT_THAT(error_of([&] { dump.commit(); }),
                AllOf(HasSubstr(path.string()), HasSubstr("nothing is written over")));
  };
  late([&] { checks::write_bytes(path, "mine"); });
  EXPECT_EQ(checks::read_bytes(path), "mine");
  fs::remove(path);
  late([&] { fs::create_symlink("nowhere", path); });
  EXPECT_EQ(fs::read_symlink(path), "nowhere");
  EXPECT_EQ(names_in(scratch.path()), std::vector<std::string>{"late.h5"}) << "and no more";
}

TEST(Dump, WithoutCommitNothingIsLeft) {
  const ScratchFolder scratch;
  for (const char* name : {"a.h5", "a"}) {
    DumpWriter dump(scratch / name);
    dump.write("embed", kRows, kCols, values(1));
  }
  EXPECT_THAT(names_in(scratch.path()), IsEmpty());
}

// The comparison of HoldsWhatWasWritten sees a wrong value, a wrong shape and a lost array.
TEST(Dump, PlantedFaults) {
  const ScratchFolder scratch;
  {
    DumpWriter dump(scratch / "a.h5");
    std::vector<float> wrong = values(5);
    wrong.back() += 1.0f;
    dump.write("h_layer_005", kCols, kRows, wrong);
    dump.commit();
  }
  const checks::NamedTensors read = checks::read_hdf5(scratch / "a.h5");
  EXPECT_NE(checks::at(read, "h_layer_005").f32(), values(5));
  EXPECT_NE(checks::at(read, "h_layer_005").shape, (std::vector<std::int64_t>{kRows, kCols}));
  EXPECT_EQ(read.count("logits"), 0u);
  // And FullDisk's: without a limit there is no error.
  EXPECT_EQ(error_of([&] { write_dump(scratch / "b.h5", Logits(scratch)); }), "");
  EXPECT_THAT(names_in(scratch.path()), Not(IsEmpty()));
}

}  // namespace
