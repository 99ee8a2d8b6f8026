#include "engine/measure/routing_comparison.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "engine/base/error.h"
#include "engine/measure/overlap.h"
#include "engine/measure/usage.h"

namespace engine::measure {
namespace {

using base::Error;

bool are_of_the_same_texts(const RoutingTrace& here, const RoutingTrace& there) {
  if (!here.manifest() || !there.manifest()) return false;
  const auto& a = here.manifest()->documents;
  const auto& b = there.manifest()->documents;
  return !a.empty() &&
         std::ranges::equal(a, b, [](const TracedDocument& x, const TracedDocument& y) {
           return !x.ids_sha256.empty() && x.ids_sha256 == y.ids_sha256 && x.tokens == y.tokens;
         });
}

std::optional<bool> are_of_one_checkpoint(const RoutingTrace& here, const RoutingTrace& there) {
  if (!here.manifest() || !there.manifest()) return std::nullopt;
  const TraceManifest& a = *here.manifest();
  const TraceManifest& b = *there.manifest();
  for (const std::string* said :
       {&a.config_sha256, &b.config_sha256, &a.headers_sha256, &b.headers_sha256}) {
    if (said->empty()) return std::nullopt;
  }
  return a.config_sha256 == b.config_sha256 && a.headers_sha256 == b.headers_sha256;
}

void require_comparable(const RoutingTrace& here, const RoutingTrace& there) {
  const auto require_equal = [&](const char* what, std::int64_t a, std::int64_t b) {
    if (a != b) throw Error("{}: {} {}, {} in {}", here.name(), a, what, b, there.name());
  };
  require_equal("experts a layer", here.shape().experts, there.shape().experts);
  require_equal("experts a token", here.shape().chosen, there.shape().chosen);
  require_equal("layers", static_cast<std::int64_t>(here.layers().size()),
                static_cast<std::int64_t>(there.layers().size()));
  for (std::size_t i = 0; i < here.layers().size(); ++i) {
    require_equal("is a layer", here.layers()[i], there.layers()[i]);
  }
}

// The weights of a token by expert, summing to 1.
std::map<std::int32_t, double> weights_of(const TraceShape& shape, const LayerRouting& routing,
                                          std::int64_t token) {
  std::map<std::int32_t, double> shares;
  double all = 0.0;
  for (std::int64_t place = 0; place < shape.chosen; ++place) {
    const auto at = static_cast<std::size_t>(token * shape.chosen + place);
    shares[routing.index[at]] = static_cast<double>(routing.weight[at]);
    all += static_cast<double>(routing.weight[at]);
  }
  for (auto& [expert, share] : shares) share /= all;
  return shares;
}

double half_distance(const std::map<std::int32_t, double>& a,
                     const std::map<std::int32_t, double>& b) {
  double sum = 0.0;
  for (const auto& [expert, share] : a) {
    const auto found = b.find(expert);
    sum += std::abs(share - (found == b.end() ? 0.0 : found->second));
  }
  for (const auto& [expert, share] : b) sum += a.contains(expert) ? 0.0 : share;
  return sum / 2.0;
}

void compare_tokens(const TraceShape& shape, const LayerRouting& here, const LayerRouting& there,
                    LayerComparison& result) {
  const TokenSets a(shape, here);
  const TokenSets b(shape, there);
  const Overlap overlap = overlap_of_tokens(shape, a, b);
  result.token_jaccard = overlap.jaccard();
  result.same_set = overlap.equal();
  std::int64_t same_first = 0;
  double distance = 0.0;
  for (std::int64_t t = 0; t < shape.tokens; ++t) {
    const auto first = static_cast<std::size_t>(t * shape.chosen);
    same_first += here.index[first] == there.index[first] ? 1 : 0;
    distance += half_distance(weights_of(shape, here, t), weights_of(shape, there, t));
    if (!result.first_other && !std::ranges::equal(a.of(t), b.of(t))) result.first_other = t;
  }
  result.same_first = static_cast<double>(same_first) / static_cast<double>(shape.tokens);
  result.weight_distance = distance / static_cast<double>(shape.tokens);
}

}  // namespace

LayerComparison compare_layers(const TraceShape& here_shape, const LayerRouting& here,
                               const TraceShape& there_shape, const LayerRouting& there,
                               bool same_texts) {
  LayerComparison result;
  result.layer = here.layer;
  if (same_texts) compare_tokens(here_shape, here, there, result);
  const std::vector<double> p = shares_of(count_usage(here_shape, here));
  const std::vector<double> q = shares_of(count_usage(there_shape, there));
  std::vector<double> mixed(p.size());
  for (std::size_t e = 0; e < p.size(); ++e) {
    mixed[e] = (p[e] + q[e]) / 2.0;
    result.usage_overlap += std::min(p[e], q[e]);
    result.distinct_here += p[e] > 0.0 ? 1 : 0;
    result.distinct_there += q[e] > 0.0 ? 1 : 0;
    result.distinct_both += p[e] > 0.0 && q[e] > 0.0 ? 1 : 0;
  }
  // Rounding may leave what is 0 a little below it.
  result.divergence_bits =
      std::max(0.0, entropy_bits(mixed) - (entropy_bits(p) + entropy_bits(q)) / 2.0);
  return result;
}

RoutingComparison compare(const RoutingTrace& here, const RoutingTrace& there,
                          base::RamBudget& budget) {
  require_comparable(here, there);
  const base::Charge held(
      budget, "a layer of each trace",
      here.bytes_of_a_layer() + there.bytes_of_a_layer() +
          4 * static_cast<std::uint64_t>(here.shape().requests() + there.shape().requests()));
  RoutingComparison result;
  result.same_texts = are_of_the_same_texts(here, there);
  result.same_checkpoint = are_of_one_checkpoint(here, there);
  for (std::size_t i = 0; i < here.layers().size(); ++i) {
    result.layers.push_back(compare_layers(here.shape(), here.read(i), there.shape(), there.read(i),
                                           result.same_texts));
  }
  const auto count = static_cast<double>(result.layers.size());
  for (const LayerComparison& layer : result.layers) {
    result.usage_overlap += layer.usage_overlap;
    result.divergence_bits += layer.divergence_bits;
    const auto add = [&](std::optional<double>& sum, const std::optional<double>& value) {
      if (value) sum = sum.value_or(0.0) + *value;
    };
    add(result.token_jaccard, layer.token_jaccard);
    add(result.same_set, layer.same_set);
    add(result.same_first, layer.same_first);
    add(result.weight_distance, layer.weight_distance);
  }
  // Divided once: a sum of quotients leaves a trace with itself a little beside 1.
  result.usage_overlap /= count;
  result.divergence_bits /= count;
  for (auto* sum :
       {&result.token_jaccard, &result.same_set, &result.same_first, &result.weight_distance}) {
    if (*sum) **sum /= count;
  }
  return result;
}

}  // namespace engine::measure
