#include "engine/cli/say.h"

#include "engine/data/utf8.h"

namespace engine::cli {
namespace {

bool is_c1_or_del(char32_t code) { return code >= 0x7F && code < 0xA0; }

}  // namespace

std::string harmless(std::string_view text) {
  std::string shown;
  while (!text.empty()) {
    const auto lead = static_cast<unsigned char>(text[0]);
    const std::size_t length = lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    const std::string_view one = text.substr(0, length);
    const bool broken = data::first_invalid_utf8(one).has_value();
    const char32_t code = broken ? 0 : data::character_at(one, 0).code;
    if (broken || (code < 0x20 && code != '\n' && code != '\t') || is_c1_or_del(code)) {
      shown += fmt::format("\\x{:02X}", lead);
      text.remove_prefix(1);
    } else {
      shown += one;
      text.remove_prefix(one.size());
    }
  }
  return shown;
}

void say_json(std::string_view json) {
  std::string shown;
  for (std::size_t at = 0; at < json.size();) {
    const data::Character next = data::character_at(json, at);
    if (is_c1_or_del(next.code)) {
      shown += fmt::format("\\u{:04x}", static_cast<unsigned>(next.code));
    } else {
      shown += json.substr(at, next.bytes);
    }
    at += next.bytes;
  }
  fmt::print("{}", shown);
}

}  // namespace engine::cli
