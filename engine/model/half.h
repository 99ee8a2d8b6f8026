#pragma once

#include <cstdint>
#include <span>

#include "engine/base/arena.h"
#include "engine/model/adapter_set.h"
#include "engine/model/config.h"
#include "engine/model/trace.h"
#include "engine/ops/documents.h"

namespace engine::model {

class CarriedState;

// What every half of a layer is told besides its weights. The arena holds activations; a half that
// is only being measured carves from a measuring arena and computes nothing.
struct HalfContext {
  const Config& config;
  std::int64_t layer = 0;
  std::int64_t tokens = 0;
  ops::Documents documents;
  const AdapterSet* adapters = nullptr;
  base::Arena& arena;
  Tracer tracer;
  // Not null: the tokens are the next ones of one sequence, see carried_state.h. Never backward.
  CarriedState* carried = nullptr;

  bool measuring() const { return arena.measuring(); }
  std::span<float> floats(std::int64_t count) const { return arena.take<float>(count); }
  const AdapterPair* adapter(Target target) const {
    return adapters == nullptr ? nullptr : adapters->find(layer, target);
  }
};

// The part of an adapter that is as long as the batch, [T,R] each; empty where there is no adapter.
struct LowRank {
  std::span<float> u;    // A x
  std::span<float> d_u;  // scale B^T d_y
};
LowRank carve_adapter(const HalfContext& context, Target target);

// The functions below do nothing where there is no adapter.

// u = A x
void adapter_low(const HalfContext& context, Target target, std::span<const float> x,
                 const LowRank& low);

// y += scale B (A x); leaves u for backward.
void adapter_forward(const HalfContext& context, Target target, std::span<const float> x,
                     const LowRank& low, std::span<float> y);

// d_x += scale A^T B^T d_y alone.
void adapter_input_gradient(const HalfContext& context, Target target, std::span<const float> d_y,
                            const LowRank& low, std::span<float> d_x);

// d_x += scale A^T B^T d_y (unless d_x is empty), and the adapter's own gradients (+=).
void adapter_backward(const HalfContext& context, Target target, std::span<const float> d_y,
                      std::span<const float> x, const LowRank& low, std::span<float> d_x);

}  // namespace engine::model
