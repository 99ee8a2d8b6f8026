#include "engine/store/disk_probe.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <exception>
#include <system_error>
#include <thread>

#include "engine/base/error.h"
#include "engine/base/rng.h"
#include "engine/store/at_path.h"
#include "engine/store/scratch_file.h"

namespace engine::store {
namespace {

using base::Error;

// On the disk, and not in memory.
void settle(const ScratchFile& file, const std::filesystem::path& folder) {
  if (::fdatasync(file.descriptor()) != 0) {
    throw Error("{}: what was written does not reach the disk: {}", folder.string(),
                std::generic_category().message(errno));
  }
  ::posix_fadvise(file.descriptor(), 0, 0, POSIX_FADV_DONTNEED);
}

// Nothing where the system does not tell.
std::optional<double> cached_part(const ScratchFile& file, std::uint64_t bytes) {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  void* memory = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, file.descriptor(), 0);
  if (memory == MAP_FAILED) return std::nullopt;
  std::vector<unsigned char> resident((bytes + page - 1) / page);
  const int status = ::mincore(memory, bytes, resident.data());
  ::munmap(memory, bytes);
  if (status != 0) return std::nullopt;
  const auto count = std::ranges::count_if(resident, [](unsigned char r) { return r & 1; });
  return static_cast<double>(count) / static_cast<double>(resident.size());
}

// No two blocks alike, nothing to compress.
void fill(ScratchFile& file, std::uint64_t bytes) {
  const base::CounterRng rng(1, "disk probe");
  std::vector<std::uint32_t> block(std::size_t{1} << 20);
  for (std::uint64_t offset = 0; offset < bytes;) {
    rng.fill(offset / sizeof(std::uint32_t), block);
    const auto raw = std::as_bytes(std::span(block));
    const std::size_t count = std::min<std::uint64_t>(raw.size(), bytes - offset);
    file.write(offset, raw.first(count));
    offset += count;
  }
}

void read_all(const File& file, std::uint64_t bytes, std::uint64_t block_bytes, int in_flight,
              base::RamBudget& budget, ProbedReads& result) {
  const std::uint64_t blocks = bytes / block_bytes;
  const std::size_t room = room_bytes(kBlock - 1, block_bytes);
  auto memory = budget.take_room("blocks in flight", static_cast<std::int64_t>(room) * in_flight);
  std::atomic<std::uint64_t> next = 0;
  std::vector<std::exception_ptr> failures(static_cast<std::size_t>(in_flight));
  const auto start = std::chrono::steady_clock::now();
  std::vector<std::jthread> threads;  // joined also where one cannot be made
  for (std::size_t t = 0; t < failures.size(); ++t) {
    threads.emplace_back([&, t] {
      try {
        for (std::uint64_t block = next++; block < blocks; block = next++) {
          file.read_within(block * block_bytes, block_bytes, memory.span().subspan(t * room, room));
        }
      } catch (...) {
        failures[t] = std::current_exception();
      }
    });
  }
  for (std::jthread& thread : threads) thread.join();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  for (const std::exception_ptr& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
  result.bytes = blocks * block_bytes;
  result.seconds = took.count();
}

}  // namespace

std::string_view memory_file_system(const std::filesystem::path& folder) {
  struct statfs system {};
  if (::statfs(folder.c_str(), &system) != 0) return "";
  return system.f_type == TMPFS_MAGIC ? "tmpfs" : system.f_type == RAMFS_MAGIC ? "ramfs" : "";
}

DiskProbe probe_disk(const std::filesystem::path& folder, std::uint64_t bytes,
                     std::uint64_t block_bytes, int in_flight, base::RamBudget& budget,
                     const ReadSettings& settings) {
  if (!is_folder(folder)) {
    throw Error("{}: is no folder", folder.string());
  }
  if (bytes < block_bytes) {
    throw Error("{}: {} bytes hold no block of {}", folder.string(), bytes, block_bytes);
  }
  const std::uint64_t free = free_bytes(folder);
  if (free < bytes) {
    throw Error("{}: {} free, the probe would write {}", folder.string(), base::format_bytes(free),
                base::format_bytes(bytes));
  }
  DiskProbe probe;
  probe.in_memory = !memory_file_system(folder).empty();
  ScratchFile written(folder);
  fill(written, bytes);
  for (const bool direct : {true, false}) {
    for (const int count : {1, in_flight}) {
      ProbedReads& result = probe.reads.emplace_back();
      result.direct = direct;
      result.in_flight = count;
      settle(written, folder);
      result.cached = cached_part(written, bytes);
      File file(fmt::format("/proc/self/fd/{}", written.descriptor()), settings);
      if (direct) file.read_directly();
      if (direct && !file.why_buffered().empty()) {
        result.not_measured = file.why_buffered();
        continue;
      }
      read_all(file, bytes, block_bytes, count, budget, result);
      if (direct) result.not_measured = file.why_buffered();
    }
  }
  return probe;
}

std::vector<std::string> doubts(const DiskProbe& probe) {
  std::vector<std::string> all;
  if (probe.in_memory) {
    all.push_back("the folder lies in memory (tmpfs or ramfs): these are no rates of a disk");
  }
  double fastest_direct = 0.0;
  for (const ProbedReads& reads : probe.reads) {
    if (reads.direct && reads.not_measured.empty()) {
      fastest_direct = std::max(fastest_direct, reads.bytes_per_second());
    }
  }
  for (const ProbedReads& reads : probe.reads) {
    if (reads.direct) continue;
    if (!reads.cached) {
      all.push_back(fmt::format("buffered, {} in flight: nothing tells what lay in the page cache",
                                reads.in_flight));
    } else if (*reads.cached > 0.01) {
      all.push_back(
          fmt::format("buffered, {} in flight: {:.0f} % of the file lay in the page cache and "
                      "would not leave it",
                      reads.in_flight, 100.0 * *reads.cached));
    } else if (fastest_direct > 0.0 && reads.bytes_per_second() > 2.0 * fastest_direct) {
      // Through the cache a byte is copied once more: it cannot come much faster than around it.
      all.push_back(fmt::format(
          "buffered, {} in flight: {:.1f} times the direct rate can only be a page cache",
          reads.in_flight, reads.bytes_per_second() / fastest_direct));
    }
  }
  if (fastest_direct == 0.0) {
    all.push_back("without direct reads nothing tells the disk from the page cache");
  }
  return all;
}

}  // namespace engine::store
