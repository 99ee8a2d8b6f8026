#include <gmock/gmock.h>

#include <limits>
#include <string>
#include <tuple>

#include "checks/train/toy.h"
#include "engine/train/settings.h"

namespace {

using checks::why_refused;
using engine::train::Settings;
using testing::AllOf;
using testing::HasSubstr;

Settings valid() { return checks::toy_job("x").settings; }

std::string refusal(const std::string& name, const std::string& text) {
  Settings settings = valid();
  const auto before = engine::train::texts_of(settings);
  const std::string why = why_refused([&] { engine::train::set(settings, name, text); });
  if (!why.empty()) {
    EXPECT_EQ(engine::train::texts_of(settings), before) << name << " was set all the same";
  }
  return why;
}

TEST(Settings, EveryTextGivesItsValueBack) {
  Settings settings = valid();
  settings.adamw.eps = 1.0 / 3e9;
  settings.strict = true;
  settings.seed = std::numeric_limits<std::int64_t>::max();
  Settings back;
  const auto texts = engine::train::texts_of(settings);
  EXPECT_EQ(texts.size(), 19u);
  for (const auto& [name, text] : texts) engine::train::set(back, name, text);
  EXPECT_EQ(engine::train::texts_of(back), texts);
  EXPECT_EQ(back.adamw.eps, settings.adamw.eps);
  EXPECT_EQ(back.adapter.targets, settings.adapter.targets);
}

// Name, text and range stand in every refusal.
TEST(Settings, NumbersAreDecimalAndInTheirRange) {
  for (const auto& [name, text, range] : {
           std::tuple("steps", "0", "1 ... 1000000000000"),
           std::tuple("steps", "1e3", "whole"),
           std::tuple("steps", "99999999999999999999", "whole"),
           std::tuple("steps", "0x10", "whole"),
           std::tuple("warmup", "-1", "0 ... 1000000000000"),
           std::tuple("seed", "-1", "0 ... 9223372036854775807"),
           std::tuple("seed", "9223372036854775808", "0 ... 9223372036854775807"),
           std::tuple("rank", "0", "1 ... 1000000"),
           std::tuple("rank", "16.0", "whole"),
           std::tuple("sequences", "100000000", "1 ... 1000000"),
           std::tuple("mask-first", "-1", "0 ... "),
           std::tuple("keep", "", "whole"),
           std::tuple("checkpoint-every", "5 ", "whole"),
           std::tuple("lr", "nan", "finite"),
           std::tuple("lr", "inf", "finite"),
           std::tuple("lr", "0x1p-3", "decimal"),
           std::tuple("lr", "-1e-4", "not negative"),
           std::tuple("beta1", "1", "below 1"),
           std::tuple("eps", "1e-46", "2^-126"),
           std::tuple("clip", "0", "positive"),
           std::tuple("strict", "yes", "true or false"),
       }) {
    EXPECT_THAT(refusal(name, text),
                AllOf(HasSubstr(name), HasSubstr("\"" + std::string(text)), HasSubstr(range)))
        << name << "=" << text;
  }
  EXPECT_EQ(refusal("rank", "010"), "");
  Settings settings = valid();
  engine::train::set(settings, "rank", "010");
  EXPECT_EQ(settings.adapter.rank, 10) << "octal";
}

TEST(Settings, WhatDisagreesWithTheOthersIsRefused) {
  Settings settings = valid();
  settings.schedule.floor = 2 * settings.schedule.peak;
  EXPECT_THAT(why_refused([&] { require_valid(settings); }),
              AllOf(HasSubstr("min-lr is 0.02"), HasSubstr("lr is 0.01")));
  settings = valid();
  settings.adapter.targets = {"q", "o"};
  EXPECT_THAT(why_refused([&] { require_valid(settings); }),
              AllOf(HasSubstr("\"o\""), HasSubstr("shared_down")));
  settings.adapter.targets = {"q", "v", "q"};
  EXPECT_THAT(why_refused([&] { require_valid(settings); }), HasSubstr("twice"));
  settings.adapter.targets = {};
  EXPECT_THAT(why_refused([&] { require_valid(settings); }), HasSubstr("none"));
}

TEST(Settings, PlantedFaults) {
  EXPECT_EQ(why_refused([&] { require_valid(valid()); }), "")
      << "the refusals come from the change";
  // A range that asks whether the value is beyond it lets this one through.
  Settings settings = valid();
  settings.schedule.peak = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THAT(why_refused([&] { require_valid(settings); }), HasSubstr("lr is nan"));
}

}  // namespace
