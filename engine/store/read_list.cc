#include "engine/store/read_list.h"

#include <algorithm>
#include <cassert>
#include <iterator>
#include <utility>

#include "engine/store/file.h"

namespace engine::store {

void ReadList::add(std::int32_t shard, std::uint64_t offset, std::uint64_t bytes) {
  ranges_.push_back({shard, offset, bytes, 0});
}

void ReadList::place() {
  const auto place_of = [](const Range& range) { return std::pair(range.shard, range.offset); };
  std::ranges::sort(ranges_, {}, place_of);
  std::vector<Range> joined;
  for (const Range& range : ranges_) {
    if (!joined.empty() && joined.back().shard == range.shard &&
        joined.back().offset + joined.back().bytes == range.offset) {
      joined.back().bytes += range.bytes;
    } else {
      joined.push_back(range);
    }
  }
  ranges_ = std::move(joined);
  room_bytes_ = 0;
  bytes_ = 0;
  for (Range& range : ranges_) {
    range.room = room_bytes_;
    room_bytes_ += store::room_bytes(range.offset, range.bytes);
    bytes_ += range.bytes;
  }
}

std::size_t ReadList::at(std::int32_t shard, std::uint64_t offset) const {
  const auto behind = std::ranges::upper_bound(
      ranges_, std::pair(shard, offset), {},
      [](const Range& range) { return std::pair(range.shard, range.offset); });
  assert(behind != ranges_.begin());
  const Range& range = *std::prev(behind);
  assert(range.shard == shard && offset < range.offset + range.bytes);
  return range.room + range.offset % kBlock + (offset - range.offset);
}

}  // namespace engine::store
