// Two traces against each other, values worked out on paper.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "checks/compare.h"
#include "checks/measure/toy_trace.h"
#include "checks/scratch_folder.h"
#include "engine/base/error.h"
#include "engine/measure/routing_comparison.h"
#include "engine/measure/routing_report.h"

namespace {

namespace measure = engine::measure;
using checks::ScratchFolder;
using checks::toy_layer;
using checks::toy_layers;
using checks::toy_shape;
using measure::LayerComparison;
using measure::LayerRouting;
using testing::HasSubstr;

// Token 3 chooses {0,2} instead of {0,3}; token 5 the same set in the other order.
LayerRouting changed_layer() {
  LayerRouting layer = toy_layer();
  layer.index[7] = 2;
  std::swap(layer.index[10], layer.index[11]);
  return layer;
}

bool agrees(std::optional<double> got, double want) {
  return got && checks::compare(std::vector<double>{*got}, std::vector<double>{want},
                                std::vector<double>{16 * std::numeric_limits<double>::epsilon()});
}

LayerComparison compared(bool same_texts) {
  return measure::compare_layers(toy_shape(), toy_layer(), toy_shape(), changed_layer(),
                                 same_texts);
}

TEST(RoutingComparison, OnPaper) {
  const LayerComparison c = compared(true);
  EXPECT_TRUE(agrees(c.token_jaccard, 8.0 / 9.0));  // five times 1, once 1/3
  EXPECT_TRUE(agrees(c.same_set, 5.0 / 6.0));
  EXPECT_TRUE(agrees(c.same_first, 5.0 / 6.0));        // token 5: 2 or 1 first
  EXPECT_TRUE(agrees(c.weight_distance, 1.0 / 12.0));  // token 3: (1/2 + 1/2) / 2
  EXPECT_EQ(c.first_other, 3);
  // Use 3 5 3 1 and 3 5 4 0 of 12.
  EXPECT_TRUE(agrees(c.usage_overlap, 11.0 / 12.0));
  EXPECT_EQ(c.distinct_here, 4);
  EXPECT_EQ(c.distinct_there, 3);
  EXPECT_EQ(c.distinct_both, 3);
  // Half the divergences of each from the mean 3 5 3.5 0.5, experts 0 and 1 adding nothing.
  const double divergence =
      (3 * std::log2(3 / 3.5) + std::log2(1 / 0.5) + 4 * std::log2(4 / 3.5)) / 24;
  EXPECT_TRUE(agrees(c.divergence_bits, divergence));
}

TEST(RoutingComparison, OtherTextsAreComparedByUseAlone) {
  const LayerComparison c = compared(false);
  EXPECT_FALSE(c.token_jaccard || c.same_set || c.same_first || c.weight_distance || c.first_other);
  EXPECT_TRUE(agrees(c.usage_overlap, 11.0 / 12.0));
}

TEST(RoutingComparison, WithItselfAndWithNothingInCommon) {
  const LayerComparison same =
      measure::compare_layers(toy_shape(), toy_layer(), toy_shape(), toy_layer(), true);
  EXPECT_EQ(same.token_jaccard, 1.0);
  EXPECT_EQ(same.weight_distance, 0.0);
  EXPECT_FALSE(same.first_other);
  EXPECT_EQ(same.usage_overlap, 1.0);
  EXPECT_EQ(same.divergence_bits, 0.0);
  const measure::TraceShape shape{4, 2, 2, {0, 2}};
  const LayerRouting low{1, {0, 1, 1, 0}, {1, 1, 1, 1}};
  const LayerRouting high{1, {2, 3, 3, 2}, {1, 1, 1, 1}};
  const LayerComparison apart = measure::compare_layers(shape, low, shape, high, true);
  EXPECT_EQ(apart.token_jaccard, 0.0);
  EXPECT_TRUE(agrees(apart.weight_distance, 1.0));
  EXPECT_EQ(apart.usage_overlap, 0.0);
  EXPECT_TRUE(agrees(apart.divergence_bits, 1.0));
}

TEST(RoutingComparison, OfFilesAndTheirMeans) {
  const ScratchFolder scratch;
  checks::write_toy_trace(scratch / "a");
  std::vector<LayerRouting> layers = toy_layers();
  layers[0] = changed_layer();
  checks::write_toy_trace(scratch / "b", false, false, layers);
  engine::base::RamBudget budget(1'000'000);
  const measure::RoutingTrace a(scratch / "a"), b(scratch / "b");
  const auto comparison = measure::compare(a, b, budget);
  EXPECT_TRUE(comparison.same_texts);
  EXPECT_EQ(comparison.same_checkpoint, std::optional(true));
  ASSERT_EQ(comparison.layers.size(), 3u);
  EXPECT_TRUE(agrees(comparison.token_jaccard, (8.0 / 9.0 + 2.0) / 3.0));
  EXPECT_TRUE(agrees(comparison.usage_overlap, (11.0 / 12.0 + 2.0) / 3.0));
  // Records alone say nothing of their texts.
  const measure::RoutingTrace bare(scratch / "b" / "trace.bin", 4);
  EXPECT_FALSE(measure::compare(a, bare, budget).same_texts);
  EXPECT_EQ(measure::compare(a, bare, budget).same_checkpoint, std::nullopt);
  const std::vector<std::int64_t> capacities{2};
  const std::string page = measure::analysis_markdown(
      {"a", "", "b", ""}, measure::analyze(a, capacities, budget), comparison);
  EXPECT_THAT(page, HasSubstr("| 1 | 0.889 | 0.833 | 0.833 | 0.0833 | 3 | 0.917 |"));

  // Shapes that fit are no sign of one checkpoint.
  std::string manifest = checks::read_bytes(scratch / "b" / "trace.json");
  manifest.replace(manifest.find(std::string(64, 'd')), 64, std::string(64, 'e'));
  checks::write_bytes(scratch / "b" / "trace.json", manifest);
  const auto apart = measure::compare(a, measure::RoutingTrace(scratch / "b"), budget);
  EXPECT_EQ(apart.same_checkpoint, std::optional(false));
  EXPECT_THAT(measure::analysis_markdown({"a", "", "b", ""},
                                         measure::analyze(a, capacities, budget), apart),
              HasSubstr("Of ANOTHER checkpoint"));

  checks::write_toy_trace(scratch / "c", false, false, {toy_layers()[0]});
  const measure::RoutingTrace shorter(scratch / "c");
  EXPECT_THAT([&] { measure::compare(a, shorter, budget); },
              testing::ThrowsMessage<engine::base::Error>(
                  testing::AllOf(HasSubstr("3 layers"), HasSubstr("1 in"))));
}

// As many tokens in as many texts: that neither trace says which ids they were is no sign of equal
// texts.
TEST(RoutingComparison, TextsWithoutDigestsAreNotTakenForTheSame) {
  const ScratchFolder scratch;
  for (const char* name : {"a", "b"}) {
    checks::write_toy_trace(scratch / name, false);
    std::string manifest = checks::read_bytes(scratch / name / "trace.json");
    for (const auto& ids : checks::kToyTexts) {
      const std::string digest = '"' + measure::ids_digest(ids) + '"';
      const std::size_t at = manifest.find(digest);
      ASSERT_NE(at, std::string::npos) << digest;
      manifest.replace(at, digest.size(), "null");
    }
    checks::write_bytes(scratch / name / "trace.json", manifest);
  }
  engine::base::RamBudget budget(1'000'000);
  const measure::RoutingTrace a(scratch / "a"), b(scratch / "b");
  ASSERT_EQ(a.manifest()->documents.size(), 2u);
  const auto comparison = measure::compare(a, b, budget);
  EXPECT_FALSE(comparison.same_texts);
  EXPECT_FALSE(comparison.token_jaccard);
}

TEST(RoutingComparison, PlantedFaults) {
  const LayerComparison right = compared(true);
  // Place by place instead of set by set, token 5 would be another set.
  EXPECT_FALSE(agrees(right.same_set, 4.0 / 6.0));
  // The larger share instead of the smaller: (3 + 5 + 4 + 1) / 12.
  EXPECT_FALSE(agrees(right.usage_overlap, 13.0 / 12.0));
  // Kullback and Leibler's divergence is infinite here: expert 3 is not used there.
  EXPECT_TRUE(std::isfinite(right.divergence_bits));
  // Not halved, two texts apart would be at distance 2; in nats, their divergence ln 2.
  EXPECT_FALSE(agrees(right.weight_distance, 1.0 / 6.0));
  EXPECT_FALSE(agrees(right.divergence_bits, right.divergence_bits * std::log(2.0)));
}

}  // namespace
