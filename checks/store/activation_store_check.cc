#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "checks/scratch_folder.h"
#include "engine/base/error.h"
#include "engine/store/activation_store.h"

namespace {

using engine::store::ActivationStore;
using testing::AllOf;
using testing::HasSubstr;

std::vector<std::byte> record(std::size_t size, int seed) {
  std::vector<std::byte> bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>((i * 7 + seed) % 251);
  return bytes;
}

std::vector<std::byte> read(const ActivationStore& store, const char* kind, std::int64_t layer,
                            std::size_t size) {
  std::vector<std::byte> bytes(size, std::byte{0x7F});
  store.read(kind, layer, bytes);
  return bytes;
}

// A ragged last sequence, an empty record, and one that is asked for in another size than it has.
TEST(ActivationStore, CaseC6SizesAreTheRecordsOwn) {
  const checks::ScratchFolder folder;
  ActivationStore store(folder.path());
  store.write("h", 0, record(128 * 512, 1));
  store.write("h", 1, record(512, 2));
  store.write("empty", 0, {});
  EXPECT_EQ(read(store, "h", 0, 128 * 512), record(128 * 512, 1));
  EXPECT_EQ(read(store, "h", 1, 512), record(512, 2));
  EXPECT_TRUE(read(store, "empty", 0, 0).empty());
  EXPECT_THAT([&] { read(store, "empty", 0, 512); },
              testing::ThrowsMessage<engine::base::Error>(
                  AllOf(HasSubstr("empty.0"), HasSubstr("0 bytes"), HasSubstr("512"))));
  EXPECT_THAT([&] { read(store, "h", 1, 511); },
              testing::ThrowsMessage<engine::base::Error>(
                  AllOf(HasSubstr("h.1"), HasSubstr("512"), HasSubstr("511"))));
  EXPECT_THAT([&] { read(store, "h", 2, 512); },
              testing::ThrowsMessage<engine::base::Error>(HasSubstr("h.2")));
}

TEST(ActivationStore, ARecordIsReplacedInPlaceByOneOfItsSizeOnly) {
  const checks::ScratchFolder folder;
  ActivationStore store(folder.path());
  store.write("r", 3, record(100, 1));
  store.write("r", 4, record(100, 2));
  store.write("r", 3, record(100, 3));
  EXPECT_EQ(read(store, "r", 3, 100), record(100, 3));
  EXPECT_EQ(read(store, "r", 4, 100), record(100, 2));
  EXPECT_THAT([&] { store.write("r", 3, record(101, 1)); },
              testing::ThrowsMessage<engine::base::Error>(
                  AllOf(HasSubstr("r.3"), HasSubstr("100"), HasSubstr("101"))));
}

TEST(ActivationStore, LeavesNothingBehindAndNeedsAFolder) {
  const checks::ScratchFolder folder;
  {
    ActivationStore store(folder.path());
    store.write("h", 0, record(10, 1));
    EXPECT_TRUE(std::filesystem::is_empty(folder.path())) << "the file has no name";
  }
  EXPECT_THAT([&] { ActivationStore store(folder.path() / "not there"); },
              testing::ThrowsMessage<engine::base::Error>(HasSubstr("not there")));
}

// A file that may not grow stands for a disk that is full.
TEST(ActivationStore, CaseG8AFullDiskIsSaidWithTheTwoSizes) {
  const checks::ScratchFolder folder;
  ActivationStore store(folder.path());
  const checks::FileSizeLimit limit(1000);
  EXPECT_THAT([&] { store.write("h", 0, record(5000, 1)); },
              testing::ThrowsMessage<engine::base::Error>(
                  AllOf(HasSubstr("1000"), HasSubstr("5000"), HasSubstr(folder.path().string()))));
}

}  // namespace
