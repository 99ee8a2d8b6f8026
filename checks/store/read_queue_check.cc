#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <ctime>
#include <filesystem>

#include "checks/store/shard_files.h"
#include "engine/base/budget.h"
#include "engine/store/read_queue.h"

namespace {

using checks::error_of;
using engine::store::DirectReads;
using engine::store::kBlock;
using engine::store::ReadQueue;
using engine::store::ReadSettings;
using engine::store::ShardReader;
using testing::AllOf;
using testing::HasSubstr;

constexpr std::size_t kTensor = 70'001;
constexpr int kTensors = 9;

std::atomic<int> failing_calls = 0;

ssize_t failing_pread(int descriptor, void* out, std::size_t count, off_t offset) {
  if (offset > 4096 && failing_calls > 0) {
    --failing_calls;
    errno = EIO;
    return -1;
  }
  return ::pread(descriptor, out, count, offset);
}

class ReadQueueCheck : public testing::Test {
 protected:
  ReadQueueCheck() {
    std::string header = "{";
    for (int i = 0; i < kTensors; ++i) {
      header += (i > 0 ? ",\"t" : "\"t") + std::to_string(i) + "\":{\"dtype\":\"U8\",\"shape\":[" +
                std::to_string(kTensor) + "],\"data_offsets\":[" +
                std::to_string(kTensor * static_cast<std::size_t>(i)) + "," +
                std::to_string(kTensor * static_cast<std::size_t>(i + 1)) + "]}";
    }
    bytes_ = checks::safetensors(header + "}", kTensor * kTensors);
    checks::write_bytes(path(), bytes_);
  }
  std::filesystem::path path() const { return folder_.path() / "model.safetensors"; }
  std::span<std::byte> room(int i) {
    constexpr std::size_t kRoom = (kTensor / kBlock + 2) * kBlock;
    return rooms_.span().subspan(static_cast<std::size_t>(i) * kRoom, kRoom);
  }
  // Everything submitted before anything is waited for; waited for in another order.
  void expect_all(ReadQueue& queue, const ShardReader& reader) {
    std::memset(rooms_.data(), 0x7F, rooms_.size());
    std::vector<ReadQueue::Ticket> tickets;
    for (int i = 0; i < kTensors; ++i) {
      const auto& entry = reader.find("t" + std::to_string(i));
      tickets.push_back(queue.submit(entry.shard, entry.offset, entry.bytes, room(i)));
    }
    for (int j = 0; j < kTensors; ++j) {
      const int i = (j * 4 + 3) % kTensors;
      const auto& entry = reader.find("t" + std::to_string(i));
      const auto found = queue.wait(tickets[static_cast<std::size_t>(i)]);
      ASSERT_EQ(found.size(), kTensor);
      EXPECT_EQ(std::memcmp(found.data(), bytes_.data() + entry.offset, kTensor), 0) << i;
    }
  }

