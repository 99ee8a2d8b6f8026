#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

namespace engine::data {

// Before any pattern is tried, a text is cut behind every 400,000 characters, and what that leaves
// behind every 25,000 characters of an unbroken run of spaces or of others. No token crosses a cut,
// so the cuts are part of what the ids of a long text are. What counts as a space here is
// White_Space and U+001C ... U+001F, which the pattern's \s is not.
//
// Source    docs/model.md section 13
struct SliceLimits {
  std::int64_t characters = 400'000;
  std::int64_t run = 25'000;
};

// The slices of a well-formed text in order; together they are the text. None for an empty text.
void for_each_slice(std::string_view text, const SliceLimits& limits,
                    const std::function<void(std::string_view)>& slice);

}  // namespace engine::data
