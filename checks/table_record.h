#pragma once

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

namespace checks {

// What a check program writes with --out FILE: JSON lines, docs/formats.md, Records of checks.
class TableRecord {
 public:
  using Figures = nlohmann::ordered_json;

  // An empty `out`: nothing is written.
  // Errors    std::runtime_error if there is such a file, or it cannot be written
  TableRecord(std::string check, const std::string& out);

  void row(const std::string& table, const std::string& name, const std::string& outcome,
           const Figures& figures = {});
  // The last line.
  // Errors    std::runtime_error if the record is not complete on the disk
  void finish(int passed, int failed, int skipped);

 private:
  std::string check_, path_;
  std::ofstream out_;
};

}  // namespace checks
