// Use of experts, against values worked out on paper.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "checks/compare.h"
#include "checks/measure/toy_routing.h"
#include "engine/measure/usage.h"

namespace {

namespace measure = engine::measure;
using checks::compare;
using checks::toy_layer;
using checks::toy_shape;
using Counts = std::vector<std::int64_t>;

constexpr double kEps = std::numeric_limits<double>::epsilon();

// Tokens 0, 1, 3 choose expert 0; 0, 1, 2, 4, 5 expert 1; 2, 4, 5 expert 2; 3 expert 3.
const Counts kToyCounts{3, 5, 3, 1};

// Of n terms, each rounded a few times (1/2 ULP for quotient, product and sum, 1 ULP for log), all
// of one sign: n + 8 halves of an ULP relative are ample and far from any wrong version.
bool agrees(double got, double want, double terms) {
  return static_cast<bool>(compare(std::vector<double>{got}, std::vector<double>{want},
                                   std::vector<double>{(terms + 8) * kEps * std::abs(want)}));
}

TEST(Usage, CountsOfTheToyAndOfItsTexts) {
  EXPECT_EQ(measure::count_usage(toy_shape(), toy_layer()), kToyCounts);
  EXPECT_EQ(measure::count_usage(toy_shape(), toy_layer(), 0, 4), (Counts{3, 3, 1, 1}));
  EXPECT_EQ(measure::count_usage(toy_shape(), toy_layer(), 4, 6), (Counts{0, 2, 2, 0}));
  EXPECT_EQ(measure::distinct_experts(toy_shape(), toy_layer()), 4);
}

TEST(Usage, ExpectedDistinct) {
  // One token: exactly k. 4 (1 - (1/2)^6) = 4 x 63/64. All experts at once: E.
  EXPECT_EQ(measure::expected_distinct(4, 2, 1), 2.0);
  EXPECT_EQ(measure::expected_distinct(4, 2, 6), 3.9375);
  EXPECT_EQ(measure::expected_distinct(7, 7, 3), 7.0);
  // LazyLoRA's log has 774.7 for 111 tokens of K3; one product after another says the same.
  double power = 1.0;
  for (int t = 0; t < 111; ++t) power *= 880.0 / 896.0;
  EXPECT_TRUE(agrees(measure::expected_distinct(896, 16, 111), 896.0 * (1.0 - power), 111));
  EXPECT_EQ(std::lround(10.0 * measure::expected_distinct(896, 16, 111)), 7747);
}

TEST(Usage, SharesOfTheMostUsed) {
  EXPECT_EQ(measure::top_share(kToyCounts, 1), 5.0 / 12.0);
  EXPECT_EQ(measure::top_share(kToyCounts, 2), 8.0 / 12.0);
  EXPECT_EQ(measure::top_share(kToyCounts, 100), 1.0);
}

TEST(Usage, Concentration) {
  // Ascending 1 3 3 5: 2 (1 + 6 + 9 + 20) / (4 x 12) - 5/4 = 3/2 - 5/4.
  EXPECT_EQ(measure::gini(kToyCounts), 0.25);
  EXPECT_EQ(measure::gini(Counts{5, 5, 5}), 0.0);
  EXPECT_EQ(measure::gini(Counts{0, 9, 0, 0}), 0.75);
  // 1/16 + 25/144 + 1/16 + 1/144 = 44/144.
  EXPECT_TRUE(agrees(measure::hhi(kToyCounts), 44.0 / 144.0, 4));
  EXPECT_EQ(measure::hhi(Counts{0, 9, 0, 0}), 1.0);
}

TEST(Usage, EntropyAndEffectiveExperts) {
  // 1/2, 1/4, 1/8, 1/8: 1/2 + 2/4 + 3/8 + 3/8 = 7/4 bits; unused experts add nothing.
  EXPECT_TRUE(agrees(measure::entropy_bits(Counts{4, 2, 0, 1, 1}), 1.75, 5));
  EXPECT_EQ(measure::entropy_bits(Counts{0, 9, 0}), 0.0);
  EXPECT_TRUE(agrees(measure::entropy_bits(Counts(896, 3)), std::log2(896.0), 896));
  // Toy: 1/4 x 2 twice, 5/12 log2(12/5), 1/12 log2 12.
  const double toy = 1.0 + 5.0 / 12.0 * std::log2(2.4) + std::log2(12.0) / 12.0;
  EXPECT_TRUE(agrees(measure::entropy_bits(kToyCounts), toy, 4));
  // d 2^x = 2^x ln 2 dx: an absolute error of x ULPs comes through once.
  EXPECT_TRUE(agrees(measure::power_of_two(1.75), std::exp2(1.75), 4));
}

TEST(Usage, EffectiveChosen) {
  // Tokens 0, 2, 3, 5 halve their weight (whatever it sums to): 2 each. 1 and 4 give it all to one.
  EXPECT_TRUE(agrees(measure::effective_chosen(toy_shape(), toy_layer()), 10.0 / 6.0, 12));
}

TEST(Usage, Cover80) {
  EXPECT_EQ(measure::cover80(kToyCounts), 3);  // 80 % of 12 is 9.6; 5 + 3 = 8, 5 + 3 + 3 = 11
  EXPECT_EQ(measure::cover80(Counts{1, 1, 1, 1, 1}), 4);  // 4 of 5 is enough, exactly
  EXPECT_EQ(measure::cover80(Counts{7, 1, 1, 1}), 2);
  EXPECT_EQ(measure::cover80(Counts{9, 1}), 1);
}

TEST(Usage, RankIsByUseThenByNumber) {
  EXPECT_EQ(measure::rank_by_use(kToyCounts), (std::vector<std::int32_t>{1, 0, 2, 3}));
}

// As many as K3 has in a layer: a sort that is not stable keeps a few equals in order, not so many.
TEST(Usage, RankOfManyEqualsIsByNumber) {
  Counts counts;
  std::vector<std::int32_t> want;
  for (int e = 0; e < 896; ++e) counts.push_back(e % 3);
  for (const int first : {2, 1, 0}) {
    for (int e = first; e < 896; e += 3) want.push_back(e);
  }
  EXPECT_EQ(measure::rank_by_use(counts), want);
}

double entropy_in(const Counts& counts, const std::function<double(double)>& log, bool all) {
  double sum = 0.0, total = 0.0;
  for (const std::int64_t c : counts) total += static_cast<double>(c);
  for (const std::int64_t c : counts) {
    if (c > 0 || all) sum -= static_cast<double>(c) / total * log(static_cast<double>(c) / total);
  }
  return sum;
}

TEST(Usage, PlantedFaults) {
  const Counts counts{4, 2, 0, 1, 1};
  const auto log2 = [](double x) { return std::log2(x); };
  const auto log = [](double x) { return std::log(x); };
  const auto log10 = [](double x) { return std::log10(x); };
  ASSERT_TRUE(agrees(entropy_in(counts, log2, false), 1.75, 5));
  EXPECT_FALSE(agrees(entropy_in(counts, log, false), 1.75, 5)) << "nats";
  EXPECT_FALSE(agrees(entropy_in(counts, log10, false), 1.75, 5)) << "base ten";
  EXPECT_FALSE(agrees(entropy_in(counts, log2, true), 1.75, 5)) << "0 log 0 as a NaN";
  EXPECT_FALSE(agrees(std::exp(1.75), std::exp2(1.75), 4)) << "e^bits";
  // Unused experts left out of Gini: 1 1 2 4 instead of 0 1 1 2 4.
  EXPECT_NE(measure::gini(Counts{4, 2, 1, 1}), measure::gini(counts));
  // One expert or one token fewer or more, against what the right one agrees with.
  const double distinct = 896.0 * (1.0 - std::pow(880.0 / 896.0, 111));
  ASSERT_TRUE(agrees(measure::expected_distinct(896, 16, 111), distinct, 111));
  EXPECT_FALSE(agrees(measure::expected_distinct(895, 16, 111), distinct, 111));
  EXPECT_FALSE(agrees(measure::expected_distinct(897, 16, 111), distinct, 111));
  EXPECT_FALSE(agrees(measure::expected_distinct(896, 16, 110), distinct, 111));
  EXPECT_FALSE(agrees(measure::expected_distinct(896, 16, 112), distinct, 111));
  // Weights not divided by their sum: token 3 would have -2 x 2 log2 2 bits.
  measure::LayerRouting normal = toy_layer();
  for (float& w : normal.weight) w *= 0.5f;
  EXPECT_EQ(measure::effective_chosen(toy_shape(), normal),
            measure::effective_chosen(toy_shape(), toy_layer()));
}

}  // namespace
