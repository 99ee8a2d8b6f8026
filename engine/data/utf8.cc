#include "engine/data/utf8.h"

#include <cassert>

#include "engine/base/error.h"

namespace engine::data {

namespace {

bool between(unsigned char byte, int low, int high) { return byte >= low && byte <= high; }

}  // namespace

std::optional<std::size_t> first_invalid_utf8(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  for (std::size_t i = 0; i < text.size();) {
    const unsigned char first = byte(i);
    if (first < 0x80) {
      ++i;
      continue;
    }
    // The second byte is where overlong forms, surrogates and the end of Unicode show.
    int low = 0x80, high = 0xBF;
    std::size_t length = 0;
    if (between(first, 0xC2, 0xDF)) {
      length = 2;
    } else if (between(first, 0xE0, 0xEF)) {
      length = 3;
      if (first == 0xE0) low = 0xA0;
      if (first == 0xED) high = 0x9F;
    } else if (between(first, 0xF0, 0xF4)) {
      length = 4;
      if (first == 0xF0) low = 0x90;
      if (first == 0xF4) high = 0x8F;
    } else {
      return i;
    }
    if (i + length > text.size() || !between(byte(i + 1), low, high)) return i;
    for (std::size_t j = 2; j < length; ++j) {
      if (!between(byte(i + j), 0x80, 0xBF)) return i;
    }
    i += length;
  }
  return std::nullopt;
}

void require_utf8(std::string_view text, std::string_view where) {
  const auto at = first_invalid_utf8(text);
  if (!at) return;
  throw base::Error("{}: byte {} is {:#04x}: not UTF-8", where, *at,
                    static_cast<unsigned char>(text[*at]));
}

Character character_at(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[at + i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return {first, 1};
  const std::size_t bytes = first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  assert(at + bytes <= text.size());
  char32_t code = first & (0x7F >> bytes);
  for (std::size_t i = 1; i < bytes; ++i) code = code << 6 | (byte(i) & 0x3Fu);
  return {code, bytes};
}

std::int64_t count_characters(std::string_view text) {
  std::int64_t count = 0;
  for (const char c : text) count += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  return count;
}

}  // namespace engine::data
