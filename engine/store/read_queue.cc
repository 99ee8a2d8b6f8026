#include "engine/store/read_queue.h"

#include <cassert>
#include <optional>
#include <unordered_map>

#include "engine/store/read_ring.h"
#include "engine/store/read_threads.h"

namespace engine::store {

struct ReadQueue::State {
  const ShardReader& reader;
  const int thread_count;
  Ticket last = 0;
  // Behind them stand those who carry them out, and so end before them.
  std::unordered_map<Ticket, ReadRequest> requests;
  std::unique_ptr<ReadRing> ring;
  std::optional<ReadThreads> threads;

  State(const ShardReader& of, int waiting) : reader(of), thread_count(waiting) {}

  // A copy that was lost is read in pieces from elsewhere, which is no work for the ring.
  bool ring_reads(std::int32_t shard) const {
    return ring != nullptr && !(reader.is_copy(shard) && reader.copy_is_lost());
  }
  // The copy is on another device.
  Throttle* throttle_of(std::int32_t shard) const {
    const bool elsewhere = reader.is_copy(shard) && !reader.copy_is_lost();
    return elsewhere ? nullptr : reader.settings().throttle.get();
  }
};

ReadQueue::ReadQueue(const ShardReader& reader, const ReadQueueSettings& settings)
    : state_(std::make_unique<State>(reader, settings.threads)) {
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
  Throttle* throttle = state_->throttle_of(shard);
  if (throttle != nullptr) request.ready_at = throttle->reserve(bytes);
  request.by_ring = state_->ring_reads(shard);
  if (request.by_ring) {
    state_->ring->submit(request);
  } else {
    if (!state_->threads) state_->threads.emplace(state_->reader, state_->thread_count);
    state_->threads->submit(request);
  }
  return ticket;
}

std::span<std::byte> ReadQueue::wait(Ticket ticket) {
  const auto entry = state_->requests.find(ticket);
  assert(entry != state_->requests.end());
  if (entry->second.by_ring) {
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
  if (request.by_ring) state_->reader.count_read(request.shard, request.bytes);
  return request.wanted();
}

const char* ReadQueue::method() const { return state_->ring ? "io_uring" : "threads"; }

}  // namespace engine::store
