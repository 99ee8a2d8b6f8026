#include "engine/data/bpe.h"

#include <queue>
#include <tuple>

namespace engine::data {

namespace {

// A part of the piece, from its place to the place of the next one.
struct Part {
  std::size_t next = 0;      // begin of the part behind it
  std::size_t previous = 0;  // begin of the part before it; its own for the first
  std::int32_t rank = -1;    // of this part joined with the next; -1 if they are no token
};

struct Pair {
  std::int32_t rank = 0;
  std::size_t left = 0;
  bool operator>(const Pair& other) const {
    return std::tie(rank, left) > std::tie(other.rank, other.left);
  }
};

}  // namespace

void encode_piece(const Ranks& ranks, std::string_view piece, std::vector<std::int32_t>& ids) {
  if (piece.empty()) return;
  if (const std::int32_t whole = ranks.find(piece); whole >= 0) {
    ids.push_back(whole);
    return;
  }
  const std::size_t size = piece.size();
  std::vector<Part> parts(size);
  std::priority_queue<Pair, std::vector<Pair>, std::greater<>> pairs;
  const auto judge = [&](std::size_t left) {
    const std::size_t middle = parts[left].next;
    parts[left].rank =
        middle == size ? -1 : ranks.find(piece.substr(left, parts[middle].next - left));
    if (parts[left].rank >= 0) pairs.push({parts[left].rank, left});
  };
  for (std::size_t i = 0; i < size; ++i) {
    parts[i].next = i + 1;
    parts[i].previous = i == 0 ? 0 : i - 1;
  }
  for (std::size_t i = 0; i + 1 < size; ++i) judge(i);
  while (!pairs.empty()) {
    const Pair best = pairs.top();
    pairs.pop();
    // What a part was joined into, or would have been joined with, may have changed since.
    if (parts[best.left].rank != best.rank) continue;
    const std::size_t gone = parts[best.left].next;
    const std::size_t behind = parts[gone].next;
    parts[gone].rank = -1;
    parts[best.left].next = behind;
    if (behind < size) parts[behind].previous = best.left;
    judge(best.left);
    if (best.left > 0) judge(parts[best.left].previous);
  }
  for (std::size_t i = 0; i < size; i = parts[i].next) {
    ids.push_back(ranks.find(piece.substr(i, parts[i].next - i)));
  }
}

}  // namespace engine::data
