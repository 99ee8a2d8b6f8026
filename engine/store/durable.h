#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>

#include "engine/store/unfinished.h"

namespace engine::store {

// What is written here is either there as a whole or not at all, also after a power cut: bytes go
// to a neighbour named PATH.lazylora-tmp, are fsynced, renamed, and the folder that holds the name is
// fsynced. What is not there as a whole when a signal ends its writing is removed, see unfinished.h. The neighbour
// has one writer at a time, a second is refused; one that a killed run left is
// overwritten by the next, which is why its ending is nobody else's: somebody may have a PATH.tmp.

// Nothing is written over, asked before work is begun: nothing bears the name or, where it may, an empty folder. A
// link is none, wherever it leads and whatever stands behind it (LINK/): the rename would meet the link itself.
// Errors    Error naming what stands there
enum class EmptyFolder { kRefused, kTaken };
void require_unused(const std::filesystem::path& out, EmptyFolder empty = EmptyFolder::kRefused);

// A file that appears under its final name when it is complete.
class DurableFile {
 public:
  // Creates PATH.lazylora-tmp (and the folders above it), or empties it.
  // Errors    Error naming the path and the system's reason, or that it has a writer
  explicit DurableFile(const std::filesystem::path& path);
  // Removes PATH.lazylora-tmp unless commit() was called.
  ~DurableFile();
  DurableFile(const DurableFile&) = delete;
  DurableFile& operator=(const DurableFile&) = delete;

  // All of the bytes, however many system calls that takes.
  // Errors    Error naming path, offset, bytes left and the system's reason (disk full, ...); here and below,
  //           that of stop_if_wished
  void write(std::span<const std::byte> bytes);
  // So many zero bytes, which take no space on a disk whose files may have holes.
  // Errors    as write
  void skip(std::uint64_t bytes);
  // Syncs, renames over a file that may be there, syncs the folder.
  void commit();

  std::uint64_t size() const { return size_; }
  // For a library that writes by itself; what it does is not in size().
  int descriptor() const { return descriptor_; }
  const std::filesystem::path& temporary() const { return temporary_; }

 private:
  std::filesystem::path final_;
  std::filesystem::path temporary_;
  Unfinished unfinished_;
  int descriptor_ = -1;
  std::uint64_t size_ = 0;
};

// A DurableFile in one call.
void write_file_durably(const std::filesystem::path& path, std::span<const std::byte> bytes);
void write_file_durably(const std::filesystem::path& path, std::string_view text);

// A folder that appears under its final name when it is complete.
class TemporaryFolder {
 public:
  // Creates PATH.lazylora-tmp (and the folders above it), or empties it.
  // Errors    Error naming the path and the system's reason, or that it has a writer
  explicit TemporaryFolder(const std::filesystem::path& path);
  // Removes the temporary folder unless commit() was called.
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  // Where to write: files directly in it or in folders below it.
  const std::filesystem::path& path() const { return temporary_; }

  // Syncs everything below, renames, syncs the parent. The final name is free or an empty folder.
  // Errors    Error naming the path; the destructor then removes the temporary folder
  void commit();

 private:
  std::filesystem::path final_;
  std::filesystem::path temporary_;
  Unfinished unfinished_;
  int descriptor_ = -1;
};

}  // namespace engine::store
