#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace checks {

// A reader of outside bytes under test: `run` gives it any bytes. What the reader refuses must be an
// engine::base::Error; what it accepts must keep the promises that its header makes, or `run` throws
// std::logic_error. Anything else that is thrown, a crash, a leak or a sanitizer's report is a fault.
struct FuzzTarget {
  std::string_view name;
  // True if the reader accepted the bytes.
  bool (*run)(std::span<const std::uint8_t> bytes);
};

std::span<const FuzzTarget> fuzz_targets();

// Errors    std::logic_error if there is none of that name
const FuzzTarget& fuzz_target(std::string_view name);

}  // namespace checks
