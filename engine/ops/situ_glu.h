#pragma once

#include <span>

namespace engine::ops {

struct SituBetas {
  float gate = 0.0f;    // beta1, caps the gate branch
  float linear = 0.0f;  // beta2, caps the linear branch
};

// out = beta1 tanh(a / beta1) sigmoid(a) * beta2 tanh(u / beta2).
// The sigmoid gets the uncapped a: sigmoid(beta1 tanh(a / beta1)) is the tempting wrong version.
//
// Shape     a, u, out [N] (=)
void situ_glu_forward(std::span<const float> a, std::span<const float> u, SituBetas betas,
                      std::span<float> out) noexcept;

// Shape     d_out, a, u [N]   d_a, d_u [N] (=); d_a may be a's own storage, d_u u's
void situ_glu_backward(std::span<const float> d_out, std::span<const float> a,
                       std::span<const float> u, SituBetas betas, std::span<float> d_a,
                       std::span<float> d_u) noexcept;

}  // namespace engine::ops
