#include <gmock/gmock.h>

#include <cstring>
#include <numeric>
#include <optional>

#include "checks/store/shard_files.h"
#include "engine/base/budget.h"
#include "engine/base/rng.h"
#include "engine/store/block_stream.h"

namespace {

using engine::store::BlockStream;
using engine::store::kBlock;
using engine::store::ReadList;
using engine::store::ReadQueue;
using engine::store::ShardReader;

constexpr std::size_t kKeys = 24;
constexpr std::size_t kBytes = 3000;
constexpr std::size_t kSlot = 2 * kBlock;

class BlockStreamCheck : public testing::Test {
 protected:
  BlockStreamCheck() {
    const std::string size = std::to_string(kBytes * kKeys);
    bytes_ = checks::safetensors(
        "{\"t\":{\"dtype\":\"U8\",\"shape\":[" + size + "],\"data_offsets\":[0," + size + "]}}",
        kBytes * kKeys);
    checks::write_bytes(folder_.path() / "model.safetensors", bytes_);
    reader_.emplace(folder_.path());
  }
  BlockStream stream(ReadQueue& queue, std::size_t slots, std::size_t ahead,
                     std::size_t group = 0) {
    memory_ = budget_.take<std::byte>("slots", static_cast<std::int64_t>(slots * kSlot));
    std::memset(memory_.data(), 0x7F, memory_.size());
    std::vector<std::span<std::byte>> spans;
    for (std::size_t i = 0; i < slots; ++i)
      spans.push_back(memory_.span().subspan(i * kSlot, kSlot));
    return {queue,
            spans,
            ahead,
            kKeys,
            [this](std::uint32_t key) {
              ReadList list;
              list.add(0, at(key), kBytes);
              list.place();
              return list;
            },
            group};
  }
  std::uint64_t at(std::uint32_t key) const { return reader_->find("t").offset + key * kBytes; }
  // Uses a block: all its bytes are there. True if it was read for this.
  bool use(BlockStream& stream, std::uint32_t key) {
    const BlockStream::Block block = stream.next(key);
    EXPECT_EQ(std::memcmp(block.slot.data() + at(key) % kBlock, bytes_.data() + at(key), kBytes), 0)
        << key;
    return block.fresh;
  }

