#include "engine/data/packing.h"

#include <algorithm>
#include <bit>
#include <cassert>

namespace engine::data {

namespace {

// Leaves are sequences with the room they have, inner nodes the most room below them. All are
// empty at the start, so one with room is always found: there are as many as documents.
class RoomTree {
 public:
  RoomTree(std::size_t sequences, std::int64_t room)
      : leaves_(std::bit_ceil(std::max<std::size_t>(sequences, 1))), most_(2 * leaves_, room) {}

  std::size_t take_first(std::int64_t length) {
    std::size_t node = 1;
    while (node < leaves_) node = most_[2 * node] >= length ? 2 * node : 2 * node + 1;
    const std::size_t leaf = node - leaves_;
    most_[node] -= length;
    for (node /= 2; node > 0; node /= 2) {
      most_[node] = std::max(most_[2 * node], most_[2 * node + 1]);
    }
    return leaf;
  }

 private:
  std::size_t leaves_;
  std::vector<std::int64_t> most_;
};

}  // namespace

std::vector<std::vector<std::int64_t>> pack(std::span<const std::int64_t> lengths,
                                            std::int64_t room, Packing packing) {
  std::vector<std::vector<std::int64_t>> sequences;
  const auto put = [&](std::size_t sequence, std::int64_t document) {
    if (sequence == sequences.size()) sequences.emplace_back();
    sequences[sequence].push_back(document);
  };
  RoomTree tree(packing == Packing::kFirstFit ? lengths.size() : 0, room);
  std::int64_t left = 0;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    assert(lengths[i] > 0 && lengths[i] <= room);
    const auto document = static_cast<std::int64_t>(i);
    if (packing == Packing::kFirstFit) {
      put(tree.take_first(lengths[i]), document);
      continue;
    }
    const bool fits = lengths[i] <= left;
    if (!fits) left = room;
    put(sequences.size() - (fits ? 1 : 0), document);
    left -= lengths[i];
  }
  return sequences;
}

}  // namespace engine::data
