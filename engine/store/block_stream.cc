#include "engine/store/block_stream.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <utility>

#include "engine/store/unfinished.h"

namespace engine::store {

BlockStream::BlockStream(ReadQueue& queue, std::vector<std::span<std::byte>> slots,
                         std::size_t ahead, std::size_t keys,
                         std::function<ReadList(std::uint32_t key)> locate, std::size_t group)
    : queue_(queue),
      ahead_(ahead),
      group_(group == 0 ? std::max<std::size_t>(keys, 1) : group),
      locate_(std::move(locate)),
      slot_of_(keys, kNone),
      last_use_(keys, kNone),
      held_((keys + group_ - 1) / group_) {
  for (const std::span<std::byte> memory : slots) slots_.push_back({memory});
}

std::size_t BlockStream::live() const {
  return static_cast<std::size_t>(
      std::ranges::count_if(slots_, [](const Slot& slot) { return slot.use != kNone; }));
}

// Numbers the uses anew, without those that are over and whose blocks lie in no slot, so that a
// stream that goes on for ever does not grow for ever. Their order stays, so nothing is decided
// otherwise.
void BlockStream::forget() {
  std::vector<std::uint32_t> kept;  // Of those that are over.
  for (const Slot& slot : slots_) {
    if (slot.use < position_) kept.push_back(slot.use);
  }
  std::ranges::sort(kept);
  const auto moved = [&](std::uint32_t use) {
    if (use == kNone) return kNone;
    const auto places = static_cast<std::uint32_t>(kept.size());
    if (use >= position_) return use - position_ + places;
    const auto place = std::ranges::lower_bound(kept, use);
    assert(place != kept.end() && *place == use);
    return static_cast<std::uint32_t>(place - kept.begin());
  };
  std::vector<Use> uses;
  const auto take = [&](const Use& use) { uses.push_back({use.key, moved(use.again)}); };
  for (const std::uint32_t use : kept) take(uses_[use]);
  std::for_each(uses_.begin() + position_, uses_.end(), take);
  for (Slot& slot : slots_) slot.use = moved(slot.use);
  in_use_ = moved(in_use_);
  requested_ = moved(requested_);
  position_ = static_cast<std::uint32_t>(kept.size());
  uses_ = std::move(uses);
  std::ranges::fill(last_use_, kNone);
  for (std::uint32_t use = 0; use < uses_.size(); ++use) last_use_[uses_[use].key] = use;
}

void BlockStream::want(std::span<const std::uint32_t> keys) {
  if (position_ > slot_of_.size() + slots_.size()) forget();
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
  // the one that was used first, of the group with most slots.
  using Merit = std::array<std::uint64_t, 3>;
  const auto merit = [&](const Slot& slot) {
    if (slot.use == kNone) return Merit{std::uint64_t{1} << 33, 0, 0};
    const std::uint32_t again = uses_[slot.use].again;
    if (again != kNone) return Merit{again, 0, 0};
    return Merit{std::uint64_t{1} << 32, slots_of_group(slot.use), kNone - slot.use};
  };
  for (Slot& slot : slots_) {
    if (needed(slot) || merit(slot)[0] <= use) continue;
    if (best == nullptr || merit(slot) > merit(*best)) best = &slot;
  }
  return best;
}

void BlockStream::read_into(Slot& slot, std::uint32_t use) {
  if (slot.use != kNone) {
    slot_of_[uses_[slot.use].key] = kNone;
    --slots_of_group(slot.use);
  }
  const std::uint32_t key = uses_[use].key;
  const ReadList list = locate_(key);
  assert(list.room_bytes() <= slot.memory.size());
  slot.use = use;
  ++slots_of_group(use);
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
  stop_if_wished();
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
