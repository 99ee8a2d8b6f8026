#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <span>
#include <string>

#include "engine/store/throttle.h"

namespace engine::store {

// When reads go around the page cache.
enum class DirectReads : std::uint8_t {
  kNever,
  kLarge,  // where the page cache could not hold the files anyway, and would only be churned
  kAlways,
};

// How a File reads. The defaults are the system; a check puts in a `pread` that is interrupted,
// comes up short or fails, a small chunk, and no waiting.
struct ReadSettings {
  ssize_t (*pread)(int descriptor, void* out, std::size_t count, off_t offset) = nullptr;
  // Linux reads at most 2^31 - 4096 bytes a call and says so only by coming up short; other systems
  // fail above 2^31 - 1. No call asks for more than this.
  std::size_t chunk_bytes = 2'147'479'552;
  // A device that drops off the bus (EIO, ENODEV, ENXIO) is tried again this often, the pause
  // doubling.
  int attempts = 5;
  std::chrono::milliseconds first_pause{50};
  // Asked of a ShardReader; a File by itself reads directly once read_directly() was called.
  DirectReads direct = DirectReads::kLarge;
  // The alignment that direct reads of this descriptor want, 0 if it has none; the default asks the
  // system.
  std::uint32_t (*direct_alignment)(int descriptor) = nullptr;
  // What the header of a shard may take in memory while a ShardReader reads it; more is refused before it
  // is read.
  std::uint64_t header_memory = std::numeric_limits<std::uint64_t>::max();
  // A device of a given speed for a ShardReader and its ReadQueue; for benchmarks.
  std::shared_ptr<Throttle> throttle = nullptr;
};

// Direct reads transfer whole blocks between aligned addresses and aligned offsets. So that the
// bytes need no second copy, a read is given room for the blocks around them.
inline constexpr std::size_t kBlock = 4096;
// Bytes from the start of the block with the first byte to the end of the block with the last.
std::size_t room_bytes(std::uint64_t offset, std::size_t bytes);

// A read as the system is asked for it: the bytes wanted, or the blocks around them.
struct RawRead {
  std::shared_ptr<const void> keeps_open;
  int descriptor = -1;
  bool direct = false;
  std::uint64_t offset = 0;
  std::size_t skip = 0;    // of the room
  std::size_t length = 0;  // asked for; less may come at the end of the file
  std::size_t needed = 0;  // with less than this the bytes wanted are not there
};

// A regular file open for exact positioned reads. Reads may come from several threads at once.
class File {
 public:
  // Errors    Error naming the path: not there, a dangling link (and where it points), not a
  //           regular file (a FIFO is refused without waiting for its writer), no permission
  explicit File(const std::filesystem::path& path, const ReadSettings& settings = {});
  ~File();
  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;

  // Exactly out.size() bytes from `offset`, however many system calls that takes. When the device
  // answers EIO, ENODEV or ENXIO, the file is opened again by its path, and read on only if it is
  // the same file (size, modification time and inode).
  //
  // Errors    Error "short read at offset o, got g of n", or the system's reason, or that another
  //           file stands in its place, or a range that no file can hold
  void read(std::uint64_t offset, std::span<std::byte> out) const;

  // Bytes [offset, offset + bytes), somewhere in `room` (which begins on a block border and has
  // room_bytes(offset, bytes)): where they are does not depend on how they came. The rest of the
  // room holds no news. Reads directly if that is possible, else as read().
  // Errors    those of read()
  std::span<std::byte> read_within(std::uint64_t offset, std::size_t bytes,
                                   std::span<std::byte> room) const;
  // The same for whoever hands reads to the system himself. What does not come as hoped is asked
  // for again with read_within(), which knows what to do.
  RawRead raw(std::uint64_t offset, std::size_t bytes) const;

  // From now on read_within() goes around the page cache where the file system lets it.
  void read_directly();
  // Empty while reads are direct; else the reason why they are not.
  std::string why_buffered() const;

  // As it was when opened.
  std::uint64_t size() const;
  std::int64_t modified_ns() const;
  const std::filesystem::path& path() const;

  // Times that read() had to open the file again.
  std::uint64_t reads_retried() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// A small text file (config.json, an index, a manifest), whole.
// Errors    those of File, and Error if it is larger than `limit_bytes` or empty
std::string read_text(const std::filesystem::path& path, std::uint64_t limit_bytes);

}  // namespace engine::store
