#include "engine/measure/usage.h"

#include <algorithm>
#include <cassert>
#include <functional>
#include <numeric>

#include "engine/base/math.h"

namespace engine::measure {
namespace {

constexpr double kLn2 = 0x1.62e42fefa39efp-1;

std::int64_t sum_of(std::span<const std::int64_t> counts) {
  return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
}

// -p ln p, of which the limit at 0 is 0.
double surprise(double p) { return p > 0.0 ? -p * base::log(p) : 0.0; }

}  // namespace

std::vector<std::int64_t> count_usage(const TraceShape& shape, const LayerRouting& routing) {
  return count_usage(shape, routing, 0, shape.tokens);
}

std::vector<std::int64_t> count_usage(const TraceShape& shape, const LayerRouting& routing,
                                      std::int64_t first, std::int64_t last) {
  std::vector<std::int64_t> counts(static_cast<std::size_t>(shape.experts));
  for (std::int64_t at = first * shape.chosen; at < last * shape.chosen; ++at) {
    ++counts[static_cast<std::size_t>(routing.index[static_cast<std::size_t>(at)])];
  }
  return counts;
}

double expected_distinct(std::int64_t experts, std::int64_t chosen, std::int64_t tokens) {
  const auto all = static_cast<double>(experts);
  double square = static_cast<double>(experts - chosen) / all;
  double power = 1.0;
  for (std::int64_t bits = tokens; bits > 0; bits >>= 1) {
    if ((bits & 1) != 0) power *= square;
    square *= square;
  }
  return all * (1.0 - power);
}

double top_share(std::span<const std::int64_t> counts, std::int64_t most) {
  std::vector<std::int64_t> sorted(counts.begin(), counts.end());
  std::sort(sorted.begin(), sorted.end(), std::greater<>());
  const auto taken = std::min(sorted.size(), static_cast<std::size_t>(most));
  return static_cast<double>(sum_of(std::span(sorted).first(taken))) /
         static_cast<double>(sum_of(sorted));
}

double gini(std::span<const std::int64_t> counts) {
  std::vector<std::int64_t> sorted(counts.begin(), counts.end());
  std::sort(sorted.begin(), sorted.end());
  // 2 sum i c(i) - (E + 1) R, exact; below 2^63 for 2^15 experts and 2^46 requests.
  const auto experts = static_cast<std::int64_t>(sorted.size());
  std::int64_t numerator = 0;
  for (std::int64_t i = 1; i <= experts; ++i) {
    numerator += (2 * i - experts - 1) * sorted[static_cast<std::size_t>(i - 1)];
  }
  return static_cast<double>(numerator) / static_cast<double>(experts) /
         static_cast<double>(sum_of(sorted));
}

double hhi(std::span<const std::int64_t> counts) {
  double sum = 0.0;
  for (const double p : shares_of(counts)) sum += p * p;
  return sum;
}

std::vector<double> shares_of(std::span<const std::int64_t> counts) {
  const auto all = static_cast<double>(sum_of(counts));
  std::vector<double> shares;
  shares.reserve(counts.size());
  for (const std::int64_t count : counts) shares.push_back(static_cast<double>(count) / all);
  return shares;
}

double entropy_bits(std::span<const double> shares) {
  double nats = 0.0;
  for (const double p : shares) nats += surprise(p);
  return nats / kLn2;
}

double entropy_bits(std::span<const std::int64_t> counts) {
  return entropy_bits(shares_of(counts));
}

std::int64_t cover80(std::span<const std::int64_t> counts) {
  std::vector<std::int64_t> sorted(counts.begin(), counts.end());
  std::sort(sorted.begin(), sorted.end(), std::greater<>());
  const std::int64_t all = sum_of(sorted);
  std::int64_t covered = 0;
  std::int64_t taken = 0;
  while (5 * covered < 4 * all) covered += sorted[static_cast<std::size_t>(taken++)];
  return taken;
}

double effective_chosen(const TraceShape& shape, const LayerRouting& routing) {
  double sum = 0.0;
  for (std::int64_t token = 0; token < shape.tokens; ++token) {
    const auto weights = std::span(routing.weight)
                             .subspan(static_cast<std::size_t>(token * shape.chosen),
                                      static_cast<std::size_t>(shape.chosen));
    double all = 0.0;
    for (const float weight : weights) all += static_cast<double>(weight);
    double nats = 0.0;
    for (const float weight : weights) nats += surprise(static_cast<double>(weight) / all);
    sum += base::exp(nats);
  }
  return sum / static_cast<double>(shape.tokens);
}

double power_of_two(double bits) { return base::exp(bits * kLn2); }

std::vector<std::int32_t> rank_by_use(std::span<const std::int64_t> counts) {
  std::vector<std::int32_t> ranked(counts.size());
  std::iota(ranked.begin(), ranked.end(), 0);
  std::stable_sort(ranked.begin(), ranked.end(), [&](std::int32_t a, std::int32_t b) {
    return counts[static_cast<std::size_t>(a)] > counts[static_cast<std::size_t>(b)];
  });
  return ranked;
}

}  // namespace engine::measure
