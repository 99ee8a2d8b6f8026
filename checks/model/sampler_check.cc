#include <gmock/gmock.h>

#include <cmath>
#include <limits>
#include <map>

#include "engine/base/error.h"
#include "engine/model/sampler.h"

namespace {

using engine::base::RamBudget;
using engine::model::Sampler;
using engine::model::SamplingSettings;

std::map<std::int32_t, int> draws(const SamplingSettings& settings,
                                  const std::vector<float>& logits, int count) {
  RamBudget budget(1 << 20);
  Sampler sampler(settings, std::ssize(logits), budget);
  std::map<std::int32_t, int> found;
  for (int step = 0; step < count; ++step) {
    std::ranges::copy(logits, sampler.logits().begin());
    ++found[sampler.choose(static_cast<std::uint64_t>(step))];
  }
  return found;
}

using testing::ElementsAre;
using testing::Pair;

TEST(Sampler, GreedyTakesTheSmallestIdOfEqualLogits) {
  EXPECT_THAT(draws({}, {1.0f, 3.0f, 2.0f, 3.0f}, 5), ElementsAre(Pair(1, 5)));
  EXPECT_THAT(draws({}, {-0.0f, 0.0f}, 1), ElementsAre(Pair(0, 1)));
}

// Logits ln 1, ln 2, ln 4, ln 8 at temperature 1: n draws of probability p are n p within five
// standard deviations sqrt(n p (1 - p)), which chance leaves once in a million; the draws are fixed.
TEST(Sampler, FrequenciesFollowTheWeights) {
  constexpr int kDraws = 20000;
  const std::vector<float> logits = {0.0f, std::log(2.0f), std::log(4.0f), std::log(8.0f)};
  const auto within = [&](const SamplingSettings& settings, const std::vector<double>& p) {
    auto found = draws(settings, logits, kDraws);
    bool all = true;
    for (std::size_t id = 0; id < p.size(); ++id) {
      const double spread = std::sqrt(kDraws * p[id] * (1.0 - p[id]));
      all &= std::abs(found[static_cast<std::int32_t>(id)] - kDraws * p[id]) <= 5.0 * spread;
    }
    return all;
  };
  const std::vector<double> plain = {1.0 / 15, 2.0 / 15, 4.0 / 15, 8.0 / 15};
  const std::vector<double> squared = {1.0 / 85, 4.0 / 85, 16.0 / 85, 64.0 / 85};
  EXPECT_TRUE(within({1.0, 1.0, 7}, plain));
  EXPECT_TRUE(within({0.5, 1.0, 7}, squared));
  EXPECT_TRUE(within({1.0, 0.8, 7}, {0.0, 0.0, 4.0 / 12, 8.0 / 12}));
  EXPECT_TRUE(within({1.0, 0.5, 7}, {0.0, 0.0, 0.0, 1.0}));
  // Planted faults: temperature the wrong way round, top-p ignored, applied but not renormalised.
  EXPECT_FALSE(within({2.0, 1.0, 7}, squared));
  EXPECT_FALSE(within({1.0, 1.0, 7}, {0.0, 0.0, 4.0 / 12, 8.0 / 12}));
  EXPECT_FALSE(within({1.0, 0.8, 7}, {0.0, 0.0, 4.0 / 15, 8.0 / 15}));
}

TEST(Sampler, EqualLogitsAreOrderedById) {
  // Half of all: two of four, the smaller ids.
  EXPECT_THAT(draws({1.0, 0.5, 3}, {1.0f, 1.0f, 1.0f, 1.0f}, 200),
              ElementsAre(Pair(0, testing::Gt(50)), Pair(1, testing::Gt(50))));
}

TEST(Sampler, DrawsDependOnSeedAndStepAlone) {
  const std::vector<float> flat(64, 0.0f);
  EXPECT_EQ(draws({1.0, 1.0, 5}, flat, 100), draws({1.0, 1.0, 5}, flat, 100));
  EXPECT_NE(draws({1.0, 1.0, 5}, flat, 100), draws({1.0, 1.0, 6}, flat, 100));
  EXPECT_GT(draws({1.0, 1.0, 5}, flat, 100).size(), 30u);  // not one draw again and again
}

// So cold that all weights but one are zero; so far apart that the exponent overflows.
TEST(Sampler, Extremes) {
  EXPECT_THAT(draws({1e-300, 1.0, 5}, {1.0f, 2.0f, 2.0f}, 200),
              ElementsAre(Pair(1, testing::Gt(50)), Pair(2, testing::Gt(50))));
  EXPECT_THAT(draws({1.0, 1.0, 5}, {-3e38f, 3e38f}, 20), ElementsAre(Pair(1, 20)));
  EXPECT_THAT(draws({1.0, 1.0, 5}, {4.0f}, 3), ElementsAre(Pair(0, 3)));
}

TEST(Sampler, WhatIsNotFiniteIsNamed) {
  for (const double temperature : {0.0, 1.0}) {
    EXPECT_THAT(
        [&] {
          draws({temperature, 1.0, 0}, {1.0f, std::numeric_limits<float>::quiet_NaN(), 0.0f}, 1);
        },
        testing::ThrowsMessage<engine::base::Error>(testing::HasSubstr("id 1 is nan")));
  }
}

}  // namespace
