// JSON in which no key may stand twice in one object. nlohmann/json keeps the last of duplicates in
// silence, and then the size that was read is not the size that another reader reads.
#pragma once

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

namespace oracle {

// Errors  throws std::runtime_error naming `where`
inline nlohmann::json parse_strict_json(const std::string& text, const std::string& where) {
  using Event = nlohmann::json::parse_event_t;
  std::vector<std::set<std::string>> open;
  const auto watch = [&](int, Event event, nlohmann::json& parsed) {
    if (event == Event::object_start) open.emplace_back();
    if (event == Event::object_end) open.pop_back();
    if (event == Event::key && !open.back().insert(parsed.get<std::string>()).second) {
      throw std::runtime_error(fmt::format("{}: key {} stands twice", where, parsed.dump()));
    }
    return true;
  };
  try {
    return nlohmann::json::parse(text, watch);
  } catch (const nlohmann::json::exception& e) {
    throw std::runtime_error(fmt::format("{}: {}", where, e.what()));
  }
}

}  // namespace oracle