  checks::ScratchFolder folder_;
  std::string bytes_;
  engine::base::RamBudget budget_{4 << 20};
  engine::base::Buffer<std::byte> rooms_ = budget_.take<std::byte>(
      "rooms", static_cast<std::int64_t>(kTensors*(kTensor / kBlock + 2) * kBlock));
};

TEST_F(ReadQueueCheck, EveryWayDeliversTheSameBytesAndCountsThem) {
  for (const DirectReads direct : {DirectReads::kNever, DirectReads::kAlways}) {
    for (const bool ring : {true, false}) {
      for (const int threads : {1, 4}) {
        ReadSettings settings;
        settings.direct = direct;
        const ShardReader reader(folder_.path(), settings);
        ReadQueue queue(reader, {ring, threads});
        if (!ring) {
          EXPECT_STREQ(queue.method(), "threads");
        }
        expect_all(queue, reader);
        EXPECT_EQ(reader.bytes_read(), kTensor * kTensors);
      }
    }
  }
}

// Where it cannot, the tests that ask for it have read with threads, and show nothing more.
TEST_F(ReadQueueCheck, IoUringReadsWhereItIsAsked) {
  const ShardReader reader(folder_.path());
  ReadQueue queue(reader, {true, 1});
  if (queue.method() == std::string_view("threads")) {
    GTEST_SKIP() << "io_uring is not to be had here: every read queue was one of threads";
  }
  EXPECT_STREQ(queue.method(), "io_uring");
  expect_all(queue, reader);
}

// Whatever a check or a benchmark puts between a file and the system, io_uring would pass it by.
TEST_F(ReadQueueCheck, SettingsBetweenFileAndSystemMeanThreads) {
  ReadSettings settings{failing_pread};
  const ShardReader reader(folder_.path(), settings);
  EXPECT_STREQ(ReadQueue(reader).method(), "threads");
}

TEST_F(ReadQueueCheck, DeviceThatComesBackAndOneThatStaysAway) {
  ReadSettings settings{failing_pread};
  settings.attempts = 3;
  settings.first_pause = std::chrono::milliseconds(0);
  settings.direct = DirectReads::kNever;
  const ShardReader reader(folder_.path(), settings);
  ReadQueue queue(reader, {true, 1});
  failing_calls = 2;
  expect_all(queue, reader);
  EXPECT_EQ(reader.reads_retried(), 2u);
  failing_calls = 3;
  const auto& entry = reader.find("t5");
  const auto lost = queue.submit(entry.shard, entry.offset, entry.bytes, room(0));
  const auto found = queue.submit(entry.shard, entry.offset, entry.bytes, room(1));
  EXPECT_THAT(error_of([&] { queue.wait(lost); }),
              AllOf(HasSubstr("Input/output error"), HasSubstr("attempt 3 of 3"),
                    HasSubstr("(tensor t5)"), HasSubstr(path().string())));
  EXPECT_EQ(queue.wait(found).size(), kTensor) << "one that fails takes no other with it";
}

// A shard that became shorter: by io_uring, by threads, directly and not, the error is that of
// File::read, and it arrives at wait().
TEST_F(ReadQueueCheck, ShortFileIsNamedWithOffsetAndBothCounts) {
  for (const bool ring : {true, false}) {
    for (const DirectReads direct : {DirectReads::kNever, DirectReads::kAlways}) {
      checks::write_bytes(path(), bytes_);
      ReadSettings settings;
      settings.direct = direct;
      const ShardReader reader(folder_.path(), settings);
      const auto& entry = reader.find("t8");
      ASSERT_EQ(::truncate(path().c_str(), static_cast<off_t>(entry.offset + 1000)), 0);
      ReadQueue queue(reader, {ring, 2});
      const auto ticket = queue.submit(entry.shard, entry.offset, entry.bytes, room(0));
      EXPECT_THAT(
          error_of([&] { queue.wait(ticket); }),
          AllOf(HasSubstr("short read at offset " + std::to_string(entry.offset)),
                HasSubstr("got 1000 of " + std::to_string(kTensor)), HasSubstr("(tensor t8)")))
          << ring;
    }
  }
}

TEST_F(ReadQueueCheck, EndsWithReadsOnTheirWay) {
  for (const bool ring : {true, false}) {
    const ShardReader reader(folder_.path());
    ReadQueue queue(reader, {ring, 2});
    for (int i = 0; i < kTensors; ++i) {
      const auto& entry = reader.find("t" + std::to_string(i));
      queue.submit(entry.shard, entry.offset, entry.bytes, room(i));
    }
  }
}

// So many bytes take so long, whoever asks, and whoever waits burns no processor.
TEST_F(ReadQueueCheck, ThrottledDevice) {
  ReadSettings settings;
  settings.throttle = std::make_shared<engine::store::Throttle>(5e6);
  settings.direct = DirectReads::kNever;
  const ShardReader reader(folder_.path(), settings);
  const auto start = std::chrono::steady_clock::now();
  const std::clock_t before = std::clock();
  ReadQueue queue(reader, {true, 4});
  expect_all(queue, reader);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  EXPECT_GE(took.count(), static_cast<double>(kTensor * kTensors) / 5e6);
  EXPECT_LT(static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC, took.count() / 2);
}

}  // namespace
