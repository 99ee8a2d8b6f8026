#include "reports/evidence_lines.h"

#include <fstream>

#include "engine/base/error.h"

namespace reports {

using engine::base::Error;

std::string step(const std::string& key) {
  std::string text = "/";
  for (const char c : key) text += c == '~' ? "~0" : c == '/' ? "~1" : std::string(1, c);
  return text;
}

EvidenceLines::EvidenceLines(const std::string& path) : path_(path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw Error("{}: cannot be opened", path);
  std::string text;
  for (std::string line; std::getline(file, line); text += line + "\n") lines_.push_back(line);
  try {
    json_ = nlohmann::ordered_json::parse(text);
    if (json_.dump(1) + "\n" != text) throw Error("{}: is not laid out one value a line", path);
  } catch (const nlohmann::json::exception& wrong) {
    throw Error("{}: {}", path, wrong.what());
  }
  std::size_t line = 1;
  walk(json_, "", line);
}

void EvidenceLines::walk(const nlohmann::ordered_json& value, const std::string& pointer,
                         std::size_t& line) {
  line_of_[pointer] = static_cast<std::int64_t>(line);
  if (!value.is_structured() || value.empty()) return;
  std::size_t i = 0;
  for (const auto& [key, member] : value.items()) {
    ++line;
    walk(member, pointer + (value.is_array() ? "/" + std::to_string(i++) : step(key)), line);
  }
  ++line;  // the closing bracket
}

std::int64_t EvidenceLines::line_of(const std::string& pointer) const {
  const auto found = line_of_.find(pointer);
  if (found == line_of_.end()) throw Error("{}: there is no {}", path_, pointer);
  return found->second;
}

const nlohmann::ordered_json& EvidenceLines::at(const std::string& pointer) const {
  line_of(pointer);
  return json_.at(nlohmann::ordered_json::json_pointer(pointer));
}

}  // namespace reports
