#include "engine/data/records.h"

#include <nlohmann/json.hpp>
#include <set>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/sha256.h"
#include "engine/store/json_text.h"

namespace engine::data {

namespace {

using base::Error;
using nlohmann::json;

constexpr std::size_t kMostLevels = 16;

// Takes four strings out of an object and builds nothing of the rest.
class RecordSax : public nlohmann::json_sax<json> {
 public:
  RecordSax(Record& record, const FieldNames& names, const std::string& where)
      : where_(where),
        fields_{{&names.instruction, &record.instruction, true},
                {&names.context, &record.context, false},
                {&names.response, &record.response, true},
                {&names.category, &record.category, false}} {}

  bool null() override {
    // "context": null is how some writers say that there is none.
    if (const Field* field = wanted(); field != nullptr && field->required) refuse("null");
    return true;
  }
  bool boolean(bool value) override { return other(value ? "true" : "false"); }
  bool number_integer(std::int64_t value) override { return other(std::to_string(value)); }
  bool number_unsigned(std::uint64_t value) override { return other(std::to_string(value)); }
  bool number_float(double, const std::string& text) override { return other(text); }
  bool binary(json::binary_t&) override { return other("binary"); }
  bool string(std::string& value) override {
    require_object();
    if (Field* field = wanted()) {
      *field->value = std::move(value);
      field->found = true;
    }
    return true;
  }
  bool start_object(std::size_t) override {
    if (!keys_.empty()) other("an object");
    return open();
  }
  bool start_array(std::size_t) override {
    other("an array");
    return open();
  }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(std::string& value) override {
    if (!keys_.back().insert(value).second) {
      throw Error("{}: the key \"{}\" stands twice in one object", where_, store::shortened(value));
    }
    if (keys_.size() == 1) key_ = value;
    return true;
  }
  bool parse_error(std::size_t position, const std::string&,
                   const json::exception& exception) override {
    throw Error("{}: at byte {} of the line: not valid JSON: {}", where_,
                position > 0 ? position - 1 : 0, store::json_reason(exception.what()));
  }

  void finish() const {
    for (const Field& field : fields_) {
      if (field.required && !field.found) throw Error("{}: has no \"{}\"", where_, *field.name);
    }
  }

 private:
  struct Field {
    const std::string* name;
    std::string* value;
    bool required;
    bool found = false;
  };

  [[noreturn]] void refuse(const std::string& value) const {
    throw Error("{}: \"{}\" is {}, not a string", where_, store::shortened(key_), value);
  }
  void require_object() const {
    if (keys_.empty()) throw Error("{}: is not a JSON object", where_);
  }
  // The wanted field whose value comes now; null in other fields and deeper down.
  Field* wanted() {
    if (keys_.size() != 1) return nullptr;
    for (Field& field : fields_) {
      if (*field.name == key_) return &field;
    }
    return nullptr;
  }
  bool other(const std::string& value) {
    require_object();
    if (wanted() != nullptr) refuse(value);
    return true;
  }
  bool open() {
    if (keys_.size() == kMostLevels) {
      throw Error("{}: nests deeper than {} levels", where_, kMostLevels);
    }
    keys_.emplace_back();
    return true;
  }
  bool close() {
    keys_.pop_back();
    return true;
  }

  const std::string& where_;
  std::vector<Field> fields_;
  std::vector<std::set<std::string>> keys_;  // [level], of an array empty
  std::string key_;                          // at the first level
};

}  // namespace

std::string Record::digest() const {
  base::Sha256 hash;
  for (const std::string* part : {&instruction, &context, &response}) {
    hash.update(fmt::format("{}:", part->size()));
    hash.update(*part);
  }
  return hash.hex();
}

std::string Record::question() const {
  return context.empty() ? instruction : instruction + "\n\n" + context;
}

Record parse_record(std::string_view line, const FieldNames& names, const std::string& where) {
  // The library passes over a mark at the begin of whatever it parses.
  if (line.starts_with("\xEF\xBB\xBF")) throw Error("{}: begins with a byte order mark", where);
  Record record;
  RecordSax sax(record, names, where);
  json::sax_parse(line.begin(), line.end(), &sax);
  sax.finish();
  return record;
}

RecordReader::RecordReader(std::filesystem::path path, FieldNames names)
    : path_(std::move(path)), names_(std::move(names)), lines_(path_) {
  const std::string* all[] = {&names_.instruction, &names_.context, &names_.response,
                              &names_.category};
  for (const std::string* one : all) {
    for (const std::string* other : all) {
      if (one != other && *one == *other) {
        throw Error("two fields of a record are called \"{}\"", *one);
      }
    }
  }
}

std::optional<RecordReader::Entry> RecordReader::next() {
  while (const auto line = lines_.next()) {
    if (line->text.find_first_not_of(" \t\r") == std::string_view::npos) {
      ++blank_;
      continue;
    }
    const std::string where =
        fmt::format("{}: line {} at byte {}", path_.string(), line->number, line->offset);
    return Entry{line->number, line->offset, line->text.size(),
                 parse_record(line->text, names_, where)};
  }
  return std::nullopt;
}

}  // namespace engine::data
