#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/store/finding.h"

namespace engine::store {

// What a safetensors header says about one tensor, as written: nothing but types has been checked.
struct HeaderTensor {
  std::string name;
  std::string dtype;
  std::vector<std::uint64_t> shape;
  std::vector<std::uint64_t> data_offsets;  // two numbers
};

// The tensors of a header text
//   {"name": {"dtype", "shape", "data_offsets"}, ..., "__metadata__": {...}}
// Refused, each with a finding: what is not JSON or not UTF-8, a name or field that stands there
// twice (a reader that keeps the last of the two can be shown another file than its neighbour), a
// missing or unknown field, a number that is negative, a fraction, written as 1e3 or as text. A
// tensor that has a finding is left out.
struct HeaderContent {
  std::vector<HeaderTensor> tensors;
  bool complete = true;  // no tensor was left out
};
HeaderContent parse_header(std::string_view text, const std::string& file,
                           std::vector<Finding>& findings);

}  // namespace engine::store
