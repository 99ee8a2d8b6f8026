#pragma once

#include <cstdint>
#include <span>

namespace engine::ops {

struct RouterShape {
  std::int64_t experts = 0;  // E
  std::int64_t chosen = 0;   // k <= 64
  bool renormalize = true;   // applies only if k > 1
  float scaling = 1.0f;      // routed_scaling_factor
};

// s = sigmoid(logits); the k largest of s + bias (ties: the lowest id) in descending order; weights
// from the UNBIASED s: w_j = s_j, over (sum_j s_j + 1e-20) if renormalised, times scaling.
//
// Shape     logits [T,E]   bias [E]   index [T,k] (=)   weight [T,k] (=)   gap [T] (=) or empty:
//           last chosen minus first rejected selection score (infinity if k = E)
// Accuracy  s and s + b in float32; the denominator in double, in rank order; weights rounded once
// Errors    a NaN logit ranks first and makes its weight NaN; every index is a valid id
void router_forward(std::span<const float> logits, std::span<const float> bias, RouterShape shape,
                    std::span<std::int32_t> index, std::span<float> weight,
                    std::span<float> gap) noexcept;

// Combining weights for a choice that was made before; the backward pass replays it, never
// re-decides.
//
// Shape     logits [T,E]   index [T,k]   weight [T,k] (=), the bits that router_forward gave
void router_weights(std::span<const float> logits, std::span<const std::int32_t> index,
                    RouterShape shape, std::span<float> weight) noexcept;

// Through the weights only: the choice is a constant and the bias gets nothing.
//
// Shape     d_weight [T,k]   logits [T,E]   index [T,k]   d_logits [T,E] (=), zero where not chosen
// Accuracy  s' = sigmoid(x) sigmoid(-x), not s (1 - s), which is 0 where s rounds to 1; the rest in
//           double
void router_backward(std::span<const float> d_weight, std::span<const float> logits,
                     std::span<const std::int32_t> index, RouterShape shape,
                     std::span<float> d_logits) noexcept;

}  // namespace engine::ops
