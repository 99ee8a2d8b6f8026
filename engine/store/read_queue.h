#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "engine/store/shard_reader.h"

namespace engine::store {

struct ReadQueueSettings {
  // Where the system has it, allows it, and ReadSettings put no pread in between; else threads.
  bool io_uring = true;
  int threads = 4;  // that wait for the disk, so more than there are processors
};

// Reads that go on while something else is computed, begun in the order of submit().
// Threads   one thread submits and waits; nobody spins
class ReadQueue {
 public:
  using Ticket = std::uint64_t;

  explicit ReadQueue(const ShardReader& reader, const ReadQueueSettings& settings = {});
  // Waits for what is being read; what is not begun is dropped.
  ~ReadQueue();
  ReadQueue(const ReadQueue&) = delete;
  ReadQueue& operator=(const ReadQueue&) = delete;

  // As ShardReader::read_within; `room` is the queue's until wait() has answered.
  Ticket submit(std::int32_t shard, std::uint64_t offset, std::size_t bytes,
                std::span<std::byte> room);

  // The bytes, once they are there; once for every ticket, in any order.
  // Errors    those of ShardReader::read_within, as they were there
  std::span<std::byte> wait(Ticket ticket);

  // "io_uring" or "threads".
  const char* method() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace engine::store
