#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace engine::measure {

// A ratio of sums over units, and how far it would wander if other units of the same kind had been
// drawn.
struct BootstrapInterval {
  double low = 0.0;
  double high = 0.0;
};

inline constexpr std::int64_t kResamples = 10'000;

// sum numerator / sum denominator over units drawn with replacement, kResamples times; the interval
// holds the middle 95 % of these: sorted, from number 249 to number 9,750 (from 0). Nothing with
// fewer than two units.
//
// Paired differences come in as the numerator, unit by unit: the tempting wrong version draws units
// for either model by itself, and an interval of that difference is as wide as texts are different.
// Order     draw d of resample r is bits(r units + d) of CounterRng(seed, name), times units / 2^32;
//           sums from +0 in the order of the draws
// Accuracy  a unit is likelier than another by at most units / 2^32
// Cost      kResamples * units draws
std::optional<BootstrapInterval> bootstrap_ratio(std::span<const double> numerator,
                                                 std::span<const double> denominator,
                                                 std::uint64_t seed, std::string_view name);

}  // namespace engine::measure
