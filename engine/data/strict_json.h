#pragma once

// Internal to this folder's sources: the JSON library shows here.

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace engine::data {

// One JSON value, after store::require_strict_json.
nlohmann::json parse_strictly(std::string_view text, const std::string& where);

// `object`'s member, of the wanted type. Errors name `where` and the key.
const nlohmann::json& member(const nlohmann::json& object, const char* key,
                             const std::string& where);
std::string string_member(const nlohmann::json& object, const char* key, const std::string& where);
std::int64_t count_member(const nlohmann::json& object, const char* key, const std::string& where);

// A value as a message may show it.
std::string shown(const nlohmann::json& value);

}  // namespace engine::data
