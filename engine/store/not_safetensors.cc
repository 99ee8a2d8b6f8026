#include "engine/store/not_safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "engine/store/json_text.h"

namespace engine::store {
namespace {

// UTF-8 has no byte above 0xF7.
bool is_text(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return (byte >= 0x20 && byte <= 0xF7) || byte == '\t' || byte == '\n' || byte == '\r';
}

// The rest of the line that begins with `key` and a space.
std::string line_value(std::string_view text, std::string_view key) {
  const std::string wanted = fmt::format("\n{} ", key);
  const std::size_t at = text.find(wanted);
  if (at == std::string_view::npos) return "not given";
  const std::string_view rest = text.substr(at + wanted.size());
  return shortened(rest.substr(0, rest.find_first_of("\r\n")));
}

bool is_html(std::string_view text) {
  std::string lower(text.substr(0, 256));
  std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return std::tolower(c); });
  return lower.find("<!doctype html") != std::string::npos ||
         lower.find("<html") != std::string::npos;
}

}  // namespace

std::optional<std::string> kind_of_text(std::string_view start) {
  if (start.size() < 8 || !std::ranges::all_of(start.substr(0, 8), is_text)) return std::nullopt;
  if (start.starts_with("version http")) {
    return fmt::format(
        "this is a Git LFS pointer (oid {}, size {}), not data: fetch the file itself, for "
        "instance "
        "with `git lfs pull`",
        line_value(start, "oid"), line_value(start, "size"));
  }
  if (is_html(start)) {
    return "this is an HTML page, not data: probably an error page saved in place of the file";
  }
  return fmt::format("this is text, not data; it begins \"{}\"", shortened(start));
}

}  // namespace engine::store
