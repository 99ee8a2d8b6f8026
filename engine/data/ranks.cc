#include "engine/data/ranks.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "engine/base/error.h"
#include "engine/store/json_text.h"

namespace engine::data {

namespace {

using base::Error;

int value_of(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  if (c == '+') return 62;
  return c == '/' ? 63 : -1;
}

// Strict: whole groups of four, padding only at the end, no bits behind the last byte.
std::optional<std::string> decode_base64(std::string_view text) {
  if (text.empty() || text.size() % 4 != 0) return std::nullopt;
  std::size_t padding = 0;
  while (padding < 2 && text[text.size() - 1 - padding] == '=') ++padding;
  std::string bytes;
  std::uint32_t bits = 0;
  int held = 0;
  for (const char c : text.substr(0, text.size() - padding)) {
    const int value = value_of(c);
    if (value < 0) return std::nullopt;
    bits = bits << 6 | static_cast<std::uint32_t>(value);
    held += 6;
    if (held >= 8) {
      held -= 8;
      bytes.push_back(static_cast<char>(bits >> held));
    }
  }
  if ((bits & ((1u << held) - 1u)) != 0) return std::nullopt;
  return bytes;
}

struct Line {
  std::string bytes;
  std::int64_t number = 0;
};

// What is wrong with a line's form, or its token and rank.
Line parse_line(std::string_view line, const std::string& place, std::int64_t& rank) {
  if (line.ends_with('\r')) {
    throw Error("{}: ends with a carriage return (CRLF), not with a newline alone", place);
  }
  const std::size_t space = line.find(' ');
  if (space == std::string_view::npos) {
    throw Error("{}: \"{}\" is not a token, a space and a rank", place, store::shortened(line));
  }
  const std::string_view number = line.substr(space + 1);
  const auto [end, failed] = std::from_chars(number.data(), number.data() + number.size(), rank);
  if (failed != std::errc() || end != number.data() + number.size() || number.starts_with('-') ||
      (number.size() > 1 && number.starts_with('0'))) {
    throw Error("{}: the rank is \"{}\": not a whole number", place, store::shortened(number));
  }
  auto bytes = decode_base64(line.substr(0, space));
  if (!bytes) {
    throw Error("{}: the token is \"{}\": not base64", place,
                store::shortened(line.substr(0, space)));
  }
  return {std::move(*bytes), 0};
}

// The released file has 163,584 lines. A rank below the number of lines has its place before the
// file is read to the end; a file of newlines must not ask for a place each without limit.
constexpr std::int64_t kMostLines = std::int64_t{1} << 21;

std::int64_t count_lines(std::string_view text, const std::string& where) {
  const std::int64_t lines = 1 + std::count(text.begin(), text.end(), '\n');
  if (lines > kMostLines) {
    throw Error("{}: {} lines, a vocabulary has at most {}", where, lines, kMostLines);
  }
  return lines;
}

}  // namespace

Ranks::Ranks(std::string_view text, const std::string& where) {
  const std::int64_t most = count_lines(text, where);
  std::vector<Line> by_rank(static_cast<std::size_t>(most));
  std::int64_t tokens = 0, highest = -1, highest_line = 0, number = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = text.substr(begin, end - begin);
    begin = end + 1;
    ++number;
    if (line.find_first_not_of(" \t") == std::string_view::npos) continue;
    const std::string place = fmt::format("{}: line {}", where, number);
    std::int64_t rank = 0;
    Line read = parse_line(line, place, rank);
    if (rank >= most) {
      throw Error(
          "{}: rank {} leaves a gap: the file has {} lines, ranks are 0, 1, 2 ... without one",
          place, rank, most);
    }
    Line& slot = by_rank[static_cast<std::size_t>(rank)];
    if (slot.number != 0) {
      throw Error("{}: rank {} stands in line {} as well", place, rank, slot.number);
    }
    slot = {std::move(read.bytes), number};
    ++tokens;
    if (rank > highest) {
      highest = rank;
      highest_line = number;
    }
  }
  if (highest + 1 != tokens) {
    std::size_t missing = 0;
    while (by_rank[missing].number != 0) ++missing;
    throw Error("{}: line {}: rank {}, but no line has rank {}: {} tokens have the ranks 0 ... {}",
                where, highest_line, highest, missing, tokens, tokens - 1);
  }

  by_rank.resize(static_cast<std::size_t>(tokens));
  std::size_t bytes = 0;
  for (const Line& line : by_rank) bytes += line.bytes.size();
  pool_.reserve(bytes);
  tokens_.reserve(by_rank.size());
  ranks_.reserve(by_rank.size());
  for (const Line& line : by_rank) {
    const std::size_t begin = pool_.size();
    pool_ += line.bytes;
    const std::string_view token(pool_.data() + begin, line.bytes.size());
    const auto [other, is_new] = ranks_.emplace(token, size());
    if (!is_new) {
      const std::int64_t before = by_rank[static_cast<std::size_t>(other->second)].number;
      throw Error("{}: line {}: the same token stands in line {}", where,
                  std::max(line.number, before), std::min(line.number, before));
    }
    tokens_.push_back(token);
    longest_ = std::max(longest_, token.size());
  }
  for (int byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    if (find({&c, 1}) < 0) {
      throw Error("{}: line {} is the last and byte {:#04x} has no token of its own", where, number,
                  byte);
    }
  }
}

}  // namespace engine::data
