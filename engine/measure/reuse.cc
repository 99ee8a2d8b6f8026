#include "engine/measure/reuse.h"

#include <algorithm>
#include <cassert>

#include "engine/measure/usage.h"

namespace engine::measure {
namespace {

// Sums of prefixes under changes of single places (Fenwick's tree).
class PrefixSums {
 public:
  explicit PrefixSums(std::size_t size) : tree_(size + 1) {}

  void add(std::size_t place, std::int64_t value) {
    for (std::size_t i = place + 1; i < tree_.size(); i += i & (~i + 1)) tree_[i] += value;
  }
  // Of places 0 ... place-1.
  std::int64_t before(std::size_t place) const {
    std::int64_t sum = 0;
    for (std::size_t i = place; i > 0; i -= i & (~i + 1)) sum += tree_[i];
    return sum;
  }

 private:
  std::vector<std::int64_t> tree_;
};

}  // namespace

std::vector<std::int64_t> reuse_distances(std::span<const std::int32_t> requests,
                                          std::int64_t keys) {
  std::vector<std::int64_t> distances(static_cast<std::size_t>(keys) + 1);
  std::vector<std::int64_t> last(static_cast<std::size_t>(keys), -1);
  // One at the newest request of every key: between two requests of a key, what others left there.
  PrefixSums newest(requests.size());
  std::int64_t seen = 0;
  for (std::size_t now = 0; now < requests.size(); ++now) {
    assert(requests[now] >= 0 && requests[now] < keys);
    std::int64_t& before = last[static_cast<std::size_t>(requests[now])];
    if (before < 0) {
      ++distances[0];
      ++seen;
    } else {
      const auto place = static_cast<std::size_t>(before);
      ++distances[static_cast<std::size_t>(seen - newest.before(place))];
      newest.add(place, -1);
    }
    newest.add(now, 1);
    before = static_cast<std::int64_t>(now);
  }
  return distances;
}

std::vector<CapacityHits> lru_hits(std::span<const std::int32_t> requests, std::int64_t keys,
                                   std::span<const std::int64_t> capacities) {
  const std::vector<std::int64_t> distances = reuse_distances(requests, keys);
  std::vector<CapacityHits> hits;
  for (const std::int64_t capacity : capacities) {
    CapacityHits row{capacity, 0};
    for (std::int64_t d = 1; d <= std::min(capacity, keys); ++d) {
      row.hits += distances[static_cast<std::size_t>(d)];
    }
    hits.push_back(row);
  }
  return hits;
}

std::vector<CapacityHits> hot_set_hits(const TraceShape& shape, const LayerRouting& routing,
                                       std::span<const std::int64_t> capacities) {
  if (shape.documents.size() <= 2) return {};
  std::vector<CapacityHits> hits;
  for (const std::int64_t capacity : capacities) hits.push_back({capacity, 0});
  const std::vector<std::int64_t> all = count_usage(shape, routing);
  for (std::size_t d = 0; d + 1 < shape.documents.size(); ++d) {
    const std::vector<std::int64_t> own =
        count_usage(shape, routing, shape.documents[d], shape.documents[d + 1]);
    std::vector<std::int64_t> others = all;
    for (std::size_t e = 0; e < own.size(); ++e) others[e] -= own[e];
    const std::vector<std::int32_t> ranked = rank_by_use(others);
    for (CapacityHits& row : hits) {
      const auto most = std::min<std::int64_t>(row.capacity, shape.experts);
      for (std::int64_t i = 0; i < most; ++i) {
        row.hits += own[static_cast<std::size_t>(ranked[static_cast<std::size_t>(i)])];
      }
    }
  }
  return hits;
}

}  // namespace engine::measure
