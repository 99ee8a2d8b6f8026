#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/measure/layer_routing.h"

namespace engine::measure {

// How often each expert was chosen: c[e] for e = 0 ... E-1, R = sum of c = T k, p[e] = c[e] / R.
// Formulas with worked examples: docs/routing.md.

std::vector<std::int64_t> count_usage(const TraceShape& shape, const LayerRouting& routing);
// The same of some of the tokens, rows [first, last).
std::vector<std::int64_t> count_usage(const TraceShape& shape, const LayerRouting& routing,
                                      std::int64_t first, std::int64_t last);

// E (1 - (1 - k/E)^tokens): distinct experts if every token chose k at random.
// Order     the power by squaring, bits of `tokens` from the lowest
double expected_distinct(std::int64_t experts, std::int64_t chosen, std::int64_t tokens);

// Share of R that goes to the `most` most used experts; 1 if there are no more than that.
double top_share(std::span<const std::int64_t> counts, std::int64_t most);

// 2 (sum of i c(i)) / (E R) - (E + 1) / E with c(1) <= ... <= c(E): 0 if all are used alike,
// 1 - 1/E if one is used alone. Unused experts count.
double gini(std::span<const std::int64_t> counts);

// Sum of p^2 (Herfindahl-Hirschman): 1/E ... 1.
double hhi(std::span<const std::int64_t> counts);

// -sum of p log2 p over used experts, in bits.
// Order     experts ascending
double entropy_bits(std::span<const std::int64_t> counts);
double entropy_bits(std::span<const double> shares);

// p.
std::vector<double> shares_of(std::span<const std::int64_t> counts);

// The smallest number of counts whose sum is at least 80 % of all: 5 x sum >= 4 R, in integers.
std::int64_t cover80(std::span<const std::int64_t> counts);

// Mean over tokens of 2^H of the token's k weights divided by their sum: over how many experts a
// token spreads its weight, 1 ... k.
double effective_chosen(const TraceShape& shape, const LayerRouting& routing);

// 2^bits.
double power_of_two(double bits);

// Experts by use, the most used first, the lower number first among equals.
std::vector<std::int32_t> rank_by_use(std::span<const std::int64_t> counts);

}  // namespace engine::measure
