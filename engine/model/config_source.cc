#include "engine/model/config_source.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <set>

#include "engine/base/error.h"
#include "engine/store/json_text.h"

namespace engine::model {
namespace {

using base::Error;
using Json = ConfigSource::Json;

std::string shown(const Json& value) {
  std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (text.size() > 60) text = text.substr(0, 60) + "...";
  return text;
}

Json parse(const std::string& text, const std::string& where) {
  store::require_strict_json(text, where);
  return Json::parse(text);
}

std::string name_of(const Field& field) {
  std::string name;
  const auto add = [&](std::string_view prefix, std::string_view part) {
    if (part.empty()) return;
    name += fmt::format("{}{}{}", name.empty() ? "" : " or ", prefix, part);
  };
  add("linear_attn_config.", field.linear);
  add("", field.text);
  add("", field.alias);
  return name;
}

}  // namespace

ConfigSource::ConfigSource(const std::string& text, std::string where)
    : where_(std::move(where)), root_(parse(text, where_)) {
  if (!root_.is_object()) throw Error("{}: is {}, not an object", where_, shown(root_));
  text_blocks_.emplace_back("", &root_);
  const auto add = [&](auto& blocks, const std::string& prefix, const Json& parent,
                       const std::string& name) {
    const auto found = parent.find(name);
    if (found == parent.end()) return;
    if (!found->is_object()) {
      throw Error("{}: {}{} is {}, not an object", where_, prefix, name, shown(*found));
    }
    blocks.emplace_back(prefix + name + ".", &*found);
  };
  add(text_blocks_, "", root_, "text_config");
  for (const auto& [prefix, block] : text_blocks_) {
    add(linear_blocks_, prefix, *block, "linear_attn_config");
  }
}

void ConfigSource::report(const std::string& message) {
  findings_.push_back({store::Severity::kError, where_, "", std::nullopt, message});
}

void ConfigSource::refuse(const Field& field, const std::string& message) {
  report(fmt::format("{} {}", name_of(field), message));
}

std::optional<ConfigSource::Found> ConfigSource::find(const Field& field) {
  Found first;
  bool agree = true;
  const auto look = [&](const auto& blocks, std::string_view name) {
    if (name.empty()) return;
    for (const auto& [prefix, block] : blocks) {
      const auto found = block->find(std::string(name));
      if (found == block->end()) continue;
      const std::string path = prefix + std::string(name);
      if (first.value == nullptr) {
        first = {path, &*found};
      } else if (*first.value != *found) {
        report(fmt::format("{} is {}, but {} is {}", first.path, shown(*first.value), path,
                           shown(*found)));
        agree = false;
      }
    }
  };
  look(text_blocks_, field.text);
  look(text_blocks_, field.alias);
  look(linear_blocks_, field.linear);
  return agree ? std::optional(first) : std::nullopt;
}

std::optional<ConfigSource::Found> ConfigSource::require(const Field& field) {
  std::optional<Found> found = find(field);
  if (!found || found->value != nullptr) return found;
  refuse(field, "is missing; it is required, there is no default for it");
  return std::nullopt;
}

std::optional<std::int64_t> ConfigSource::integer(const Field& field, std::int64_t low,
                                                  std::int64_t high) {
  const std::optional<Found> found = require(field);
  if (!found) return std::nullopt;
  if (!found->value->is_number_integer()) {
    report(fmt::format("{} is {}, not an integer", found->path, shown(*found->value)));
    return std::nullopt;
  }
  // An unsigned number above 2^63 would turn negative.
  const bool huge = found->value->is_number_unsigned() &&
                    found->value->get<std::uint64_t>() >
                        static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  const std::int64_t value = huge ? 0 : found->value->get<std::int64_t>();
  if (huge || value < low || value > high) {
    report(
        fmt::format("{} is {}, outside {} ... {}", found->path, shown(*found->value), low, high));
    return std::nullopt;
  }
  return value;
}

std::optional<float> ConfigSource::number(const Field& field) {
  const std::optional<Found> found = require(field);
  if (!found) return std::nullopt;
  if (!found->value->is_number()) {
    report(fmt::format("{} is {}, not a number", found->path, shown(*found->value)));
    return std::nullopt;
  }
  const double exact = found->value->get<double>();
  if (!(std::abs(exact) <= static_cast<double>(std::numeric_limits<float>::max()))) {
    report(fmt::format("{} is {}, outside float32's range", found->path, shown(*found->value)));
    return std::nullopt;
  }
  return static_cast<float>(exact);
}

float ConfigSource::positive(const Field& field) {
  const std::optional<float> value = number(field);
  if (value && !(*value > 0.0f)) refuse(field, fmt::format("is {}, not above 0", *value));
  return value.value_or(0.0f);
}

bool ConfigSource::flag_or(const Field& field, bool otherwise) {
  const std::optional<Found> found = find(field);
  if (!found || found->value == nullptr) return otherwise;
  if (!found->value->is_boolean()) {
    report(fmt::format("{} is {}, neither true nor false", found->path, shown(*found->value)));
    return otherwise;
  }
  return found->value->get<bool>();
}

std::optional<std::vector<std::int64_t>> ConfigSource::layers(const Field& field, std::int64_t high,
                                                              bool required) {
  const std::optional<Found> found = required ? require(field) : find(field);
  if (!found || found->value == nullptr) return std::nullopt;
  if (!found->value->is_array()) {
    report(fmt::format("{} is {}, not a list", found->path, shown(*found->value)));
    return std::nullopt;
  }
  std::vector<std::int64_t> list;
  std::set<std::int64_t> seen;
  for (const Json& entry : *found->value) {
    const bool inside = entry.is_number_unsigned() && entry.get<std::uint64_t>() >= 1 &&
                        entry.get<std::uint64_t>() <= static_cast<std::uint64_t>(high);
    if (!inside) {
      report(fmt::format("{} holds {}; layers are counted from 1 to {}", found->path, shown(entry),
                         high));
      return std::nullopt;
    }
    list.push_back(entry.get<std::int64_t>());
    if (!seen.insert(list.back()).second) {
      report(fmt::format("{} holds layer {} twice", found->path, list.back()));
      return std::nullopt;
    }
  }
  return list;
}

std::vector<std::pair<std::string, const Json*>> ConfigSource::blocks(std::string_view name) const {
  std::vector<std::pair<std::string, const Json*>> result;
  for (const auto& [prefix, block] : text_blocks_) {
    const auto found = block->find(std::string(name));
    if (found != block->end()) result.emplace_back(prefix + std::string(name), &*found);
  }
  return result;
}

void ConfigSource::require_if_present(std::string_view name, const Json& only) {
  for (const auto* blocks : {&text_blocks_, &linear_blocks_}) {
    for (const auto& [prefix, block] : *blocks) {
      const auto found = block->find(std::string(name));
      if (found == block->end() || *found == only) continue;
      report(fmt::format("{}{} is {}; only {} is supported", prefix, name, shown(*found),
                         shown(only)));
    }
  }
}

}  // namespace engine::model
