// Floats on disk: their values are those of memory, and memory is given back.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <vector>

#include "checks/compare.h"
#include "checks/pages_held.h"
#include "checks/scratch_folder.h"
#include "engine/base/error.h"
#include "engine/store/scratch_floats.h"

namespace {

using checks::pages_held;
using engine::store::ScratchFloats;

constexpr std::size_t kCount = 300'000;
constexpr std::size_t kPageFloats = 1024;

std::vector<float> some_values() {
  std::vector<float> values(kCount);
  for (std::size_t i = 0; i < kCount; ++i) values[i] = 0.5f + static_cast<float>(i);
  return values;
}

TEST(ScratchFloats, ZeroAtFirstAndTheSameAfterBeingPutAway) {
  const checks::ScratchFolder folder;
  ScratchFloats floats(folder.path(), kCount);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  EXPECT_TRUE(std::ranges::all_of(floats.span(), [](float x) { return x == 0.0f; }));
  const std::vector<float> want = some_values();
  std::ranges::copy(want, floats.span().begin());
  // Parts that begin and end within pages of their neighbours.
  for (std::size_t at = 0; at < kCount; at += 777) {
    ScratchFloats::put_away(floats.span().subspan(at, std::min<std::size_t>(777, kCount - at)));
  }
  ScratchFloats::put_away({});
  EXPECT_TRUE(checks::same_bits(floats.span(), want));
  ScratchFloats moved = std::move(floats);
  EXPECT_TRUE(checks::same_bits(moved.span(), want));
}

TEST(ScratchFloats, GivesMemoryBack) {
  const checks::ScratchFolder folder;
  ScratchFloats floats(folder.path(), kCount);
  std::ranges::copy(some_values(), floats.span().begin());
  const std::size_t before = pages_held(floats.span());
  EXPECT_GT(before, kCount / kPageFloats - 2);
  ScratchFloats::put_away(floats.span().first(kCount / 2));
  EXPECT_LE(pages_held(floats.span()), before / 2 + 1);
  ScratchFloats::put_away(floats.span());
  EXPECT_EQ(pages_held(floats.span()), 0u);
}

// A read brings in what the page cache has around it: parts put away before are among that.
TEST(ScratchFloats, NoNeighbourStaysInMemory) {
  const checks::ScratchFolder folder;
  ScratchFloats floats(folder.path(), kCount);
  std::ranges::copy(some_values(), floats.span().begin());
  ScratchFloats::put_away(floats.span());
  constexpr std::size_t kPart = 50'000;  // 48.8 pages, three windows and a little
  double sum = 0.0;
  std::size_t neighbours = 0;
  for (std::size_t at = 0; at < kCount; at += kPart) {
    const std::span<const float> part = floats.span().subspan(at, kPart);
    sum = std::accumulate(part.begin(), part.end(), sum);
    neighbours += pages_held(floats.span()) - pages_held(part);
    ScratchFloats::put_away(part);
    EXPECT_EQ(pages_held(floats.span()), 0u) << at;
  }
  EXPECT_GT(sum, 0.0);
  RecordProperty("neighbours", static_cast<int>(neighbours));
}

// The same on memory that no file stands behind: the values are gone, and the comparison says so.
TEST(ScratchFloats, PlantedFaults) {
  void* const memory = ::mmap(nullptr, kCount * sizeof(float), PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  const std::span<float> floats(static_cast<float*>(memory), kCount);
  const std::vector<float> want = some_values();
  std::ranges::copy(want, floats.begin());
  EXPECT_TRUE(checks::same_bits(floats, want));
  ScratchFloats::put_away(floats.subspan(kCount / 2, 2 * kPageFloats));
  EXPECT_FALSE(checks::same_bits(floats, want));
  ::munmap(memory, kCount * sizeof(float));
}

TEST(ScratchFloats, AFolderOrDiskThatCannotIsAnErrorAtOnce) {
  EXPECT_THAT([] { ScratchFloats("/nowhere/at/all", 5); },
              testing::ThrowsMessage<engine::base::Error>(testing::HasSubstr("/nowhere/at/all")));
  const checks::ScratchFolder folder;
  EXPECT_THAT(
      [&] {
        const checks::FileSizeLimit limit(1'000'000);
        ScratchFloats(folder.path(), kCount);
      },
      testing::ThrowsMessage<engine::base::Error>(testing::HasSubstr("1200000 bytes")));
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  EXPECT_EQ(ScratchFloats(folder.path(), 0).span().size(), 0u);
}

}  // namespace
