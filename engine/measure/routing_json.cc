#include <nlohmann/json.hpp>

#include "engine/base/error.h"
#include "engine/measure/routing_report.h"
#include "engine/store/json_text.h"

namespace engine::measure {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kFormat = "lazylora routing analysis 1";

template <class T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json hits_of(const std::vector<CapacityHits>& rows, std::int64_t requests) {
  if (rows.empty()) return nullptr;
  Json list = Json::array();
  for (const CapacityHits& row : rows) {
    list.push_back({{"capacity", row.capacity},
                    {"hits", row.hits},
                    {"rate", static_cast<double>(row.hits) / static_cast<double>(requests)}});
  }
  return list;
}

Json row_of(const RoutingAnalysis& analysis, const LayerAnalysis& a) {
  Json distances = Json::array();
  for (const DistanceOverlap& row : a.distances) {
    distances.push_back({{"distance", row.distance}, {"pairs", row.pairs}, {"jac", row.jaccard}});
  }
  return {{"n", analysis.shape.tokens},
          {"unique", a.distinct},
          {"expected_uniform", a.expected_uniform},
          {"top1_share", a.top1_share},
          {"topk_share", a.topk_share},
          {"top100_share", a.top100_share},
          {"gini", a.gini},
          {"hhi", a.hhi},
          {"H_use_bits", a.entropy_bits},
          {"eff_experts", a.effective_experts},
          {"eff_k", a.effective_chosen},
          {"cover80", a.cover80},
          {"jac_t", or_null(a.next_token_jaccard)},
          {"reuse_t", or_null(a.next_token_reuse)},
          {"jac_L", or_null(a.next_layer_jaccard)},
          {"jac_d", distances},
          {"lru", hits_of(a.lru, analysis.shape.requests())},
          {"hot_sets", hits_of(a.hot_sets, analysis.shape.requests())}};
}

Json band_json(const BandAnalysis& band) {
  return {{"first_layer", band.first_layer},
          {"last_layer", band.last_layer},
          {"layers", band.layers},
          {"unique", band.distinct},
          {"top100_share", band.top100_share},
          {"gini", band.gini},
          {"H_use_bits", band.entropy_bits},
          {"eff_k", band.effective_chosen},
          {"cover80", band.cover80},
          {"jac_t", or_null(band.next_token_jaccard)},
          {"jac_L", or_null(band.next_layer_jaccard)}};
}

Json comparison_json(const RoutingComparison& comparison) {
  Json rows = Json::object();
  for (const LayerComparison& c : comparison.layers) {
    rows[std::to_string(c.layer)] = {{"jac_token", or_null(c.token_jaccard)},
                                     {"same_set", or_null(c.same_set)},
                                     {"same_first", or_null(c.same_first)},
                                     {"weight_distance", or_null(c.weight_distance)},
                                     {"first_token_that_differs", or_null(c.first_other)},
                                     {"usage_overlap", c.usage_overlap},
                                     {"divergence_bits", c.divergence_bits},
                                     {"unique_here", c.distinct_here},
                                     {"unique_there", c.distinct_there},
                                     {"unique_both", c.distinct_both}};
  }
  return {{"same_texts", comparison.same_texts},
          {"same_checkpoint",
           comparison.same_checkpoint ? Json(*comparison.same_checkpoint) : Json(nullptr)},
          {"jac_token", or_null(comparison.token_jaccard)},
          {"same_set", or_null(comparison.same_set)},
          {"same_first", or_null(comparison.same_first)},
          {"weight_distance", or_null(comparison.weight_distance)},
          {"usage_overlap", comparison.usage_overlap},
          {"divergence_bits", comparison.divergence_bits},
          {"rows", rows}};
}

}  // namespace

std::string analysis_json(const AnalysisSubject& subject, const RoutingAnalysis& analysis,
                          const std::optional<RoutingComparison>& comparison) {
  const TraceShape& shape = analysis.shape;
  Json rows = Json::object(), curves = Json::object(), uniform = Json::object();
  for (const LayerAnalysis& layer : analysis.layers) {
    const std::string name = std::to_string(layer.layer);
    rows[name] = row_of(analysis, layer);
    for (const PrefixPoint& point : layer.prefix) {
      curves[name][std::to_string(point.tokens)] = point.distinct;
      uniform[std::to_string(point.tokens)] = point.expected_uniform;
    }
  }
  Json bands = Json::array();
  for (const BandAnalysis& band : analysis.bands) bands.push_back(band_json(band));
  Json json = {{"format", kFormat},
               {"trace", subject.name},
               {"trace_sha256", subject.sha256},
               {"experts", shape.experts},
               {"n_tokens", shape.tokens},
               {"k", shape.chosen},
               {"documents", shape.documents.size() - 1},
               {"layers", analysis.layers.size()},
               {"requests", analysis.requests},
               {"jac_chance", analysis.chance_jaccard},
               {"pairs", analysis.pairs},
               {"pairs_used", analysis.pairs_used},
               {"pairs_cover80", analysis.pairs_cover80},
               {"lru", hits_of(analysis.lru, analysis.requests)},
               {"hot_sets", hits_of(analysis.hot_sets, analysis.requests)},
               {"bands", bands},
               {"rows", rows},
               {"prefix_curves", curves},
               {"prefix_uniform", uniform}};
  if (comparison) {
    json["against"] = subject.against;
    json["against_sha256"] = subject.against_sha256;
    json["comparison"] = comparison_json(*comparison);
  }
  try {
    return json.dump(1) + "\n";
  } catch (const Json::exception& error) {  // a name that is not UTF-8
    throw base::Error("{}: {}", subject.name, store::json_reason(error.what()));
  }
}

}  // namespace engine::measure
