#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "engine/store/read_list.h"
#include "engine/store/read_queue.h"

namespace engine::store {

// Blocks of a checkpoint (half a layer, an expert) in the order in which they will be wanted, which
// is known before: they are read ahead into a fixed number of slots, and one that is wanted again
// and still lies in a slot is not read again. This is the turn-around: whoever walks up and down
// finds the last of the way up when the way down begins.
//
//   which slot is read over   a free one; else, among those that nobody wants again as far as is
//                             known, the longest unused one of the group that has most of them
//                             (a layer's experts: one group must not push out all others); else the one wanted last, if that is later
//                             than what is to be read; never the block in use, nor one that was
//                             read and not used yet
//   how far ahead             `ahead` blocks that are read or being read and not used yet
//
// Both are decided by the order of calls alone, never by which read ends first: what is read and
// what is saved is the same in every run. With one slot every read is waited for.
class BlockStream {
 public:
  // Blocks have keys 0 ... keys-1; `locate` says where the ranges of one lie. All slots have the
  // same size, enough for any room that `locate` asks for, and begin on a block border. Groups are
  // of `group` keys; 0: all are one.
  BlockStream(ReadQueue& queue, std::vector<std::span<std::byte>> slots, std::size_t ahead,
              std::size_t keys, std::function<ReadList(std::uint32_t key)> locate,
              std::size_t group = 0);

  // To be used in this order, behind everything that is wanted already.
  void want(std::span<const std::uint32_t> keys);

  struct Block {
    std::span<std::byte> slot;
    bool fresh = false;  // read for this use
  };
  // The next block in the order of want(); it stays until the next call. `key` is what the caller
  // believes it to be.
  // Errors    those of reading it; that of stop_if_wished
  Block next(std::uint32_t key);

  // Bytes of the ranges of blocks that were used without being read again.
  std::uint64_t bytes_saved() const { return bytes_saved_; }
  // Slots that hold a block, are being read, or are in use: never more than there are.
  std::size_t live() const;

 private:
  static constexpr std::uint32_t kNone = 0xFFFF'FFFF;
  struct Use {
    std::uint32_t key = 0;
    std::uint32_t again = kNone;  // the next use of the same key
  };
  struct Slot {
    std::span<std::byte> memory;
    std::uint32_t use = kNone;  // the last or the coming one; kNone: empty
    std::uint64_t bytes = 0;
    bool fresh = false;
    std::vector<ReadQueue::Ticket> tickets = {};
  };
  bool needed(const Slot& slot) const;
  std::uint32_t& slots_of_group(std::uint32_t use) { return held_[uses_[use].key / group_]; }
  void forget();
  Slot* choose(std::uint32_t use);
  void read_into(Slot& slot, std::uint32_t use);
  bool request_next(bool may_read);
  void read_ahead();
  void end_use();

  ReadQueue& queue_;
  std::size_t ahead_;
  std::size_t group_;
  std::function<ReadList(std::uint32_t)> locate_;
  std::vector<Slot> slots_;  // of fixed number, for ever
  std::vector<Use> uses_;
  std::vector<std::uint32_t> slot_of_;   // [key], kNone if in none
  std::vector<std::uint32_t> last_use_;  // [key] that is wanted so far
  std::vector<std::uint32_t> held_;      // [group] slots with a block of it
  std::uint32_t in_use_ = kNone;         // a use
  std::uint32_t position_ = 0;           // uses before it are over, or in use
  std::uint32_t requested_ = 0;          // uses before it have a slot
  std::size_t unused_reads_ = 0;         // reads whose use is at position_ or behind
  std::uint64_t bytes_saved_ = 0;
};

}  // namespace engine::store
