#include "engine/data/strict_json.h"

#include <limits>
#include <set>
#include <vector>

#include "engine/base/error.h"
#include "engine/store/json_text.h"

namespace engine::data {

using base::Error;
using nlohmann::json;

namespace {

constexpr int kMostLevels = 16;

}  // namespace

json parse_strictly(std::string_view text, const std::string& where) {
  std::vector<std::set<std::string>> keys;
  const auto watch = [&](int depth, json::parse_event_t event, json& parsed) {
    if (depth > kMostLevels) throw Error("{}: nests deeper than {} levels", where, kMostLevels);
    if (event == json::parse_event_t::object_start) keys.emplace_back();
    if (event == json::parse_event_t::object_end) keys.pop_back();
    if (event == json::parse_event_t::key &&
        !keys.back().insert(parsed.get<std::string>()).second) {
      throw Error("{}: the key {} stands twice in one object", where, shown(parsed));
    }
    return true;
  };
  try {
    return json::parse(text.begin(), text.end(), watch);
  } catch (const json::parse_error& error) {
    throw Error("{}: at byte {}: not valid JSON: {}", where, error.byte > 0 ? error.byte - 1 : 0,
                store::json_reason(error.what()));
  } catch (const json::exception& error) {
    throw Error("{}: not valid JSON: {}", where, store::json_reason(error.what()));
  }
}

const json& member(const json& object, const char* key, const std::string& where) {
  if (!object.is_object()) throw Error("{}: {} is not an object", where, shown(object));
  const auto found = object.find(key);
  if (found == object.end()) throw Error("{}: has no {}", where, key);
  return *found;
}

std::string string_member(const json& object, const char* key, const std::string& where) {
  const json& value = member(object, key, where);
  if (!value.is_string()) throw Error("{}: {} is {}, not a string", where, key, shown(value));
  return value.get<std::string>();
}

std::int64_t count_member(const json& object, const char* key, const std::string& where) {
  const json& value = member(object, key, where);
  constexpr auto kMost = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  if (!value.is_number_unsigned() || value.get<std::uint64_t>() > kMost) {
    throw Error("{}: {} is {}, not a count", where, key, shown(value));
  }
  return value.get<std::int64_t>();
}

std::string shown(const json& value) {
  return store::shortened(value.dump(-1, ' ', false, json::error_handler_t::replace));
}

}  // namespace engine::data
