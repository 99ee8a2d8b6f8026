#include "engine/data/utf8_stream.h"

#include "engine/data/utf8.h"

namespace engine::data {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

// Bytes of the character that a byte begins; 0: none.
std::size_t length_of(unsigned char lead) {
  if (lead < 0xC2 || lead > 0xF4) return 0;
  return lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
}

// Whether more bytes could make `tail`, which is no character, the beginning of one. From the third
// byte on anything goes that continues; the second has narrower bounds, which first_invalid_utf8
// knows.
bool may_become_whole(std::string_view tail) {
  const std::size_t length = length_of(static_cast<unsigned char>(tail[0]));
  if (tail.size() >= length) return false;
  if (tail.size() == 1) return true;
  return !first_invalid_utf8(std::string(tail).append(length - tail.size(), '\x80'));
}

}  // namespace

std::string Utf8Stream::push(std::string_view bytes) {
  held_ += bytes;
  std::string whole;
  std::string_view left = held_;
  while (const auto bad = first_invalid_utf8(left)) {
    whole += left.substr(0, *bad);
    left.remove_prefix(*bad);
    if (may_become_whole(left)) {
      held_ = std::string(left);
      return whole;
    }
    whole += kReplacement;
    left.remove_prefix(1);
  }
  whole += left;
  held_.clear();
  return whole;
}

std::string Utf8Stream::finish() {
  std::string text;
  for (std::size_t i = 0; i < held_.size(); ++i) text += kReplacement;
  held_.clear();
  return text;
}

}  // namespace engine::data
