#include "engine/measure/bootstrap.h"

#include <algorithm>
#include <cassert>
#include <vector>

#include "engine/base/parallel.h"
#include "engine/base/rng.h"

namespace engine::measure {

std::optional<BootstrapInterval> bootstrap_ratio(std::span<const double> numerator,
                                                 std::span<const double> denominator,
                                                 std::uint64_t seed, std::string_view name) {
  assert(numerator.size() == denominator.size());
  const std::uint64_t units = numerator.size();
  if (units < 2) return std::nullopt;
  const base::CounterRng rng(seed, name);
  std::vector<double> ratios(static_cast<std::size_t>(kResamples));
  base::parallel_for(kResamples, [&](std::int64_t r) {
    double above = 0.0, below = 0.0;
    for (std::uint64_t d = 0; d < units; ++d) {
      const std::uint64_t bits = rng.bits(static_cast<std::uint64_t>(r) * units + d);
      const std::uint64_t unit = (bits * units) >> 32;
      above += numerator[unit];
      below += denominator[unit];
    }
    ratios[static_cast<std::size_t>(r)] = above / below;
  });
  std::ranges::sort(ratios);
  constexpr std::int64_t kCut = (kResamples - 1) * 25 / 1000;
  return BootstrapInterval{ratios[kCut], ratios[kResamples - 1 - kCut]};
}

}  // namespace engine::measure
