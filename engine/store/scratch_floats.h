#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <utility>

namespace engine::store {

// Floats on disk that are used as if they were in memory: a file without a name, mapped. What was
// used is put away again by whoever is done with it, so that memory holds what is worked on, however
// much there is in all. Zero at first. Whatever ends the process, nothing is left behind.
//
// The space is taken when it is made: a full disk is an Error then, and never later where a block that was
// taken stays the file's. A file system that writes a changed block elsewhere, or compresses it (btrfs,
// ZFS), promises nothing by it and may be full later. That, like a device that fails while the file is
// mapped, ends the process with SIGBUS, which is to a run what kill -9 is: its checkpoint is what counts.
//
// On tmpfs or ramfs what is put away is memory still, which no budget knows of
// (memory_file_system in disk_probe.h).
class ScratchFloats {
 public:
  ScratchFloats() = default;
  // Errors    Error naming the folder, bytes, and the system's reason
  ScratchFloats(const std::filesystem::path& folder, std::int64_t count);
  ScratchFloats(ScratchFloats&& other) noexcept { swap(other); }
  ScratchFloats& operator=(ScratchFloats&& other) noexcept {
    swap(other);
    return *this;
  }
  ~ScratchFloats();

  std::span<float> span() { return {data_, count_}; }

  // Gives back the memory of a part and of its neighbours as far as the system brought them in with it;
  // all values stay and come back when they are used. Any thread may be using any part meanwhile.
  // Nothing happens for an empty part.
  static void put_away(std::span<const float> part) noexcept;

 private:
  void swap(ScratchFloats& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(count_, other.count_);
  }
  float* data_ = nullptr;
  std::size_t count_ = 0;
};

}  // namespace engine::store
