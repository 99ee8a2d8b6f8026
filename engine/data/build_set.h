#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/budget.h"
#include "engine/data/chat.h"
#include "engine/data/filters.h"
#include "engine/data/packing.h"
#include "engine/data/records.h"

namespace engine::data {

// What is done with an exchange of more ids than a sequence has.
//   kRefuse    Error with the number of them and the longest
//   kDrop      left out and counted
//   kTruncate  its first ids, so that the answer has no end and no end is taught; counted. What
//              has no trained id then is left out like a dropped one
enum class TooLong { kRefuse, kDrop, kTruncate };

struct BuildSettings {
  std::filesystem::path records;  // JSON lines
  FieldNames names;
  Filters filters;
  std::vector<std::filesystem::path> not_in;  // sets whose records are left out
  std::optional<std::int64_t> count;          // so many, stratified by category; else all
  std::uint64_t seed = 1;
  bool shuffle = false;  // documents in the random order of the seed, else in that of the file
  std::int64_t length = 0;
  TooLong too_long = TooLong::kRefuse;
  Packing packing = Packing::kFirstFit;
};

struct BuildReport {
  std::int64_t read = 0;
  std::int64_t blank_lines = 0;
  std::int64_t dropped[kReasons] = {};
  std::int64_t truncated = 0;  // of those that are left
  std::int64_t left = 0;
  struct Category {
    std::int64_t left = 0;
    std::int64_t selected = 0;
  };
  std::map<std::string, Category> categories;
  std::int64_t selected = 0;
  std::int64_t sequences = 0;
  std::int64_t ids = 0;
  std::int64_t trained = 0;
  std::string manifest_sha256;

  // "12 read, 3 duplicate, ..." for messages.
  std::string counts() const;
};

// Writes the folder OUT: manifest.json, sequences.bin (packed_set.h) and records.jsonl, which says
// of every document in order which record it is and in which sequence. A function of the input, the
// tokenizer's files and the settings, byte by byte: no paths, no times.
//
// Cost      two passes over the records; about 0.4 KB a record, from the budget
// Errors    Error naming file and line for a bad record; "0 samples" with all counts if nothing
//           trained is left or all of it is shorter than one sequence; nothing is left behind then
BuildReport build_set(const std::filesystem::path& out, const BuildSettings& settings,
                      const Tokenizer& tokenizer, const ChatForm& chat, base::RamBudget& budget);

}  // namespace engine::data
