#include "engine/measure/routing_report.h"

#include <fmt/format.h>

#include "engine/store/durable.h"

namespace engine::measure {
namespace {

std::string rounded(const std::optional<double>& value, int digits) {
  return value ? fmt::format("{:.{}f}", *value, digits) : "-";
}

std::string rate_of(const CapacityHits& row, std::int64_t requests) {
  return fmt::format("{:.3f}", static_cast<double>(row.hits) / static_cast<double>(requests));
}

std::string layer_table(const RoutingAnalysis& analysis) {
  std::string text =
      "| layer | unique | uniform | top 100 | Gini | H, bits | eff. experts | eff. k | 80 % | "
      "jac_t | reuse_t | jac_L |\n|---|---|---|---|---|---|---|---|---|---|---|---|\n";
  for (const LayerAnalysis& a : analysis.layers) {
    text += fmt::format(
        "| {} | {} | {:.1f} | {:.3f} | {:.3f} | {:.2f} | {:.1f} | {:.2f} | {} | {} | {} | {} |\n",
        a.layer, a.distinct, a.expected_uniform, a.top100_share, a.gini, a.entropy_bits,
        a.effective_experts, a.effective_chosen, a.cover80, rounded(a.next_token_jaccard, 3),
        rounded(a.next_token_reuse, 3), rounded(a.next_layer_jaccard, 3));
  }
  return text;
}

std::string band_table(const RoutingAnalysis& analysis) {
  std::string text =
      "| layers | unique | top 100 | Gini | H, bits | eff. k | 80 % | jac_t | jac_L "
      "|\n|---|---|---|---|---|---|---|---|---|\n";
  for (const BandAnalysis& band : analysis.bands) {
    text += fmt::format(
        "| {} ... {} | {:.1f} | {:.3f} | {:.3f} | {:.2f} | {:.2f} | {:.1f} | {} | "
        "{} |\n",
        band.first_layer, band.last_layer, band.distinct, band.top100_share, band.gini,
        band.entropy_bits, band.effective_chosen, band.cover80, rounded(band.next_token_jaccard, 3),
        rounded(band.next_layer_jaccard, 3));
  }
  return text;
}

std::string hits_table(const RoutingAnalysis& analysis) {
  std::string text = "| experts kept a layer | LRU | hot set, other texts |\n|---|---|---|\n";
  for (std::size_t i = 0; i < analysis.lru.size(); ++i) {
    text += fmt::format(
        "| {} | {} | {} |\n", analysis.lru[i].capacity, rate_of(analysis.lru[i], analysis.requests),
        analysis.hot_sets.empty() ? "-" : rate_of(analysis.hot_sets[i], analysis.requests));
  }
  return text;
}

const char* checkpoints_text(const std::optional<bool>& same) {
  if (!same) return "Whether it is of the same checkpoint is not said.";
  return *same ? "Of the same checkpoint." : "Of ANOTHER checkpoint: its experts are not these.";
}

std::string comparison_text(const AnalysisSubject& subject, const RoutingComparison& comparison) {
  std::string text = fmt::format(
      "\n## Against {}\n\ntrace.bin SHA-256 {}. {} {}\n\n| layer | jac_token | same set | same "
      "first "
      "| weights | first token | overlap | divergence, bits | unique here, there, both "
      "|\n|---|---|---|---|---|---|---|---|---|\n",
      subject.against, subject.against_sha256, checkpoints_text(comparison.same_checkpoint),
      comparison.same_texts ? "The same texts, token against token."
                            : "Not known to be the same texts: usage is compared, tokens are not.");
  const auto numbers = [](const auto& c) {
    return fmt::format("{} | {} | {} | {}", rounded(c.token_jaccard, 3), rounded(c.same_set, 3),
                       rounded(c.same_first, 3), rounded(c.weight_distance, 4));
  };
  for (const LayerComparison& c : comparison.layers) {
    text += fmt::format("| {} | {} | {} | {:.3f} | {:.3f} | {}, {}, {} |\n", c.layer, numbers(c),
                        c.first_other ? std::to_string(*c.first_other) : "-", c.usage_overlap,
                        c.divergence_bits, c.distinct_here, c.distinct_there, c.distinct_both);
  }
  return text + fmt::format("| mean | {} | | {:.3f} | {:.3f} | |\n", numbers(comparison),
                            comparison.usage_overlap, comparison.divergence_bits);
}

}  // namespace

std::string analysis_markdown(const AnalysisSubject& subject, const RoutingAnalysis& analysis,
                              const std::optional<RoutingComparison>& comparison) {
  const TraceShape& shape = analysis.shape;
  std::string text = fmt::format(
      "# Routing of {}\n\n"
      "trace.bin SHA-256 {}. {} layers, {} tokens in {} texts, {} of {} experts a token; {} "
      "requests. What each column means: docs/routing.md.\n\n"
      "{} of {} (layer, expert) pairs were used; {} cover 80 % of the requests. Two unrelated "
      "choices would have a Jaccard index of {:.4f}.\n\n## Layers\n\n",
      subject.name, subject.sha256, analysis.layers.size(), shape.tokens,
      shape.documents.size() - 1, shape.chosen, shape.experts, analysis.requests,
      analysis.pairs_used, analysis.pairs, analysis.pairs_cover80, analysis.chance_jaccard);
  text += layer_table(analysis);
  text += "\n## Depth\n\nMeans over a quarter of the layers each.\n\n" + band_table(analysis);
  text +=
      "\n## Hit rates\n\nOf the requests of all layers, each layer with a memory of its own.\n\n";
  text += hits_table(analysis);
  if (comparison) text += comparison_text(subject, *comparison);
  return text;
}

void write_tables(const std::filesystem::path& folder, const RoutingAnalysis& analysis) {
  std::string layers = "layer\tunique\tuniform\tgini\tH_use_bits\teff_k\tjac_t\tjac_L\n";
  std::string prefix = "layer\ttokens\tdistinct\tuniform\n";
  std::string distance = "layer\tdistance\tpairs\tjac\n";
  std::string hits = "capacity\tlru\thot_set\n";
  for (const LayerAnalysis& a : analysis.layers) {
    const auto number = [](const std::optional<double>& value) {
      return value ? fmt::format("{}", *value) : "nan";
    };
    layers += fmt::format("{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}\n", a.layer, a.distinct,
                          a.expected_uniform, a.gini, a.entropy_bits, a.effective_chosen,
                          number(a.next_token_jaccard), number(a.next_layer_jaccard));
    for (const PrefixPoint& p : a.prefix) {
      prefix += fmt::format("{}\t{}\t{}\t{}\n", a.layer, p.tokens, p.distinct, p.expected_uniform);
    }
    for (const DistanceOverlap& d : a.distances) {
      distance += fmt::format("{}\t{}\t{}\t{}\n", a.layer, d.distance, d.pairs, d.jaccard);
    }
  }
  for (std::size_t i = 0; i < analysis.lru.size(); ++i) {
    hits += fmt::format(
        "{}\t{}\t{}\n", analysis.lru[i].capacity, rate_of(analysis.lru[i], analysis.requests),
        analysis.hot_sets.empty() ? "nan" : rate_of(analysis.hot_sets[i], analysis.requests));
  }
  store::write_file_durably(folder / "layers.tsv", layers);
  store::write_file_durably(folder / "prefix.tsv", prefix);
  store::write_file_durably(folder / "distance.tsv", distance);
  store::write_file_durably(folder / "hits.tsv", hits);
}

}  // namespace engine::measure
