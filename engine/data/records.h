#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "engine/data/line_reader.h"

namespace engine::data {

// What the fields of a record are called in its file.
struct FieldNames {
  std::string instruction = "instruction";
  std::string context = "context";
  std::string response = "response";
  std::string category = "category";
};

// One instruction and its answer. A record that lacks context or category has empty ones.
struct Record {
  std::string instruction;
  std::string context;
  std::string response;
  std::string category;

  // SHA-256 of instruction, context and response with their lengths: what makes two records the
  // same one, whatever file, line, field names or category they have.
  std::string digest() const;
  // What is asked: the instruction, and behind an empty line the context if there is one.
  std::string question() const;
};

// The object on one line: strings under the wanted names, anything under others.
// Errors    Error naming `where` and the byte: not one JSON object, a key that stands twice in an
//           object, more than 16 levels, a byte order mark, text that is not UTF-8, a wanted field
//           that is no string, instruction or response missing
Record parse_record(std::string_view line, const FieldNames& names, const std::string& where);

// The records of a JSON lines file in order.
class RecordReader {
 public:
  struct Entry {
    std::int64_t line = 0;
    std::uint64_t offset = 0;
    std::size_t bytes = 0;
    Record record;
  };

  RecordReader(std::filesystem::path path, FieldNames names);

  // Nothing at the end. Lines of nothing but spaces and tabs are passed over and counted.
  // Errors    those of LineReader and parse_record, naming file, line and offset
  std::optional<Entry> next();

  std::int64_t blank_lines() const { return blank_; }
  std::uint64_t bytes() const { return lines_.bytes(); }
  std::string sha256() { return lines_.sha256(); }  // once the end was reached

 private:
  std::filesystem::path path_;
  FieldNames names_;
  LineReader lines_;
  std::int64_t blank_ = 0;
};

}  // namespace engine::data