  checks::ScratchFolder folder_;
  std::string bytes_;
  std::optional<ShardReader> reader_;
  engine::base::RamBudget budget_{1 << 20};
  engine::base::Buffer<std::byte> memory_;
};

using Keys = std::vector<std::uint32_t>;

Keys up() {
  Keys keys;
  for (std::uint32_t key = 0; key < kKeys; ++key) keys.push_back(key);
  return keys;
}
Keys down() {
  const Keys keys = up();
  return {keys.rbegin(), keys.rend()};
}

// Up and down with everything known before: all but one slot hold something that is used again
// without being read, and the last block is used twice running.
TEST_F(BlockStreamCheck, TurnAroundSavesWhatStillLiesInSlots) {
  for (const std::size_t slots : {1, 2, 3, 8, 24, 30}) {
    for (const bool known : {true, false}) {
      const std::uint64_t before = reader_->bytes_read();
      ReadQueue queue(*reader_, {false, 3});
      BlockStream stream = this->stream(queue, slots, slots > 1 ? 1 : 0);
      stream.want(up());
      if (known) stream.want(down());
      for (const std::uint32_t key : up()) EXPECT_TRUE(use(stream, key));
      if (!known) stream.want(down());
      std::size_t hits = 0;
      for (const std::uint32_t key : down()) hits += use(stream, key) ? 0 : 1;
      EXPECT_EQ(hits, std::min(slots, kKeys)) << slots << " slots, known " << known;
      EXPECT_EQ(stream.bytes_saved(), hits * kBytes);
      EXPECT_EQ(reader_->bytes_read() - before + stream.bytes_saved(), 2 * kKeys * kBytes);
    }
  }
}

// The same order twice, as experts of a layer and bands of a head: longer than the slots, the oldest
// would always be the one wanted next; what is kept instead is what fits beside the block in use and
// the one read ahead.
TEST_F(BlockStreamCheck, RepetitionLongerThanTheSlots) {
  ReadQueue queue(*reader_, {false, 2});
  BlockStream stream = this->stream(queue, 6, 1);
  stream.want(up());
  for (const std::uint32_t key : up()) use(stream, key);
  stream.want(up());
  std::size_t hits = 0;
  for (const std::uint32_t key : up()) hits += use(stream, key) ? 0 : 1;
  EXPECT_EQ(hits, 4u);
}

// Layers that come round for ever and want the same half of their blocks each time, known when the
// layer begins: one row of slots for all finds nothing again, a share for every layer does.
// Rounds are alike, so that they find the same however many uses were forgotten by then.
TEST_F(BlockStreamCheck, EveryGroupKeepsAShare) {
  constexpr std::uint32_t kGroup = 8;
  std::vector<std::size_t> found;
  for (const std::size_t group : {std::size_t{0}, std::size_t{kGroup}}) {
    ReadQueue queue(*reader_, {false, 2});
    BlockStream stream = this->stream(queue, 6, 2, group);
    std::vector<std::size_t> hits;
    for (int round = 0; round < 60; ++round) {
      hits.push_back(0);
      for (std::uint32_t first = 0; first < kKeys; first += kGroup) {
        const Keys wanted = {first, first + 1, first + 2, first + 3};
        stream.want(wanted);
        for (const std::uint32_t key : wanted) hits.back() += use(stream, key) ? 0 : 1;
      }
    }
    for (int round = 20; round < 40; ++round) EXPECT_EQ(hits[round], hits[round + 20]) << round;
    found.push_back(std::accumulate(hits.begin() + 20, hits.begin() + 40, std::size_t{0}));
  }
  EXPECT_EQ(found[0], 0u);
  EXPECT_GE(found[1], 20u * 3);  // of twenty rounds of twelve
}

// Nothing is submitted beyond `ahead`, nothing that is needed is read over.
TEST_F(BlockStreamCheck, ReadsAheadAsFarAsItMay) {
  ReadQueue queue(*reader_, {false, 1});
  BlockStream stream = this->stream(queue, 5, 3);
  stream.want(up());
  EXPECT_EQ(stream.live(), 3u);
  use(stream, 0);
  EXPECT_EQ(stream.live(), 4u);
  use(stream, 1);
  EXPECT_EQ(stream.live(), 5u);
}

// C4: any sequence of wants and uses, with misses forced after the cap: never more live slots than
// slots; every block whole; what is read and saved is what was used; and the same again.
TEST_F(BlockStreamCheck, C4_LiveSlotsNeverExceedTheCap) {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    std::vector<std::uint64_t> outcome;
    for (const bool ring : {false, true}) {
      const engine::base::CounterRng rng(seed, "wants and uses");
      std::uint64_t drawn = 0;
      const auto below = [&](std::uint64_t n) { return rng.bits(drawn++) % n; };
      const std::size_t slots = 1 + below(7);
      const std::size_t ahead = std::min<std::size_t>(below(4), slots - 1);
      const std::uint64_t before = reader_->bytes_read();
      ReadQueue queue(*reader_, {ring, 1 + static_cast<int>(below(3))});
      BlockStream stream = this->stream(queue, slots, ahead);
      std::vector<std::uint32_t> wanted;
      std::size_t used = 0;
      for (int i = 0; i < 120; ++i) {
        if (below(3) == 0) {
          Keys keys;
          for (std::uint64_t n = below(9); n > 0; --n) {
            keys.push_back(static_cast<std::uint32_t>(below(kKeys)));
          }
          stream.want(keys);
          wanted.insert(wanted.end(), keys.begin(), keys.end());
        } else if (used < wanted.size()) {
          use(stream, wanted[used++]);
        }
        ASSERT_LE(stream.live(), slots);
      }
      while (used < wanted.size()) use(stream, wanted[used++]);
      EXPECT_EQ(reader_->bytes_read() - before + stream.bytes_saved(), used * kBytes);
      outcome.push_back(stream.bytes_saved());
    }
    EXPECT_EQ(outcome[0], outcome[1]) << "what is saved is no matter of time";
  }
}

// Planted: a stream that is asked for another block than comes next says so at once.
TEST_F(BlockStreamCheck, AnotherOrderThanAnnouncedIsOurMistake) {
  ReadQueue queue(*reader_, {false, 1});
  BlockStream stream = this->stream(queue, 2, 1);
  stream.want(up());
  EXPECT_DEATH(stream.next(1), "key");
}

TEST(ReadListCheck, NeighboursAreOneReadAndEveryByteHasItsPlace) {
  ReadList list;
  list.add(1, 5000, 100);
  list.add(0, 9000, 10);
  list.add(0, 4000, 200);
  list.add(0, 4200, 300);
  list.place();
  ASSERT_EQ(list.ranges().size(), 3u);
  EXPECT_EQ(list.bytes(), 610u);
  EXPECT_EQ(list.ranges()[0].bytes, 500u);
  EXPECT_EQ(list.room_bytes(), 4 * kBlock);  // 4000 ... 4500 crosses a border
  EXPECT_EQ(list.at(0, 4000), 4000u);
  EXPECT_EQ(list.at(0, 4200), 4200u);
  EXPECT_EQ(list.at(0, 9000), 2 * kBlock + 9000 % kBlock);
  EXPECT_EQ(list.at(1, 5000), 3 * kBlock + 5000 % kBlock);
}

// Where one shard's range ends, the next one's begins by chance: of the joined read, the second half
// would be bytes of the wrong file.
TEST(ReadListCheck, OffsetsThatMeetInTwoShardsAreNoNeighbours) {
  ReadList list;
  list.add(1, 4200, 300);
  list.add(0, 4000, 200);
  list.place();
  ASSERT_EQ(list.ranges().size(), 2u);
  EXPECT_EQ(list.ranges()[0].shard, 0);
  EXPECT_EQ(list.ranges()[0].bytes, 200u);
  EXPECT_EQ(list.ranges()[1].shard, 1);
  EXPECT_EQ(list.ranges()[1].bytes, 300u);
  EXPECT_EQ(list.at(0, 4199), 4199u);
  EXPECT_EQ(list.at(1, 4200), 2 * kBlock + 4200 % kBlock);  // 4000 ... 4200 crosses a border
}

}  // namespace
