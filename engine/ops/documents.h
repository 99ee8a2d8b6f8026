#pragma once

#include <cstdint>
#include <span>

namespace engine::ops {

// Where the documents of a batch of T tokens begin: 0 = borders[0] < borders[1] < ... < borders[D]
// = T; document d is the rows [borders[d], borders[d+1]). Convolution, KDA state and attention
// restart at every border, and sums over tokens are taken a document at a time
// (docs/training.md section 2, Documents).
using Documents = std::span<const std::int64_t>;

}  // namespace engine::ops
