#include "engine/base/budget.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <fstream>
#include <limits>
#include <optional>
#include <string_view>

#include "engine/base/decimal.h"

namespace engine::base {

std::string RamBudget::table() const {
  std::string text;
  for (const auto& [name, bytes] : held_) {
    text += fmt::format("  {:<40} {:>12}\n", name, format_bytes(bytes));
  }
  return text;
}

void RamBudget::charge(const std::string& name, std::uint64_t bytes) {
  if (bytes > free_bytes()) {
    throw Error("memory budget: {} wants {}, {} of {} are free; held now:\n{}", name,
                format_bytes(bytes), format_bytes(free_bytes()), format_bytes(limit_bytes_),
                table());
  }
  hold(name, bytes);
}

void RamBudget::hold(const std::string& name, std::uint64_t bytes) {
  used_bytes_ += bytes;
  peak_bytes_ = std::max(peak_bytes_, used_bytes_);
  held_[name] += bytes;
}

void RamBudget::refuse_allocation(const std::string& name, std::uint64_t bytes) {
  release(name, bytes);
  throw Error(
      "memory: {} wants {}, which the budget of {} allows and the machine has not; held "
      "now:\n{}",
      name, format_bytes(bytes), format_bytes(limit_bytes_), table());
}

Buffer<std::byte> RamBudget::take_room(const std::string& name, std::int64_t bytes) {
  constexpr std::uintptr_t kHuge = std::uintptr_t{2} << 20;
  Buffer<std::byte> buffer;
  charge(name, static_cast<std::uint64_t>(bytes));
  if (bytes == 0) return buffer;
  const auto count = static_cast<std::size_t>(bytes);
  void* const memory = ::operator new (count, std::align_val_t{4096}, std::nothrow);
  if (memory == nullptr) refuse_allocation(name, count);
  buffer.budget_ = this;
  buffer.name_ = name;
  buffer.count_ = count;
  buffer.data_ = static_cast<std::byte*>(memory);
  // Whole huge pages only, so that none reaches beyond the buffer.
  const auto begin = (reinterpret_cast<std::uintptr_t>(buffer.data_) + kHuge - 1) / kHuge * kHuge;
  const auto end = (reinterpret_cast<std::uintptr_t>(buffer.data_) + buffer.count_) / kHuge * kHuge;
  if (begin < end) ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
  return buffer;
}

void RamBudget::release(const std::string& name, std::uint64_t bytes) noexcept {
  used_bytes_ -= bytes;
  const auto entry = held_.find(name);
  entry->second -= bytes;
  if (entry->second == 0) held_.erase(entry);
}

std::uint64_t parse_bytes(const std::string& text) {
  // The unit is the letters at the end, so that the e of an exponent stays with the number.
  std::size_t unit_at = text.size();
  while (unit_at > 0 && std::isalpha(static_cast<unsigned char>(text[unit_at - 1]))) --unit_at;
  const std::string unit = text.substr(unit_at);
  std::string_view digits = std::string_view(text).substr(0, unit_at);
  digits = digits.substr(0, digits.find_last_not_of(' ') + 1);
  const std::optional<double> number = parse_decimal<double>(digits);
  if (!number) {
    throw Error("size \"{}\": not a number with an optional unit (B KB MB GB KiB MiB GiB)", text);
  }
  const std::map<std::string, double> units = {
      {"", 1.0},    {"B", 1.0},      {"KB", 1e3},        {"MB", 1e6},     {"GB", 1e9},
      {"TB", 1e12}, {"KiB", 1024.0}, {"MiB", 1048576.0}, {"GiB", 0x1p30}, {"TiB", 0x1p40},
  };
  const auto factor = units.find(unit);
  if (factor == units.end()) {
    throw Error("size \"{}\": unknown unit \"{}\" (B KB MB GB TB KiB MiB GiB TiB)", text, unit);
  }
  const double bytes = *number * factor->second;
  if (!(bytes >= 0.0 && bytes < 0x1p63))
    throw Error("size \"{}\": must be in 0 ... 2^63 - 1 bytes", text);
  return static_cast<std::uint64_t>(bytes);
}

std::string format_bytes(std::uint64_t bytes) {
  if (bytes < 10'000) return fmt::format("{} B", bytes);
  if (bytes < 10'000'000) return fmt::format("{:.1f} KB", static_cast<double>(bytes) / 1e3);
  if (bytes < 10'000'000'000) return fmt::format("{:.1f} MB", static_cast<double>(bytes) / 1e6);
  return fmt::format("{:.2f} GB", static_cast<double>(bytes) / 1e9);
}

namespace {

constexpr std::uint64_t kNoLimit = std::numeric_limits<std::uint64_t>::max();

// A cgroup limit file holds a number or "max".
std::uint64_t limit_in(const std::string& path) {
  std::ifstream file(path);
  std::uint64_t bytes = 0;
  return file >> bytes ? bytes : kNoLimit;
}

std::uint64_t cgroup_limit() {
  std::uint64_t smallest = std::min(limit_in("/sys/fs/cgroup/memory.max"),
                                    limit_in("/sys/fs/cgroup/memory/memory.limit_in_bytes"));
  std::ifstream self("/proc/self/cgroup");
  for (std::string line; std::getline(self, line);) {
    const std::size_t controllers = line.find(':');
    const std::size_t path = line.find(':', controllers + 1);
    if (path == std::string::npos) continue;
    const std::string names = line.substr(controllers + 1, path - controllers - 1);
    const std::string group = line.substr(path + 1);
    if (names.empty()) {
      smallest = std::min(smallest, limit_in("/sys/fs/cgroup" + group + "/memory.max"));
    } else if (names == "memory") {
      smallest =
          std::min(smallest, limit_in("/sys/fs/cgroup/memory" + group + "/memory.limit_in_bytes"));
    }
  }
  return smallest;
}

std::uint64_t status_kilobytes(const std::string& field) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind(field + ":", 0) == 0) {
      return std::stoull(line.substr(field.size() + 1)) * 1024;
    }
  }
  return 0;
}

}  // namespace

std::uint64_t default_ram_bytes() {
  const std::uint64_t physical = static_cast<std::uint64_t>(sysconf(_SC_PHYS_PAGES)) *
                                 static_cast<std::uint64_t>(sysconf(_SC_PAGE_SIZE));
  return std::min(physical, cgroup_limit()) / 2;
}

std::uint64_t rss_bytes() { return status_kilobytes("VmRSS"); }

std::uint64_t peak_rss_bytes() { return status_kilobytes("VmHWM"); }

std::uint64_t swap_bytes() { return status_kilobytes("VmSwap"); }

}  // namespace engine::base
