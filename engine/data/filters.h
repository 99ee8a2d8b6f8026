#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "engine/data/records.h"

namespace engine::data {

struct Range {
  std::int64_t least = 0;
  std::int64_t most = std::numeric_limits<std::int64_t>::max();
  bool holds(std::int64_t value) const { return value >= least && value <= most; }
};

// Which records are wanted. Lengths are counted in characters. A record is counted under the first
// reason that keeps it out, in this order.
struct Filters {
  std::vector<std::string> categories;  // empty: all
  Range question{1};                    // instruction and context
  Range response{1};
  std::string required;          // at least one of these characters somewhere; empty: none
  bool keep_duplicates = false;  // else the first of equal records stays
};

enum class Reason { kCategory, kQuestion, kResponse, kRequired, kDuplicate, kExcluded, kTooLong };
inline constexpr int kReasons = 7;
const char* name_of(Reason reason);

// What a record's text alone says: everything up to kRequired. kReasons if nothing is against it.
int first_reason(const Filters& filters, const Record& record);

}  // namespace engine::data
