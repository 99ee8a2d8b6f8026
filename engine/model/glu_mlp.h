#pragma once

#include <cstdint>
#include <span>

#include "engine/model/half.h"
#include "engine/model/layer_weights.h"

namespace engine::model {

// down(SiTU-GLU(gate x, up x)) with adapters on all three: layer 0's dense MLP and, with another
// width and other targets, the shared experts of every other layer.
struct GluTargets {
  Target gate, up, down;
};
inline constexpr GluTargets kDenseTargets = {Target::kDenseGate, Target::kDenseUp,
                                             Target::kDenseDown};
inline constexpr GluTargets kSharedTargets = {Target::kSharedGate, Target::kSharedUp,
                                              Target::kSharedDown};

// out [T,H] (=)
// Shape     x [T,H]; the inner width is that of the weights
void glu_forward(const HalfContext& context, const DenseWeights& w, std::int64_t inner,
                 const GluTargets& targets, std::span<const float> x, std::span<float> out);

// d_x [T,H] (+=) and the adapters' gradients (+=); recomputes the inner part.
void glu_backward(const HalfContext& context, const DenseWeights& w, std::int64_t inner,
                  const GluTargets& targets, std::span<const float> x, std::span<const float> d_out,
                  std::span<float> d_x);

}  // namespace engine::model
