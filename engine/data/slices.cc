#include "engine/data/slices.h"

#include "engine/data/utf8.h"

namespace engine::data {

namespace {

bool is_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 ||
         c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
         c == 0x205F || c == 0x3000;
}

}  // namespace

void for_each_slice(std::string_view text, const SliceLimits& limits,
                    const std::function<void(std::string_view)>& slice) {
  std::size_t begin = 0;
  std::int64_t characters = 0, run = 0;
  bool in_space = false;
  for (std::size_t at = 0; at < text.size();) {
    const Character character = character_at(text, at);
    const bool space = is_space(character.code);
    run = space == in_space ? run + 1 : 1;
    in_space = space;
    if (characters == limits.characters) {
      slice(text.substr(begin, at - begin));
      begin = at;
      characters = 0;
      run = 1;
    } else if (run > limits.run) {
      slice(text.substr(begin, at - begin));
      begin = at;
      run = 1;
    }
    ++characters;
    at += character.bytes;
  }
  if (begin < text.size()) slice(text.substr(begin));
}

}  // namespace engine::data
