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
//
// Shape     x [T,H]; the inner width is that of the weights
// Order     bands of rows are taken in ascending order, each of them a part of a product's results or
//           of its chains: the bits are those of whole matrices. Bands of inner rows, a band of gate
//           and up with the columns of down that belong to it, would have been less memory, and
//           another order of the sums of down
// Cost      every band of the three is asked for once: gate, up, down
void glu_forward(const HalfContext& context, const DenseBands& w, std::int64_t inner,
                 const GluTargets& targets, std::span<const float> x, std::span<float> out);

// d_x [T,H] (+=) and the adapters' gradients (+=); recomputes the inner part.
//
// Cost      bands are asked for in the order down, up, gate, gate, up: a gate of one band is still
//           there when it is wanted again
void glu_backward(const HalfContext& context, const DenseBands& w, std::int64_t inner,
                  const GluTargets& targets, std::span<const float> x, std::span<const float> d_out,
                  std::span<float> d_x);

}  // namespace engine::model
