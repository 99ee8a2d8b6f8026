#include "engine/store/block_stream.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace engine::store {

BlockStream::BlockStream(ReadQueue& queue, std::vector<std::span<std::byte>> slots,
                         std::size_t ahead, std::size_t keys,
                         std::function<ReadList(std::uint32_t key)> locate)
    : queue_(queue),
      ahead_(ahead),
      locate_(std::move(locate)),
      slot_of_(keys, kNone),
      last_use_(keys, kNone) {
  for (const std::span<std::byte> memory : slots) slots_.push_back({memory});
}

std::size_t BlockStream::live() const {
  return static_cast<std::size_t>(
      std::ranges::count_if(slots_, [](const Slot& slot) { return slot.use != kNone; }));
}

void BlockStream::want(std::span<const std::uint32_t> keys) {
  for (const std::uint32_t key : keys) {
    const auto use = static_cast<std::uint32_t>(uses_.size());
    uses_.push_back({key, kNone});
    if (last_use_[key] != kNone) uses_[last_use_[key]].again = use;
    last_use_[key] = use;
  }
  read_ahead();
}

// In use, or read and not used yet.
bool BlockStream::needed(const Slot& slot) const {
  return slot.use != kNone && (slot.use == in_use_ || slot.use >= position_);
}

BlockStream::Slot* BlockStream::choose(std::uint32_t use) {
  Slot* best = nullptr;
  // Larger is better: the later it is wanted again; never again is latest of all, and among those
  // the one that was used first.
  const auto merit = [&](const Slot& slot) {
    if (slot.use == kNone) return std::pair(std::uint64_t{1} << 33, std::uint64_t{0});
    const std::uint32_t again = uses_[slot.use].again;
    return again == kNone ? std::pair(std::uint64_t{1} << 32, std::uint64_t{kNone - slot.use})
                          : std::pair(std::uint64_t{again}, std::uint64_t{0});
  };
  for (Slot& slot : slots_) {
    if (needed(slot) || merit(slot).first <= use) continue;
    if (best == nullptr || merit(slot) > merit(*best)) best = &slot;
  }
  return best;
}

void BlockStream::read_into(Slot& slot, std::uint32_t use) {
  if (slot.use != kNone) slot_of_[uses_[slot.use].key] = kNone;
  const std::uint32_t key = uses_[use].key;
  const ReadList list = locate_(key);
  assert(list.room_bytes() <= slot.memory.size());
  slot.use = use;
  slot.fresh = true;
  slot.bytes = list.bytes();
  slot_of_[key] = static_cast<std::uint32_t>(&slot - slots_.data());
  for (const ReadList::Range& range : list.ranges()) {
    slot.tickets.push_back(
        queue_.submit(range.shard, range.offset, range.bytes, slot.memory.subspan(range.room)));
  }
}

// Gives the use at `requested_` its slot: the one in which its block still lies, or one to read it
// into. A block that lies there for an earlier use stays for this one as well, see end_use().
bool BlockStream::request_next(bool may_read) {
  const std::uint32_t use = requested_;
  const std::uint32_t there = slot_of_[uses_[use].key];
  if (there != kNone) {
    if (!needed(slots_[there])) {
      slots_[there].use = use;
      slots_[there].fresh = false;
    }
  } else {
    Slot* slot = may_read ? choose(use) : nullptr;
    if (slot == nullptr) return false;
    read_into(*slot, use);
    ++unused_reads_;
  }
  ++requested_;
  return true;
}

void BlockStream::read_ahead() {
  while (requested_ < uses_.size() && request_next(unused_reads_ < ahead_)) {
  }
}

void BlockStream::end_use() {
  if (in_use_ == kNone) return;
  Slot& slot = slots_[slot_of_[uses_[in_use_].key]];
  const std::uint32_t again = uses_[in_use_].again;
  if (again < requested_) {
    slot.use = again;
    slot.fresh = false;
  }
  in_use_ = kNone;
}

BlockStream::Block BlockStream::next(std::uint32_t key) {
  assert(position_ < uses_.size() && uses_[position_].key == key);
  end_use();
  // Nothing is needed before this use, so that there is a slot for it.
  if (requested_ == position_) {
    const bool has_slot = request_next(true);
    assert(has_slot);
    static_cast<void>(has_slot);
  }
  Slot& slot = slots_[slot_of_[key]];
  assert(slot.use == position_);
  in_use_ = position_++;
  if (slot.fresh) {
    --unused_reads_;
  } else {
    bytes_saved_ += slot.bytes;
  }
  const Block block{slot.memory, slot.fresh};
  read_ahead();
  for (const ReadQueue::Ticket ticket : slot.tickets) queue_.wait(ticket);
  slot.tickets.clear();
  return block;
}

}  // namespace engine::store
