#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <numbers>
#include <string>
#include <vector>

#include "checks/compare.h"
#include "checks/reference.h"
#include "engine/train/schedule.h"

namespace {

using checks::Comparison;
using engine::train::learning_rate;
using engine::train::Schedule;

double exact(const Schedule& s, std::int64_t step) {
  const auto t = static_cast<long double>(step);
  const auto warmup = static_cast<long double>(s.warmup);
  if (step <= s.warmup) return static_cast<double>(s.peak * t / warmup);
  const long double angle =
      std::numbers::pi_v<long double> * (t - warmup) / (static_cast<long double>(s.total) - warmup);
  return static_cast<double>(s.floor + (static_cast<long double>(s.peak) - s.floor) * 0.5L *
                                           (1 + cosl(angle)));
}

// In units of 2^-53 peak: the angle is off by 2.7 units relative, at most 8.5 absolute; the cosine
// adds 1.5 ulp (3); the sum with 1 adds 2; halved that is 6.75; two products, the difference and
// the last sum add a unit each.
constexpr double kUnits = 11.0;

Comparison check(const std::vector<Schedule>& schedules,
                 const std::function<double(const Schedule&, std::int64_t)>& rate) {
  std::vector<double> got, want, allowed;
  for (const Schedule& s : schedules) {
    for (std::int64_t t = 1; t <= s.total; ++t) {
      got.push_back(rate(s, t));
      want.push_back(exact(s, t));
      allowed.push_back(kUnits * 0x1p-53 * s.peak);
    }
  }
  return checks::compare(got, want, allowed);
}

const std::vector<Schedule> kSchedules = {
    {2e-4, 1e-5, 5, 100}, {1e-3, 1e-5, 2, 10}, {1e-2, 0.0, 0, 37},
    {3e-4, 3e-4, 3, 9},   {1e-3, 1e-5, 10, 4}, {1e-3, 1e-5, 7, 7},
};

TEST(Schedule, IsTheFormula) {
  const Comparison result = check(kSchedules, learning_rate);
  EXPECT_TRUE(result) << result.why;
  RecordProperty("worst", std::to_string(result.worst));
}

TEST(Schedule, EndsWhereItShould) {
  const Schedule s{1e-3, 1e-5, 2, 10};
  EXPECT_EQ(learning_rate(s, 1), 0.0005);
  EXPECT_EQ(learning_rate(s, 2), 0.001);
  EXPECT_EQ(learning_rate(s, 10), 1e-5);
}

TEST(Schedule, IsTheReferences) {
  CHECKS_NEED(file, checks::reference_data("grad/tiny_traj/result.json"));
  const auto result = nlohmann::json::parse(std::ifstream(file));
  const Schedule s{1e-3, 1e-5, 2, 10};
  std::vector<double> got, want, allowed;
  for (const auto& step : result.at("steps")) {
    got.push_back(learning_rate(s, step.at("step")));
    want.push_back(std::stod(step.at("lr").at("repr").get<std::string>()));
    allowed.push_back(2 * kUnits * 0x1p-53 * s.peak);  // theirs is a double formula too
  }
  ASSERT_EQ(got.size(), 10u);
  const Comparison compared = checks::compare(got, want, allowed);
  EXPECT_TRUE(compared) << compared.why;
}

TEST(Schedule, PlantedFaults) {
  const auto late = [](const Schedule& s, std::int64_t t) {
    return t == 1 ? 0.0 : learning_rate(s, t - 1);
  };
  const auto early = [](const Schedule& s, std::int64_t t) {
    return t == s.total ? s.floor : learning_rate(s, t + 1);
  };
  const auto no_warmup = [](const Schedule& s, std::int64_t t) {
    return learning_rate({s.peak, s.floor, 0, s.total}, t);
  };
  const auto to_zero = [](const Schedule& s, std::int64_t t) {
    return learning_rate({s.peak, 0.0, s.warmup, s.total}, t);
  };
  const auto from_start = [](const Schedule& s, std::int64_t t) {
    if (t <= s.warmup) return learning_rate(s, t);
    return learning_rate({s.peak, s.floor, 0, s.total}, t);  // the warm-up is not taken off
  };
  const auto float_cosine = [](const Schedule& s, std::int64_t t) {
    return static_cast<double>(static_cast<float>(learning_rate(s, t)));
  };
  EXPECT_FALSE(check(kSchedules, late));
  EXPECT_FALSE(check(kSchedules, early));
  EXPECT_FALSE(check(kSchedules, no_warmup));
  EXPECT_FALSE(check(kSchedules, to_zero));
  EXPECT_FALSE(check(kSchedules, from_start));
  EXPECT_FALSE(check(kSchedules, float_cosine));
}

}  // namespace
