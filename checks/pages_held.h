#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace checks {

// Whole pages of a part that this process holds, from the kernel's own book.
inline std::size_t pages_held(std::span<const float> part) {
  const auto begin = (reinterpret_cast<std::uintptr_t>(part.data()) + 4095) / 4096;
  const auto end = reinterpret_cast<std::uintptr_t>(part.data() + part.size()) / 4096;
  if (end <= begin) return 0;
  std::vector<std::uint64_t> entries(end - begin);
  const int book = ::open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
  EXPECT_EQ(::pread(book, entries.data(), entries.size() * 8, static_cast<off_t>(begin * 8)),
            static_cast<ssize_t>(entries.size() * 8));
  ::close(book);
  return static_cast<std::size_t>(
      std::ranges::count_if(entries, [](std::uint64_t entry) { return (entry >> 63 & 1) != 0; }));
}

}  // namespace checks
