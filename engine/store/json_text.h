#pragma once

#include <string>
#include <string_view>

namespace engine::store {

// At most 200 bytes of a text from outside, for a message.
inline std::string shortened(std::string_view text) {
  constexpr std::size_t kLimit = 200;
  if (text.size() <= kLimit) return std::string(text);
  return std::string(text.substr(0, kLimit)) + "...";
}

// The reason in a message of the JSON library, without its own numbering in front.
inline std::string json_reason(std::string_view what) {
  const std::size_t end = what.find("] ");
  return shortened(end == std::string_view::npos ? what : what.substr(end + 2));
}

}  // namespace engine::store
