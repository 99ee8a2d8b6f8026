#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

namespace engine::store {

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
