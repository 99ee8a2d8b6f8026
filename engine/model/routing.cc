#include "engine/model/routing.h"

#include <algorithm>

namespace engine::model {

RoutingTable::RoutingTable(base::Arena& arena, std::int64_t tokens, std::int64_t experts,
                           std::int64_t chosen)
    : chosen_(chosen),
      begin_(arena.take<std::int32_t>(experts + 1)),
      token_(arena.take<std::int32_t>(tokens * chosen)),
      place_(arena.take<std::int32_t>(tokens * chosen)),
      weight_(arena.take<float>(tokens * chosen)) {}

// A counting sort: begin_ first counts, then holds where each group starts.
void RoutingTable::build(std::span<const std::int32_t> index, std::span<const float> weight) {
  std::fill(begin_.begin(), begin_.end(), 0);
  for (const std::int32_t expert : index) ++begin_[static_cast<std::size_t>(expert) + 1];
  for (std::size_t e = 1; e < begin_.size(); ++e) begin_[e] += begin_[e - 1];
  for (std::size_t place = 0; place < index.size(); ++place) {
    const auto at = static_cast<std::size_t>(begin_[static_cast<std::size_t>(index[place])]++);
    token_[at] = static_cast<std::int32_t>(static_cast<std::int64_t>(place) / chosen_);
    place_[at] = static_cast<std::int32_t>(place);
    weight_[at] = weight[place];
  }
  for (std::size_t e = begin_.size() - 1; e > 0; --e) begin_[e] = begin_[e - 1];
  begin_[0] = 0;
}

ops::ExpertTokens RoutingTable::tokens_of(std::int32_t expert) const {
  const auto first = static_cast<std::size_t>(begin_[static_cast<std::size_t>(expert)]);
  const auto last = static_cast<std::size_t>(begin_[static_cast<std::size_t>(expert) + 1]);
  return {token_.subspan(first, last - first), weight_.subspan(first, last - first)};
}

std::span<const std::int32_t> RoutingTable::places_of(std::int32_t expert) const {
  const auto first = static_cast<std::size_t>(begin_[static_cast<std::size_t>(expert)]);
  const auto last = static_cast<std::size_t>(begin_[static_cast<std::size_t>(expert) + 1]);
  return place_.subspan(first, last - first);
}

std::int64_t RoutingTable::largest_group() const {
  std::int32_t largest = 0;
  for (std::size_t e = 1; e < begin_.size(); ++e) {
    largest = std::max(largest, begin_[e] - begin_[e - 1]);
  }
  return largest;
}

std::int64_t RoutingTable::distinct() const {
  std::int64_t count = 0;
  for (std::size_t e = 1; e < begin_.size(); ++e) count += begin_[e] > begin_[e - 1] ? 1 : 0;
  return count;
}

}  // namespace engine::model
