#include "engine/train/settings.h"

#include <fmt/ranges.h>

#include <charconv>
#include <cmath>
#include <type_traits>

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
  const char* end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && stopped == end;
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

void require(bool holds, const char* name, const auto& value, const char* range) {
  if (!holds) throw base::Error("setting {} is {}: must be {}", name, value, range);
}

}  // namespace

SettingTexts texts_of(const Settings& settings) {
  SettingTexts texts;
  visit_settings(settings, [&](const char* name, const auto& member, const char*) {
    texts.emplace_back(name, text_of(member));
  });
  return texts;
}

void set(Settings& settings, const std::string& name, const std::string& text) {
  Names known;
  bool found = false;
  visit_settings(settings, [&](const char* candidate, auto& member, const char*) {
    known.emplace_back(candidate);
    if (name != candidate) return;
    found = true;
    if (!parse(text, member)) {
      throw base::Error("setting {}: \"{}\" is not a value for it", name, text);
    }
  });
  if (!found) {
    throw base::Error("there is no setting \"{}\" (there are: {})", name, fmt::join(known, ", "));
  }
}

void require_valid(const Settings& settings) {
  const auto at_least_one = [](const char* name, std::int64_t value) {
    require(value >= 1, name, value, "at least 1");
  };
  const auto not_negative = [](const char* name, double value) {
    require(std::isfinite(value) && value >= 0.0, name, value, "finite and not negative");
  };
  const auto below_one = [](const char* name, double value) {
    require(value >= 0.0 && value < 1.0, name, value, "in [0, 1)");
  };
  const auto positive = [](const char* name, double value) {
    require(std::isfinite(value) && value > 0.0, name, value, "finite and positive");
  };
  at_least_one("steps", settings.schedule.total);
  not_negative("lr", settings.schedule.peak);
  not_negative("min-lr", settings.schedule.floor);
  not_negative("warmup", static_cast<double>(settings.schedule.warmup));
  below_one("beta1", settings.adamw.beta1);
  below_one("beta2", settings.adamw.beta2);
  positive("eps", settings.adamw.eps);
  // As float32 a smaller one is zero or nearly so, and with no gradient yet the update is 0 / 0.
  require(settings.adamw.eps >= 0x1p-126, "eps", settings.adamw.eps,
          "at least 2^-126, the smallest normal float32");
  not_negative("weight-decay", settings.adamw.weight_decay);
  positive("clip", settings.adamw.clip);
  at_least_one("rank", settings.adapter.rank);
  positive("alpha", settings.adapter.alpha);
  not_negative("seed", static_cast<double>(settings.seed));
  at_least_one("sequences", settings.sequences);
  not_negative("mask-first", static_cast<double>(settings.mask_first));
  at_least_one("checkpoint-every", settings.checkpoint_every);
  at_least_one("keep", settings.keep);
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
    if (named) {
      result.changes.push_back({name, saved[i].second, value});
    } else {
      refused += fmt::format("\n  {}: the run has {}, now {}", name, saved[i].second, value);
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
