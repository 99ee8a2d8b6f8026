#include "engine/store/json_text.h"

#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "engine/base/error.h"
#include "engine/store/file.h"

namespace engine::store {
namespace {

using base::Error;
using nlohmann::json;

constexpr int kMostLevels = 32;

// Looks at every value and keeps none but the keys of the objects that are open.
class StrictSax final : public json::json_sax_t {
 public:
  StrictSax(const std::string& where, std::size_t bytes) : where_(where), bytes_(bytes) {}

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(json::number_integer_t) override { return true; }
  bool number_unsigned(json::number_unsigned_t) override { return true; }
  bool number_float(json::number_float_t, const std::string&) override { return true; }
  bool string(std::string&) override { return true; }
  bool binary(json::binary_t&) override { return true; }
  bool start_object(std::size_t) override { return enter(); }
  bool end_object() override { return leave(); }
  bool start_array(std::size_t) override { return enter(); }
  bool end_array() override { return leave(); }
  bool key(std::string& name) override {
    if (keys_.back().insert(name).second) return true;
    throw Error("{}: the key \"{}\" stands twice in one object", where_, shortened(name));
  }
  bool parse_error(std::size_t position, const std::string&,
                   const json::exception& error) override {
    if (position > bytes_) {
      throw Error("{}: not valid JSON: it ends at byte {}, before its value does", where_, bytes_);
    }
    throw Error("{}: at byte {}: not valid JSON: {}", where_, position > 0 ? position - 1 : 0,
                json_reason(error.what()));
  }

 private:
  bool enter() {
    if (keys_.size() == kMostLevels) {
      throw Error("{}: nests deeper than {} levels", where_, kMostLevels);
    }
    keys_.emplace_back();
    return true;
  }
  bool leave() {
    keys_.pop_back();
    return true;
  }

  const std::string& where_;
  std::size_t bytes_;
  std::vector<std::set<std::string>> keys_;  // of every open object; empty for an array
};

}  // namespace

std::string json_reason(std::string_view what) {
  const std::size_t numbering = what.find("] ");
  if (numbering != std::string_view::npos) what.remove_prefix(numbering + 2);
  constexpr std::string_view kRule = "syntax error while parsing ";
  const std::size_t rule = what.find(kRule);
  if (rule == std::string_view::npos) return shortened(what);
  what.remove_prefix(what.find(" - ", rule) + 3);
  return shortened(what.substr(0, what.rfind("; expected ")));
}

void require_strict_json(std::string_view text, const std::string& where) {
  if (text.find_first_not_of(" \t\r\n") == std::string_view::npos) {
    throw Error("{}: not valid JSON: it is empty ({} bytes)", where, text.size());
  }
  // The parser would take it for the end, and what is behind it for nothing.
  if (const std::size_t nul = text.find('\0'); nul != std::string_view::npos) {
    throw Error("{}: at byte {}: not valid JSON: a NUL", where, nul);
  }
  StrictSax sax(where, text.size());
  json::sax_parse(text.begin(), text.end(), &sax);
}

std::string read_json_text(const std::filesystem::path& path, std::uint64_t limit_bytes) {
  std::string text = read_text(path, limit_bytes);
  require_strict_json(text, path.string());
  return text;
}

}  // namespace engine::store
