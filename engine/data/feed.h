#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/base/budget.h"
#include "engine/data/batching.h"
#include "engine/data/packed_set.h"

namespace engine::data {

// Sequences to train on, one at a time: files of ids that are in memory, or a set that stays on disk.
struct Feed {
  std::string name;  // for messages
  std::int64_t count = 0;
  bool shuffled = false;                         // in another order every epoch
  std::function<Joined(std::int64_t)> sequence;  // in training form
};
Feed feed_of(std::string name, std::vector<Sequence> sequences);
// Errors    of sequence: Error if the file has changed since the set was opened
Feed feed_of(std::shared_ptr<const PackedSet> set, bool shuffled);

// Which sequence stands where in all that a run takes: at place `cursor` that of position
// cursor mod count in epoch cursor div count. Not shuffled, an epoch is 0 ... count - 1; shuffled, it
// is sorted by the 64-bit words that Philox has for (seed, epoch, index), lower index first where two
// are equal (for any pair of indices once in 2^64). So an epoch is a function of seed and number:
// to go on in the middle of one, no state is wanted but the cursor.
//
// Cost      shuffled, 16 bytes a sequence from the budget, and a sort where an epoch begins
class Order {
 public:
  explicit Order(std::int64_t count) : count_(count) {}
  Order(std::int64_t count, std::uint64_t seed, base::RamBudget& budget);

  std::int64_t at(std::int64_t cursor);

 private:
  struct Place {
    std::uint64_t word;
    std::int64_t index;
  };
  void shuffle(std::int64_t epoch);

  std::int64_t count_;
  std::uint64_t seed_ = 0;
  std::int64_t epoch_ = -1;  // that of places_
  base::Buffer<Place> places_;
};

// The next `count` sequences from `cursor` on as documents of one batch. Those without a trained
// target are passed over and counted; they would add nothing to the loss or its gradient, and reading
// a model for them would be wasted.
struct Taken {
  Joined joined;
  std::int64_t sequences = 0;
  std::int64_t skipped = 0;
};
Taken take(const Feed& feed, Order& order, std::int64_t cursor, std::int64_t count);
// Their borders alone, 0 ... T: what the memory of a step depends on, for a step that may not fit in it.
std::vector<std::int64_t> take_borders(const Feed& feed, Order& order, std::int64_t cursor,
                                       std::int64_t count);

}  // namespace engine::data
