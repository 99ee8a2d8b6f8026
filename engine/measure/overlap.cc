#include "engine/measure/overlap.h"

#include <algorithm>
#include <cassert>
#include <numeric>

namespace engine::measure {
namespace {

double jaccard_of(std::int64_t common, std::int64_t chosen) {
  return static_cast<double>(common) / static_cast<double>(2 * chosen - common);
}

}  // namespace

void Overlap::add(const Overlap& other) {
  assert(other.pairs_with_.size() == pairs_with_.size());
  for (std::size_t i = 0; i < pairs_with_.size(); ++i) pairs_with_[i] += other.pairs_with_[i];
}

std::int64_t Overlap::pairs() const {
  return std::accumulate(pairs_with_.begin(), pairs_with_.end(), std::int64_t{0});
}

std::optional<double> Overlap::jaccard() const {
  if (pairs() == 0) return std::nullopt;
  const auto chosen = static_cast<std::int64_t>(pairs_with_.size()) - 1;
  double sum = 0.0;
  for (std::int64_t common = 0; common <= chosen; ++common) {
    sum += static_cast<double>(pairs_with_[static_cast<std::size_t>(common)]) *
           jaccard_of(common, chosen);
  }
  return sum / static_cast<double>(pairs());
}

std::optional<double> Overlap::reuse() const {
  if (pairs() == 0) return std::nullopt;
  const auto chosen = static_cast<std::int64_t>(pairs_with_.size()) - 1;
  std::int64_t sum = 0;
  for (std::int64_t common = 0; common <= chosen; ++common) {
    sum += common * pairs_with_[static_cast<std::size_t>(common)];
  }
  return static_cast<double>(sum) / static_cast<double>(chosen * pairs());
}

std::optional<double> Overlap::equal() const {
  if (pairs() == 0) return std::nullopt;
  return static_cast<double>(pairs_with_.back()) / static_cast<double>(pairs());
}

TokenSets::TokenSets(const TraceShape& shape, const LayerRouting& routing)
    : chosen_(shape.chosen), sorted_(routing.index) {
  for (std::int64_t token = 0; token < shape.tokens; ++token) {
    const auto row = sorted_.begin() + token * chosen_;
    std::sort(row, row + chosen_);
  }
}

std::int64_t common_experts(std::span<const std::int32_t> a, std::span<const std::int32_t> b) {
  std::int64_t common = 0;
  for (std::size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    if (a[i] == b[j]) ++common;
    const bool both = a[i] == b[j];
    const bool first = a[i] < b[j];
    if (both || first) ++i;
    if (both || !first) ++j;
  }
  return common;
}

Overlap overlap_at_distance(const TraceShape& shape, const TokenSets& sets, std::int64_t distance) {
  Overlap overlap(shape.chosen);
  for (std::size_t d = 0; d + 1 < shape.documents.size(); ++d) {
    for (std::int64_t t = shape.documents[d]; t + distance < shape.documents[d + 1]; ++t) {
      overlap.add(common_experts(sets.of(t), sets.of(t + distance)));
    }
  }
  return overlap;
}

Overlap overlap_of_tokens(const TraceShape& shape, const TokenSets& a, const TokenSets& b) {
  Overlap overlap(shape.chosen);
  for (std::int64_t t = 0; t < shape.tokens; ++t) overlap.add(common_experts(a.of(t), b.of(t)));
  return overlap;
}

double chance_jaccard(std::int64_t experts, std::int64_t chosen) {
  // Each proportion from the one before; all are scaled down together when they would leave double.
  constexpr double kLarge = 0x1p512;
  const std::int64_t least = std::max<std::int64_t>(0, 2 * chosen - experts);
  double proportion = 1.0;
  double all = 0.0;
  double sum = 0.0;
  for (std::int64_t i = least; i <= chosen; ++i) {
    all += proportion;
    sum += proportion * jaccard_of(i, chosen);
    const auto up = static_cast<double>((chosen - i) * (chosen - i));
    const auto down = static_cast<double>((i + 1) * (experts - 2 * chosen + i + 1));
    proportion *= up / down;
    if (proportion > kLarge) {
      proportion /= kLarge;
      all /= kLarge;
      sum /= kLarge;
    }
  }
  return sum / all;
}

}  // namespace engine::measure
