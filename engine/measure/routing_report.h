#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "engine/measure/routing_analysis.h"
#include "engine/measure/routing_comparison.h"

namespace engine::measure {

// What was analysed, for a report to say.
struct AnalysisSubject {
  std::string name;     // as given
  std::string sha256;   // of trace.bin
  std::string against;  // empty: nothing
  std::string against_sha256;
};

// "rows" and "prefix_curves" by layer with LazyLoRA's names, the rest beside them. Numbers are the
// shortest decimals that give the same double back; what is not defined is null.
std::string analysis_json(const AnalysisSubject& subject, const RoutingAnalysis& analysis,
                          const std::optional<RoutingComparison>& comparison);

// The same as a page, rounded as LazyLoRA rounds.
std::string analysis_markdown(const AnalysisSubject& subject, const RoutingAnalysis& analysis,
                              const std::optional<RoutingComparison>& comparison);

// Tables for a plotting program, tab-separated with a line of names: layers.tsv, prefix.tsv,
// distance.tsv, hits.tsv.
void write_tables(const std::filesystem::path& folder, const RoutingAnalysis& analysis);

}  // namespace engine::measure
