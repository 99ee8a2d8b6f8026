// Overlap of expert sets, against values worked out on paper.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <set>
#include <vector>

#include "checks/compare.h"
#include "checks/measure/toy_routing.h"
#include "engine/measure/overlap.h"

namespace {

namespace measure = engine::measure;
using checks::toy_layer;
using checks::toy_layer_behind;
using checks::toy_shape;
using measure::Overlap;
using measure::TokenSets;

// The sums here have at most k + 1 = 3 rounded terms and one quotient.
bool agrees(std::optional<double> got, double want) {
  return got && checks::compare(std::vector<double>{*got}, std::vector<double>{want},
                                std::vector<double>{4 * std::numeric_limits<double>::epsilon()});
}

TEST(Overlap, ConsecutiveTokens) {
  const TokenSets sets(toy_shape(), toy_layer());
  const Overlap next = measure::overlap_at_distance(toy_shape(), sets, 1);
  // {0,1} {0,1}: 1.  {0,1} {1,2}: 1/3.  {1,2} {0,3}: 0.  Border.  {1,2} {1,2}: 1.  7/3 of 4 pairs.
  EXPECT_EQ(next.pairs(), 4);
  EXPECT_TRUE(agrees(next.jaccard(), 7.0 / 12.0));
  EXPECT_TRUE(agrees(next.reuse(), 5.0 / 8.0));  // 2 + 1 + 0 + 2 of 8
  EXPECT_TRUE(agrees(next.equal(), 0.5));
}

TEST(Overlap, AtADistance) {
  const TokenSets sets(toy_shape(), toy_layer());
  // Tokens 0 and 2: 1/3; 1 and 3, {0,1} {0,3}: 1/3. The second text has no such pair.
  const Overlap two = measure::overlap_at_distance(toy_shape(), sets, 2);
  EXPECT_EQ(two.pairs(), 2);
  EXPECT_TRUE(agrees(two.jaccard(), 1.0 / 3.0));
  // {0,1} {0,3}.
  EXPECT_EQ(measure::overlap_at_distance(toy_shape(), sets, 3).pairs(), 1);
  const Overlap none = measure::overlap_at_distance(toy_shape(), sets, 4);
  EXPECT_EQ(none.pairs(), 0);
  EXPECT_FALSE(none.jaccard() || none.reuse() || none.equal());
}

TEST(Overlap, LayerToLayer) {
  // {0,1} {0,1}: 1.  {0,1} {2,3}: 0.  {1,2} {1,2}: 1.  {0,3} {1,3}: 1/3.  {1,2} {0,1}: 1/3.
  // {1,2} {0,3}: 0.  8/3 of 6.
  const Overlap overlap = measure::overlap_of_tokens(
      toy_shape(), TokenSets(toy_shape(), toy_layer()), TokenSets(toy_shape(), toy_layer_behind()));
  EXPECT_EQ(overlap.pairs(), 6);
  EXPECT_TRUE(agrees(overlap.jaccard(), 4.0 / 9.0));
}

// All pairs of k-subsets of E, counted.
double chance_by_enumeration(int experts, int chosen) {
  std::vector<std::vector<std::int32_t>> subsets;
  std::vector<bool> mask(static_cast<std::size_t>(experts));
  std::fill(mask.begin(), mask.begin() + chosen, true);
  do {
    std::vector<std::int32_t> subset;
    for (int e = 0; e < experts; ++e) {
      if (mask[static_cast<std::size_t>(e)]) subset.push_back(e);
    }
    subsets.push_back(subset);
  } while (std::prev_permutation(mask.begin(), mask.end()));
  double sum = 0.0;
  for (const auto& a : subsets) {
    for (const auto& b : subsets) {
      const auto common = static_cast<double>(measure::common_experts(a, b));
      sum += common / (2.0 * chosen - common);
    }
  }
  return sum / static_cast<double>(subsets.size() * subsets.size());
}

TEST(Overlap, Chance) {
  // Two of four: 1 of 6 pairs equal, 4 with one in common, 1 with none: (1 + 4/3) / 6.
  EXPECT_TRUE(agrees(measure::chance_jaccard(4, 2), 7.0 / 18.0));
  EXPECT_EQ(measure::chance_jaccard(5, 5), 1.0);
  for (const auto& [experts, chosen] : {std::pair{4, 2}, {7, 3}, {7, 5}, {8, 1}}) {
    // Up to 1225 sums of values below 1.
    EXPECT_NEAR(measure::chance_jaccard(experts, chosen), chance_by_enumeration(experts, chosen),
                1225 * std::numeric_limits<double>::epsilon());
  }
  // Proportions beyond the range of double: two halves of 32000 have 8000 in common, with variance
  // 2000, and the mean of J = i / (2k - i) is J(8000) = 1/3 up to J''/2 x 2000 = 4.6e-6.
  EXPECT_NEAR(measure::chance_jaccard(32000, 16000), 1.0 / 3.0, 1e-5);
}

double jaccard_with(double (*of)(double common, double chosen)) {
  const TokenSets sets(toy_shape(), toy_layer());
  double sum = 0.0;
  for (const std::int64_t t : {0, 1, 2, 4}) {
    sum += of(static_cast<double>(measure::common_experts(sets.of(t), sets.of(t + 1))), 2.0);
  }
  return sum / 4.0;
}

TEST(Overlap, PlantedFaults) {
  ASSERT_TRUE(agrees(jaccard_with([](double i, double k) { return i / (2 * k - i); }), 7.0 / 12.0));
  EXPECT_FALSE(agrees(jaccard_with([](double i, double k) { return (2 * k - i) / i; }), 7.0 / 12.0))
      << "union over intersection";
  EXPECT_FALSE(agrees(jaccard_with([](double i, double k) { return i / k; }), 7.0 / 12.0))
      << "over one set instead of the union";
  EXPECT_FALSE(agrees(jaccard_with([](double i, double k) { return i / (2 * k); }), 7.0 / 12.0))
      << "over the sum of the sizes instead of the union";
  // A pair across the border of two texts: {0,3} {1,2} would be a fifth.
  measure::TraceShape one = toy_shape();
  one.documents = {0, 6};
  EXPECT_FALSE(agrees(measure::overlap_at_distance(one, TokenSets(one, toy_layer()), 1).jaccard(),
                      7.0 / 12.0));
  // Rows that are not sorted: {1,0} against {2,1} would miss what they share.
  EXPECT_EQ(
      measure::common_experts(std::vector<std::int32_t>{1, 0}, std::vector<std::int32_t>{2, 1}), 0);
}

}  // namespace
