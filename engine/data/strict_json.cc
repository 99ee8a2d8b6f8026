#include "engine/data/strict_json.h"

#include <limits>

#include "engine/base/error.h"
#include "engine/store/json_text.h"

namespace engine::data {

using base::Error;
using nlohmann::json;

json parse_strictly(std::string_view text, const std::string& where) {
  store::require_strict_json(text, where);
  return json::parse(text.begin(), text.end());
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
