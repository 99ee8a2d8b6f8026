#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

namespace engine::store {

// A file without a name: space on disk for the life of one object, whatever ends it.
class ScratchFile {
 public:
  // Errors    Error naming the folder if no file can be made there
  explicit ScratchFile(const std::filesystem::path& folder);
  ~ScratchFile();
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;

  // Exact positioned transfers.
  // Errors    Error naming folder, offset, bytes done and wanted, and the system's reason (disk
  // full ...)
  void write(std::uint64_t offset, std::span<const std::byte> bytes);
  void read(std::uint64_t offset, std::span<std::byte> out) const;

  // For what is not a transfer.
  int descriptor() const { return descriptor_; }

 private:
  std::filesystem::path folder_;
  int descriptor_ = -1;
};

}  // namespace engine::store
