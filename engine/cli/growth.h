#pragma once

#include <algorithm>
#include <cstdint>

#include "engine/base/budget.h"

namespace engine::cli {

// What a process still grows by after the model is open: library heaps, pages of code that were not
// touched yet.
inline constexpr std::uint64_t kGrowthBytes = 22'000'000;

// What the header of a shard may take while it is read, before that: what is free, and in any case what the
// process may grow by. Of a budget of less the table of all that is needed says more.
inline std::uint64_t header_memory(const base::RamBudget& budget) {
  return std::max(budget.free_bytes(), kGrowthBytes);
}

}  // namespace engine::cli
