#include "engine/data/selection.h"

#include <algorithm>
#include <numeric>
#include <tuple>

#include "engine/base/error.h"
#include "engine/base/rng.h"

namespace engine::data {

std::uint64_t selection_key(std::uint64_t seed, const std::string& digest) {
  const base::CounterRng rng(seed, "selection of record " + digest);
  return std::uint64_t{rng.bits(0)} << 32 | rng.bits(1);
}

std::vector<std::int64_t> select(std::span<const Candidate> candidates, std::int32_t strata,
                                 std::int64_t count) {
  const auto total = static_cast<std::int64_t>(candidates.size());
  if (count > total) throw base::Error("{} records are wanted, {} are left", count, total);
  std::vector<std::vector<std::int64_t>> of(static_cast<std::size_t>(strata));
  for (std::int64_t i = 0; i < total; ++i) of[candidates[i].stratum].push_back(i);

  // Below 2^31 records each, so the products fit.
  std::vector<std::int64_t> share(of.size()), order(of.size());
  std::iota(order.begin(), order.end(), 0);
  std::int64_t given = 0;
  for (std::size_t s = 0; s < of.size(); ++s) {
    share[s] = total == 0 ? 0 : count * std::ssize(of[s]) / total;
    given += share[s];
  }
  const auto remainder = [&](std::int64_t s) { return count * std::ssize(of[s]) % total; };
  std::ranges::stable_sort(
      order, [&](std::int64_t a, std::int64_t b) { return remainder(a) > remainder(b); });
  for (std::size_t i = 0; given < count; ++i, ++given) ++share[order[i]];

  std::vector<std::int64_t> chosen;
  for (std::size_t s = 0; s < of.size(); ++s) {
    std::ranges::sort(of[s], [&](std::int64_t a, std::int64_t b) {
      return std::tie(candidates[a].key, a) < std::tie(candidates[b].key, b);
    });
    chosen.insert(chosen.end(), of[s].begin(), of[s].begin() + share[s]);
  }
  std::ranges::sort(chosen);
  return chosen;
}

}  // namespace engine::data
