#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace engine::data {

// The first byte that is not part of well-formed UTF-8 (Unicode, table 3-7): overlong forms,
// surrogates, code points above U+10FFFF, stray and missing continuation bytes.
std::optional<std::size_t> first_invalid_utf8(std::string_view text);

// Errors    Error naming `where`, the offset and the byte
void require_utf8(std::string_view text, std::string_view where);

// The character at `at` and how many bytes it takes; `text` is well-formed.
struct Character {
  char32_t code = 0;
  std::size_t bytes = 0;
};
Character character_at(std::string_view text, std::size_t at);

// Characters of a well-formed text.
std::int64_t count_characters(std::string_view text);

}  // namespace engine::data
