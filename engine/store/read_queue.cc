#include "engine/store/read_queue.h"

#include <cassert>
#include <optional>
#include <unordered_map>

#include "engine/store/read_ring.h"
#include "engine/store/read_threads.h"

namespace engine::store {

struct ReadQueue::State {
  const ShardReader& reader;
  Ticket last = 0;
  // Behind them stand those who carry them out, and so end before them.
  std::unordered_map<Ticket, ReadRequest> requests;
  std::unique_ptr<ReadRing> ring;
  std::optional<ReadThreads> threads;

  explicit State(const ShardReader& of) : reader(of) {}
};

ReadQueue::ReadQueue(const ShardReader& reader, const ReadQueueSettings& settings)
    : state_(std::make_unique<State>(reader)) {
  if (settings.io_uring && reader.settings().pread == nullptr)
    state_->ring = ReadRing::make(reader);
  if (!state_->ring) state_->threads.emplace(reader, settings.threads);
}
ReadQueue::~ReadQueue() = default;

ReadQueue::Ticket ReadQueue::submit(std::int32_t shard, std::uint64_t offset, std::size_t bytes,
                                    std::span<std::byte> room) {
  assert(room.size() >= room_bytes(offset, bytes));
  const Ticket ticket = ++state_->last;
  ReadRequest& request = state_->requests[ticket];
  request.shard = shard;
  request.offset = offset;
  request.bytes = bytes;
  request.room = room;
  Throttle* throttle = state_->reader.settings().throttle.get();
  if (throttle != nullptr) request.ready_at = throttle->reserve(bytes);
  if (state_->ring) {
    state_->ring->submit(request);
  } else {
    state_->threads->submit(request);
  }
  return ticket;
}

std::span<std::byte> ReadQueue::wait(Ticket ticket) {
  const auto entry = state_->requests.find(ticket);
  assert(entry != state_->requests.end());
  if (state_->ring) {
    state_->ring->wait(entry->second);
  } else {
    state_->threads->wait(entry->second);
  }
  Throttle* throttle = state_->reader.settings().throttle.get();
  if (throttle != nullptr) throttle->wait_until(entry->second.ready_at);
  const ReadRequest request = std::move(entry->second);
  state_->requests.erase(entry);
  if (request.failure) std::rethrow_exception(request.failure);
  if (request.again) {
    return state_->reader.read_within(request.shard, request.offset, request.bytes, request.room);
  }
  if (state_->ring) state_->reader.count_read(request.bytes);
  return request.wanted();
}

const char* ReadQueue::method() const { return state_->ring ? "io_uring" : "threads"; }

}  // namespace engine::store
