#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "engine/data/ranks.h"

namespace engine::data {

// Byte-pair encoding of one piece, appended to `ids`: a piece that is a token is that token;
// otherwise, beginning with single bytes, of all neighbours the two are joined whose joined bytes
// have the lowest rank, of equal ones the leftmost, until no two neighbours are a token.
//
// Cost      O(n log n) for n bytes: a heap of pairs, where trying all pairs after every join is n^2
// Order     the heap is ordered by (rank, position), which is the rule itself
void encode_piece(const Ranks& ranks, std::string_view piece, std::vector<std::int32_t>& ids);

}  // namespace engine::data
