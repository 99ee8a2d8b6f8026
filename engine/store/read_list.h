#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace engine::store {

// Ranges of shards that are wanted together, and where each lies in one room: neighbours on disk are
// one read, every read has the blocks around it to itself.
class ReadList {
 public:
  struct Range {
    std::int32_t shard = 0;
    std::uint64_t offset = 0;
    std::uint64_t bytes = 0;
    std::size_t room = 0;  // where its first block lies
  };

  void add(std::int32_t shard, std::uint64_t offset, std::uint64_t bytes);
  // Sorts, joins and places; after the last add().
  void place();

  // In (shard, offset) order.
  std::span<const Range> ranges() const { return ranges_; }
  // Where in the room the byte at `offset` lies, which is one of those added.
  std::size_t at(std::int32_t shard, std::uint64_t offset) const;
  std::size_t room_bytes() const { return room_bytes_; }
  // Of the ranges themselves.
  std::uint64_t bytes() const { return bytes_; }

 private:
  std::vector<Range> ranges_;
  std::size_t room_bytes_ = 0;
  std::uint64_t bytes_ = 0;
};

}  // namespace engine::store
