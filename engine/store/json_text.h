#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace engine::store {

// At most 200 bytes of a text from outside, for a message.
inline std::string shortened(std::string_view text) {
  constexpr std::size_t kLimit = 200;
  if (text.size() <= kLimit) return std::string(text);
  return std::string(text.substr(0, kLimit)) + "...";
}

// The reason in a message of the JSON library: what it found, without its own numbering, the rule of
// its grammar and what else it would have taken.
std::string json_reason(std::string_view what);

// One JSON value and nothing else, of at most 32 levels, no key twice in one object: of two the
// library would keep the last without a word. Numbers beyond double's range are refused as well.
// The text is then safe to be parsed; it is gone through once for this and kept nowhere.
// Errors    Error naming `where` and the byte or the key
void require_strict_json(std::string_view text, const std::string& where);

// The text of a small JSON file, whole, which require_strict_json has let through.
// Errors    those of read_text and require_strict_json
std::string read_json_text(const std::filesystem::path& path, std::uint64_t limit_bytes);

}  // namespace engine::store
