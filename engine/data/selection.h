#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace engine::data {

// A place in a random order: a function of the seed and the record's digest alone, so that it
// does not depend on the file, the order in it, or what else is in it.
std::uint64_t selection_key(std::uint64_t seed, const std::string& digest);

struct Candidate {
  std::int32_t stratum = 0;
  std::uint64_t key = 0;
};

// `count` of all, from each stratum in proportion to its size: the whole parts of the exact shares,
// and one more each to the largest remainders (of equal ones the lower stratum). Within a stratum
// those with the lowest keys. Indices, rising.
//
// Errors    Error with both numbers if there are not so many
std::vector<std::int64_t> select(std::span<const Candidate> candidates, std::int32_t strata,
                                 std::int64_t count);

}  // namespace engine::data
