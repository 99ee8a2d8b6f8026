#include "engine/train/log.h"

#include <nlohmann/json.hpp>
#include <optional>

#include "engine/base/error.h"
#include "engine/base/sha256.h"
#include "engine/data/line_reader.h"
#include "engine/store/at_path.h"

namespace engine::train {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

std::string prev_of(std::string_view line, const std::string& where) {
  const Json parsed = Json::parse(line, nullptr, false);
  if (!parsed.is_object() || !parsed.contains("prev") || !parsed["prev"].is_string()) {
    throw base::Error("{}: not a JSON object with a \"prev\"", where);
  }
  return parsed["prev"];
}

void require_length(const fs::path& log, std::uint64_t bytes, const LogPosition& end) {
  if (bytes < end.bytes) {
    throw base::Error("{}: {} bytes, and the checkpoint was written behind byte {} (line {})",
                      log.string(), bytes, end.bytes, end.lines);
  }
}

}  // namespace

LogPosition check_log(const fs::path& log, const LogPosition* end, const LogVisitor& each) {
  data::LineReader lines(log, kMostLineBytes);
  if (end != nullptr) require_length(log, lines.bytes(), *end);
  const std::uint64_t stop = end != nullptr ? end->bytes : lines.bytes();
  LogPosition at;
  while (at.bytes < stop) {
    const std::string where = fmt::format("{} line {}", log.string(), at.lines + 1);
    const std::string_view line = lines.next()->text;
    if (at.bytes + line.size() == lines.bytes()) throw base::Error("{}: has no end", where);
    const std::string prev = prev_of(line, where);
    if (prev != at.head) {
      throw base::Error("{}: \"prev\" is {}, the line before has SHA-256 {}", where, prev, at.head);
    }
    at = {at.lines + 1, at.bytes + line.size() + 1, base::sha256_hex(line)};
    if (each) each(line, at);
  }
  if (end != nullptr && !(at == *end)) {
    throw base::Error("{}: {} lines, {} bytes, SHA-256 {}; the checkpoint wants {}, {}, {}",
                      log.string(), at.lines, at.bytes, at.head, end->lines, end->bytes, end->head);
  }
  return at;
}

void require_length(const fs::path& log, const LogPosition& end) {
  require_length(log, store::is_there(log) ? store::file_bytes(log) : 0, end);
}

std::string text_of(std::string_view line, const char* name) {
  const Json json = Json::parse(line, nullptr, false);
  if (!json.is_object()) return "";
  const auto found = json.find(name);
  return found != json.end() && found->is_string() ? found->get<std::string>() : "";
}

std::int64_t number_of(std::string_view line, const char* name) {
  const Json json = Json::parse(line, nullptr, false);
  if (!json.is_object()) return -1;
  const auto found = json.find(name);
  return found != json.end() && found->is_number_integer() ? found->get<std::int64_t>() : -1;
}

}  // namespace engine::train
