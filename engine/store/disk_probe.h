#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/budget.h"
#include "engine/store/file.h"

namespace engine::store {

// One way of reading a file once from its beginning to its end.
struct ProbedReads {
  bool direct = false;
  int in_flight = 1;
  std::uint64_t bytes = 0;
  double seconds = 0.0;
  std::optional<double> cached;  // the part of the file that lay in the page cache when it began
  std::string not_measured;      // the reason, if it was not

  double bytes_per_second() const { return static_cast<double>(bytes) / seconds; }
};

struct DiskProbe {
  bool in_memory = false;  // the file system has no disk (tmpfs, ramfs)
  std::vector<ProbedReads> reads;
};

// "tmpfs" or "ramfs", if the folder lies in such a file system, which has no disk; else empty.
std::string_view memory_file_system(const std::filesystem::path& folder);

// The rate at which a folder's disk delivers blocks of `block_bytes` in a row, around the page cache
// and through it, one and `in_flight` at a time. Writes a file that cannot be compressed, has it on
// the disk and out of the page cache, and reads it. The file has no name: nothing stays behind,
// however this ends. `settings` is for checks, that ask what is read.
// Errors    Error naming the folder: none, read-only, or less free than is to be written
DiskProbe probe_disk(const std::filesystem::path& folder, std::uint64_t bytes,
                     std::uint64_t block_bytes, int in_flight, base::RamBudget& budget,
                     const ReadSettings& settings = {});

// What of the numbers cannot be the disk's, a sentence each.
std::vector<std::string> doubts(const DiskProbe& probe);

}  // namespace engine::store
