// A whole trace analysed: which layer is compared with which, what is summed over what, and that
// the report says it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <vector>

#include "checks/compare.h"
#include "checks/measure/toy_trace.h"
#include "checks/reference.h"
#include "checks/scratch_folder.h"
#include "engine/base/error.h"
#include "engine/measure/routing_analysis.h"
#include "engine/measure/routing_report.h"
#include "engine/measure/usage.h"

namespace {

namespace measure = engine::measure;
using checks::ScratchFolder;
using checks::toy_layers;
using checks::toy_shape;
using measure::LayerRouting;
using measure::RoutingAnalysis;
using Json = nlohmann::json;

constexpr std::uint64_t kAmple = 1'000'000;
const std::vector<std::int64_t> kCapacities{1, 2, 3, 4};

RoutingAnalysis analysis_of(const std::filesystem::path& trace) {
  engine::base::RamBudget budget(kAmple);
  return measure::analyze(measure::RoutingTrace(trace), kCapacities, budget);
}

RoutingAnalysis toy_analysis() {
  const ScratchFolder scratch;
  checks::write_toy_trace(scratch / "toy");
  return analysis_of(scratch / "toy");
}

// A few terms below 1, each rounded once.
bool agrees(std::optional<double> got, double want) {
  return got && checks::compare(std::vector<double>{*got}, std::vector<double>{want},
                                std::vector<double>{8 * std::numeric_limits<double>::epsilon()});
}

std::vector<std::int64_t> hits_of(const std::vector<measure::CapacityHits>& rows) {
  std::vector<std::int64_t> hits;
  for (const measure::CapacityHits& row : rows) hits.push_back(row.hits);
  return hits;
}

// Layer 1 to 2: 4/9, see overlap_check. Layer 2 to 4, tokens 0 ... 5 against {0,1} four times and
// {2,3} twice: {0,1} 1, {2,3} 0, {1,2} 1/3, {1,3} 1/3, {0,1} 0, {0,3} 1/3: 2 of 6.
bool layer_pairs_hold(const std::vector<measure::LayerAnalysis>& layers) {
  return layers.size() == 3 && agrees(layers[0].next_layer_jaccard, 4.0 / 9.0) &&
         agrees(layers[1].next_layer_jaccard, 1.0 / 3.0) && !layers[2].next_layer_jaccard;
}

TEST(RoutingAnalysis, Toy) {
  const RoutingAnalysis toy = toy_analysis();
  EXPECT_TRUE(layer_pairs_hold(toy.layers));
  EXPECT_EQ(toy.layers[0].layer, 1);
  EXPECT_EQ(toy.layers[2].layer, 4);
  EXPECT_EQ(toy.layers[0].distinct, 4);
  EXPECT_EQ(toy.layers[0].cover80, 3);
  EXPECT_TRUE(agrees(toy.layers[0].next_token_jaccard, 7.0 / 12.0));
  EXPECT_TRUE(agrees(toy.layers[2].next_token_jaccard, 1.0));
  EXPECT_EQ(toy.layers[2].topk_share, 8.0 / 12.0);
  EXPECT_TRUE(agrees(toy.chance_jaccard, 7.0 / 18.0));
  EXPECT_EQ(toy.requests, 36);
  EXPECT_EQ(toy.pairs, 12);
  EXPECT_EQ(toy.pairs_used, 12);
  // Use of the layers: 3 5 3 1, 3 4 2 3, 4 4 2 2. Of 36, 28.8 is 80 %: 5 4 4 4 3 3 3 3 = 29.
  EXPECT_EQ(toy.pairs_cover80, 8);
}

TEST(RoutingAnalysis, PrefixCurveAndDistances) {
  const RoutingAnalysis toy = toy_analysis();
  const auto& prefix = toy.layers[0].prefix;
  ASSERT_EQ(prefix.size(), 2u);
  EXPECT_EQ(prefix[0].tokens, 1);
  EXPECT_EQ(prefix[0].distinct, 2);
  EXPECT_EQ(prefix[0].expected_uniform, 2.0);
  EXPECT_EQ(prefix[1].tokens, 6);
  EXPECT_EQ(prefix[1].distinct, 4);
  ASSERT_EQ(toy.layers[0].distances.size(), 2u);
  EXPECT_EQ(toy.layers[0].distances[1].distance, 2);
  EXPECT_EQ(toy.layers[0].distances[1].pairs, 2);
  EXPECT_TRUE(agrees(toy.layers[0].distances[1].jaccard, 1.0 / 3.0));
  EXPECT_EQ(measure::prefix_lengths(111),
            (std::vector<std::int64_t>{1, 8, 16, 24, 32, 64, 96, 111}));
  EXPECT_EQ(measure::prefix_lengths(8), (std::vector<std::int64_t>{1, 8}));
  EXPECT_EQ(measure::prefix_lengths(1), (std::vector<std::int64_t>{1}));
  EXPECT_EQ(measure::prefix_lengths(300),
            (std::vector<std::int64_t>{1, 8, 16, 24, 32, 64, 96, 128, 192, 256, 300}));
}

TEST(RoutingAnalysis, HitsAreSummedOverLayersOfTheirOwn) {
  const RoutingAnalysis toy = toy_analysis();
  EXPECT_EQ(hits_of(toy.layers[0].lru), (std::vector<std::int64_t>{2, 4, 7, 8}));
  // Layer 4 asks 0 1 0 1 0 1 0 1 2 3 2 3: distances 2, six times and twice.
  EXPECT_EQ(hits_of(toy.layers[2].lru), (std::vector<std::int64_t>{0, 8, 8, 8}));
  std::vector<std::int64_t> sum(4);
  for (const auto& layer : toy.layers) {
    for (std::size_t i = 0; i < 4; ++i) sum[i] += layer.lru[i].hits;
  }
  EXPECT_EQ(hits_of(toy.lru), sum);
  // Layer 4: text 1 ranked on text 2 (2 3 0 1) meets 0 0 4 8; text 2 ranked on text 1 0 0 2 4.
  EXPECT_EQ(hits_of(toy.layers[2].hot_sets), (std::vector<std::int64_t>{0, 0, 6, 12}));
  EXPECT_EQ(measure::default_capacities(toy_shape()), (std::vector<std::int64_t>{2, 4}));
  EXPECT_EQ(measure::default_capacities({896, 5, 16, {0, 5}}),
            (std::vector<std::int64_t>{16, 32, 64, 128, 256, 512, 896}));
}

TEST(RoutingAnalysis, BandsAreQuartersInOrder) {
  std::vector<measure::LayerAnalysis> layers(10);
  for (std::size_t i = 0; i < 10; ++i) {
    layers[i].layer = static_cast<std::int64_t>(i) + 1;
    layers[i].distinct = static_cast<std::int64_t>(i);
    if (i < 9) layers[i].next_layer_jaccard = 0.5;
  }
  const auto bands = measure::bands_of(layers);
  // 10/4, 20/4, 30/4: borders 2, 5, 7.
  ASSERT_EQ(bands.size(), 4u);
  EXPECT_EQ(bands[0].first_layer, 1);
  EXPECT_EQ(bands[0].last_layer, 2);
  EXPECT_EQ(bands[0].distinct, 0.5);
  EXPECT_EQ(bands[1].first_layer, 3);
  EXPECT_EQ(bands[1].distinct, 3.0);
  EXPECT_EQ(bands[3].last_layer, 10);
  EXPECT_EQ(bands[3].distinct, 8.0);
  EXPECT_EQ(bands[3].next_layer_jaccard, 0.5);  // over the two that have one
  EXPECT_FALSE(bands[3].next_token_jaccard);
  EXPECT_EQ(measure::bands_of(std::span(layers).first(3)).size(), 3u);
}

TEST(RoutingAnalysis, MemoryIsAskedForFirst) {
  const ScratchFolder scratch;
  checks::write_toy_trace(scratch / "toy");
  engine::base::RamBudget budget(100);
  EXPECT_THAT(
      [&] { measure::analyze(measure::RoutingTrace(scratch / "toy"), kCapacities, budget); },
      testing::ThrowsMessage<engine::base::Error>(testing::HasSubstr("two layers of the trace")));
}

TEST(RoutingAnalysis, ReportSaysWhatWasFound) {
  const RoutingAnalysis toy = toy_analysis();
  const measure::AnalysisSubject subject{"toy", std::string(64, 'a'), "", ""};
  const std::string text = measure::analysis_json(subject, toy, std::nullopt);
  EXPECT_EQ(text, measure::analysis_json(subject, toy_analysis(), std::nullopt));
  const Json json = Json::parse(text);
  const Json& row = json.at("rows").at("1");
  EXPECT_EQ(row.at("n"), 6);
  EXPECT_EQ(row.at("unique"), 4);
  EXPECT_EQ(row.at("jac_L").get<double>(), *toy.layers[0].next_layer_jaccard);
  EXPECT_TRUE(json.at("rows").at("4").at("jac_L").is_null());
  EXPECT_EQ(json.at("prefix_curves").at("1").at("6"), 4);
  EXPECT_EQ(json.at("lru")[1].at("hits"), toy.lru[1].hits);
  EXPECT_EQ(json.at("pairs_cover80"), 8);
  const std::string page = measure::analysis_markdown(subject, toy, std::nullopt);
  EXPECT_THAT(page, testing::HasSubstr("| 1 | 4 | 3.9 | 1.000 | 0.250 | 1.83 |"));
  EXPECT_THAT(page, testing::HasSubstr("| 0.583 | 0.625 | 0.444 |"));
}

// Names and rounding of LazyLoRA's analysis, and what its files say of each other. Its trace.bin is
// not there.
TEST(RoutingAnalysis, LazyLorasNames) {
  CHECKS_NEED(folder, checks::reference_data("lazylora/traces/zh_paragraph_L93_2026-09-06"));
  // Where there is no next layer it has NaN, which JSON does not know; ours is null.
  std::string text = checks::read_bytes(folder / "analysis.json");
  const std::size_t nan = text.find("\"jac_L\": NaN");
  ASSERT_NE(nan, std::string::npos);
  text.replace(nan + 9, 3, "null");
  const Json theirs = Json::parse(text);
  const measure::TraceManifest manifest = measure::read_trace_manifest(folder / "trace.json");
  const Json ours = Json::parse(measure::analysis_json({}, toy_analysis(), std::nullopt));
  ASSERT_EQ(manifest.layers.size(), 92u);
  EXPECT_EQ(manifest.tokens(), 111);
  for (const measure::TracedLayer& layer : manifest.layers) {
    const Json& row = theirs.at("rows").at(std::to_string(layer.layer));
    for (const auto& [name, value] : row.items()) {
      EXPECT_TRUE(ours.at("rows").at("1").contains(name)) << name;
    }
    EXPECT_EQ(row.at("unique"), layer.distinct) << layer.layer;
    const double uniform = measure::expected_distinct(896, layer.chosen, layer.tokens);
    EXPECT_EQ(std::round(10.0 * uniform) / 10.0, row.at("expected_uniform").get<double>());
    const Json& curve = theirs.at("prefix_curves").at(std::to_string(layer.layer));
    ASSERT_EQ(curve.size(), measure::prefix_lengths(111).size());
    for (const std::int64_t length : measure::prefix_lengths(111)) {
      EXPECT_TRUE(curve.contains(std::to_string(length))) << length;
    }
    EXPECT_EQ(curve.at("111"), layer.distinct);
  }
}

TEST(RoutingAnalysis, PlantedFaults) {
  ASSERT_TRUE(layer_pairs_hold(toy_analysis().layers));
  const std::vector<LayerRouting> in_order = toy_layers();
  const auto analyzed = [&](const std::vector<std::pair<int, int>>& pairs) {
    std::vector<measure::LayerAnalysis> layers;
    for (const auto& [here, next] : pairs) {
      LayerRouting behind;
      if (next >= 0) behind = in_order[static_cast<std::size_t>(next)];
      behind.layer = 99;  // only the order of the calls is planted here
      layers.push_back(measure::analyze_layer(toy_shape(), in_order[static_cast<std::size_t>(here)],
                                              next < 0 ? nullptr : &behind, kCapacities));
    }
    return layers;
  };
  EXPECT_TRUE(layer_pairs_hold(analyzed({{0, 1}, {1, 2}, {2, -1}})));
  EXPECT_FALSE(layer_pairs_hold(analyzed({{0, -1}, {1, 0}, {2, 1}}))) << "the layer in front";
  EXPECT_FALSE(layer_pairs_hold(analyzed({{2, 1}, {1, 0}, {0, -1}}))) << "layers backwards";
  EXPECT_FALSE(layer_pairs_hold(analyzed({{0, 2}, {1, 2}, {2, -1}}))) << "a layer left out";
  EXPECT_FALSE(layer_pairs_hold(analyzed({{0, 1}, {1, 2}, {2, 0}}))) << "the last to the first";
}

}  // namespace
