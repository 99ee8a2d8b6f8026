#include "engine/train/settings.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <type_traits>

#include "engine/base/decimal.h"
#include "engine/base/error.h"

namespace engine::train {
namespace {

using Names = std::vector<std::string>;

template <class Number>
std::string text_of(const Number& value) {
  return fmt::format("{}", value);
}
std::string text_of(const Names& value) { return fmt::format("{}", fmt::join(value, ",")); }

template <class Number>
bool parse(const std::string& text, Number& value) {
  const std::optional<Number> number = base::parse_decimal<Number>(text);
  if (number) value = *number;
  return number.has_value();
}
bool parse(const std::string& text, bool& value) {
  value = text == "true";
  return value || text == "false";
}
bool parse(const std::string& text, Names& value) {
  value.clear();
  std::size_t begin = 0;
  for (std::size_t comma = 0; comma != std::string::npos; begin = comma + 1) {
    comma = text.find(',', begin);
    value.push_back(text.substr(begin, comma - begin));
  }
  return true;
}

template <class Value>
constexpr bool kIsNumber = std::is_same_v<Value, std::int64_t> || std::is_same_v<Value, double>;

template <class Value>
bool within(const Value& value, const Range& range) {
  if constexpr (!kIsNumber<Value>) return true;
  // Within, not beyond: NaN is not.
  else
    return static_cast<double>(value) >= range.least && static_cast<double>(value) <= range.most;
}

template <class Value>
std::string wanted(const Value&, const Range& range) {
  if constexpr (std::is_same_v<Value, std::int64_t>) {
    return fmt::format("a whole decimal number in {}", range.text);
  } else if constexpr (std::is_same_v<Value, double>) {
    return fmt::format("a decimal number, {}", range.text);
  } else {
    return "true or false";
  }
}

// The shapes of adapters and moments, which a checkpoint holds.
bool is_a_shape(const std::string& name) { return name == "rank" || name == "targets"; }

[[noreturn]] void refuse_override(const SettingTexts& now, const std::string& name,
                                  const std::string& saved, const std::string& wanted) {
  Names changeable;
  for (const auto& [other, value] : now) {
    if (!is_a_shape(other)) changeable.push_back(other);
  }
  throw base::Error(
      "--override {}={}: the run's {} is {}, the shape of its adapters, and cannot be overridden "
      "(what can: {}); another {} is another run, with an --out of its own",
      name, wanted, name, saved, fmt::join(changeable, ", "), name);
}

void require_targets(const Names& targets) {
  if (targets.empty()) throw base::Error("targets: none is named");
  for (std::size_t i = 0; i < targets.size(); ++i) {
    const auto& known = model::kTargetNames;
    if (std::find(known.begin(), known.end(), targets[i]) == known.end()) {
      throw base::Error("targets: there is no \"{}\" (there are: {})", targets[i],
                        fmt::join(known, ", "));
    }
    if (std::find(targets.begin(), targets.begin() + static_cast<std::ptrdiff_t>(i), targets[i]) !=
        targets.begin() + static_cast<std::ptrdiff_t>(i)) {
      throw base::Error("targets: \"{}\" is named twice", targets[i]);
    }
  }
}

}  // namespace

SettingTexts texts_of(const Settings& settings) {
  SettingTexts texts;
  visit_settings(settings, [&](const char* name, const auto& member, const Range&, const char*) {
    texts.emplace_back(name, text_of(member));
  });
  return texts;
}

void set(Settings& settings, const std::string& name, const std::string& text) {
  Names known;
  bool found = false;
  visit_settings(
      settings, [&](const char* candidate, auto& member, const Range& range, const char*) {
        known.emplace_back(candidate);
        if (name != candidate) return;
        found = true;
        auto value = member;
        if (!parse(text, value) || !within(value, range)) {
          throw base::Error("{} is \"{}\": must be {}", name, text, wanted(value, range));
        }
        member = std::move(value);
      });
  if (!found) {
    throw base::Error("there is no setting \"{}\" (there are: {})", name, fmt::join(known, ", "));
  }
}

void require_valid(const Settings& settings) {
  visit_settings(
      settings, [](const char* name, const auto& member, const Range& range, const char*) {
        if (within(member, range)) return;
        throw base::Error("{} is {}: must be {}", name, text_of(member), wanted(member, range));
      });
  if (settings.schedule.floor > settings.schedule.peak) {
    throw base::Error("min-lr is {}, lr is {}: the last step's rate is at most the peak",
                      settings.schedule.floor, settings.schedule.peak);
  }
  require_targets(settings.adapter.targets);
}

Resolved resolve(const Settings& given, const SettingTexts& saved, const SettingTexts& overrides) {
  Resolved result{given, {}};
  for (const auto& [name, text] : overrides) set(result.settings, name, text);
  require_valid(result.settings);

  const SettingTexts now = texts_of(result.settings);
  if (saved.size() != now.size()) {
    throw base::Error("{} saved settings, this program has {}", saved.size(), now.size());
  }
  std::string refused;
  for (std::size_t i = 0; i < now.size(); ++i) {
    const auto& [name, value] = now[i];
    if (saved[i].first != name) {
      throw base::Error("saved setting {} is \"{}\", this program has \"{}\"", i, saved[i].first,
                        name);
    }
    if (saved[i].second == value) continue;
    bool named = false;
    for (const auto& [overridden, text] : overrides) named = named || overridden == name;
    if (named && is_a_shape(name)) refuse_override(now, name, saved[i].second, value);
    if (named) {
      result.changes.push_back({name, saved[i].second, value});
    } else {
      refused += fmt::format("\n  {}: the run has {}, now {}{}", name, saved[i].second, value,
                             is_a_shape(name) ? " (cannot be overridden)" : "");
    }
  }
  if (!refused.empty()) {
    throw base::Error(
        "settings differ from those of the run (repeat its command, or name a change with "
        "--override NAME=VALUE):{}",
        refused);
  }
  return result;
}

}  // namespace engine::train
