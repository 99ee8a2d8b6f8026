#include "engine/store/json_text.h"

#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "engine/base/error.h"

namespace engine::store {
namespace {

using base::Error;
using nlohmann::json;

constexpr int kMostLevels = 32;

// Looks at every value and keeps none but the keys of the objects that are open.
class StrictSax final : public json::json_sax_t {
 public:
  explicit StrictSax(const std::string& where) : where_(where) {}

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
  std::vector<std::set<std::string>> keys_;  // of every open object; empty for an array
};

}  // namespace

void require_strict_json(std::string_view text, const std::string& where) {
  StrictSax sax(where);
  json::sax_parse(text.begin(), text.end(), &sax);
}

}  // namespace engine::store
