#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace reports {

// A JSON file, line by line, and on which line every value of it stands.
class EvidenceLines {
 public:
  // Errors    Error if the file cannot be read or is not laid out as the program lays it out: one
  //           value a line, indented by one space
  explicit EvidenceLines(const std::string& path);

  const nlohmann::ordered_json& json() const { return json_; }
  const std::vector<std::string>& lines() const { return lines_; }
  // From 1; `pointer` as in "/results/text:a.txt/loss,none".
  // Errors    Error if there is no such value
  std::int64_t line_of(const std::string& pointer) const;
  const nlohmann::ordered_json& at(const std::string& pointer) const;

 private:
  void walk(const nlohmann::ordered_json& value, const std::string& pointer, std::size_t& line);

  std::string path_;
  nlohmann::ordered_json json_;
  std::vector<std::string> lines_;
  std::map<std::string, std::int64_t> line_of_;
};

// One step of a pointer: '~' and '/' are written "~0" and "~1".
std::string step(const std::string& key);

}  // namespace reports
