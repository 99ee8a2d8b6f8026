#pragma once

#include "engine/measure/layer_routing.h"

namespace checks {

// Four experts, two a token, a text of four tokens and one of two. Every value that the checks want
// of it was worked out on paper, beside the test.
inline engine::measure::TraceShape toy_shape() { return {4, 6, 2, {0, 4, 6}}; }

//   token        0      1      2      3    |   4      5
//   experts     0 1    1 0    2 1    0 3   |  1 2    2 1
//   weights    .5 .5   1 0   .5 .5   2 2   |  1 0   .25 .25
inline engine::measure::LayerRouting toy_layer() {
  return {1,
          {0, 1, 1, 0, 2, 1, 0, 3, 1, 2, 2, 1},
          {0.5f, 0.5f, 1.0f, 0.0f, 0.5f, 0.5f, 2.0f, 2.0f, 1.0f, 0.0f, 0.25f, 0.25f}};
}

//   experts     0 1    2 3    1 2    3 1   |  0 1    0 3
inline engine::measure::LayerRouting toy_layer_behind() {
  return {2, {0, 1, 2, 3, 1, 2, 3, 1, 0, 1, 0, 3}, std::vector<float>(12, 0.5f)};
}

//   experts     0 1    0 1    0 1    0 1   |  2 3    2 3
inline engine::measure::LayerRouting toy_last_layer() {
  return {4, {0, 1, 0, 1, 0, 1, 0, 1, 2, 3, 2, 3}, std::vector<float>(12, 0.5f)};
}

}  // namespace checks
