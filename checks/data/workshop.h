#pragma once

#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "checks/data/tokenizer_folder.h"
#include "engine/data/build_set.h"
#include "engine/data/packed_set.h"

namespace checks {

// One line of a records file.
inline std::string record(const std::string& question, const std::string& answer,
                          const std::string& category = "qa") {
  const nlohmann::json json = {
      {"instruction", question}, {"context", ""}, {"response", answer}, {"category", category}};
  return json.dump() + '\n';
}

inline std::string twenty_records() {
  std::string text;
  for (int i = 0; i < 20; ++i) {
    text += record("Which number comes after " + std::to_string(i) + "?",
                   "After it comes " + std::to_string(i + 1) + ".", i % 4 == 0 ? "count" : "qa");
  }
  return text;
}

// A folder with records.jsonl, and what is built of it.
class Workshop {
 public:
  explicit Workshop(const std::string& records = twenty_records())
      : tokenizer_(folder_.open()), chat_(tokenizer_, folder_.path()) {
    write_bytes(scratch_ / "records.jsonl", records);
    settings.records = scratch_ / "records.jsonl";
    settings.length = 192;  // two records and not three
  }
  engine::data::BuildReport build(const std::string& name) {
    engine::base::RamBudget budget(std::uint64_t{1} << 28);
    return engine::data::build_set(path(name), settings, tokenizer_, chat_, budget);
  }
  std::string why_not(const std::string& name) {
    return refusal([&] { build(name); });
  }
  engine::data::PackedSet open(const std::string& name) {
    return engine::data::PackedSet(path(name), budget_);
  }
  std::filesystem::path path(const std::string& name) const { return scratch_ / name; }
  const engine::data::Tokenizer& tokenizer() const { return tokenizer_; }
  const engine::data::ChatForm& chat() const { return chat_; }
  std::set<std::string> records_of(const std::string& name) {
    std::set<std::string> all;
    open(name).for_each_record([&](const std::string& digest) { all.insert(digest); });
    return all;
  }

  engine::data::BuildSettings settings;

 private:
  TokenizerFolder folder_;
  engine::data::Tokenizer tokenizer_;
  engine::data::ChatForm chat_;
  ScratchFolder scratch_;
  engine::base::RamBudget budget_{std::uint64_t{1} << 28};
};

}  // namespace checks
