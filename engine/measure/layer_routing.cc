#include "engine/measure/layer_routing.h"

#include <algorithm>
#include <cassert>
#include <cmath>

#include "engine/base/error.h"

namespace engine::measure {

void require_sound(const TraceShape& shape, const LayerRouting& routing, const std::string& where) {
  assert(static_cast<std::int64_t>(routing.index.size()) == shape.requests());
  assert(routing.weight.size() == routing.index.size());
  std::vector<std::int64_t> last(static_cast<std::size_t>(shape.experts), -1);
  for (std::int64_t token = 0; token < shape.tokens; ++token) {
    float sum = 0.0f;
    for (std::int64_t place = 0; place < shape.chosen; ++place) {
      const auto at = static_cast<std::size_t>(token * shape.chosen + place);
      const std::int32_t expert = routing.index[at];
      const float weight = routing.weight[at];
      if (expert < 0 || expert >= shape.experts) {
        throw base::Error("{}: layer {}, token {}, place {}: expert {}, there are 0 ... {}", where,
                          routing.layer, token, place, expert, shape.experts - 1);
      }
      if (last[static_cast<std::size_t>(expert)] == token) {
        throw base::Error("{}: layer {}, token {}: expert {} is chosen twice", where, routing.layer,
                          token, expert);
      }
      last[static_cast<std::size_t>(expert)] = token;
      if (!(std::isfinite(weight) && weight >= 0.0f)) {
        throw base::Error(
            "{}: layer {}, token {}, place {}: weight {} is not 0 or a positive number", where,
            routing.layer, token, place, weight);
      }
      sum += weight;
    }
    if (!(sum > 0.0f)) {
      throw base::Error("{}: layer {}, token {}: the {} weights sum to {}", where, routing.layer,
                        token, shape.chosen, sum);
    }
  }
}

std::int64_t distinct_experts(const TraceShape& shape, const LayerRouting& routing) {
  std::vector<bool> seen(static_cast<std::size_t>(shape.experts));
  for (const std::int32_t expert : routing.index) seen[static_cast<std::size_t>(expert)] = true;
  return std::count(seen.begin(), seen.end(), true);
}

}  // namespace engine::measure
