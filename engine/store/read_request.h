#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>

#include "engine/store/file.h"

namespace engine::store {

// One read on its way; inside engine/store only.
struct ReadRequest {
  std::int32_t shard = 0;
  std::uint64_t offset = 0;
  std::size_t bytes = 0;
  std::span<std::byte> room;
  Throttle::Time ready_at{};
  bool done = false;           // guarded by whoever carries it out
  std::exception_ptr failure;  // of a thread
  bool by_ring = false;
  bool again = false;  // of the ring: it did not come as hoped
  RawRead raw;

  std::span<std::byte> wanted() const { return room.subspan(offset % kBlock, bytes); }
};

}  // namespace engine::store
