#pragma once

#include <span>

namespace engine::ops {

// y = sigmoid(x).   Shape  x, y [N] (=)
void sigmoid_forward(std::span<const float> x, std::span<float> y) noexcept;

// d_x = d_y y (1 - y), y being what forward returned.   Shape  all [N], d_x (=)
void sigmoid_backward(std::span<const float> d_y, std::span<const float> y,
                      std::span<float> d_x) noexcept;

// The output gate of both attentions: y = x sigmoid(gate).   Shape  all [N], y (=); y may be x
void output_gate_forward(std::span<const float> x, std::span<const float> gate,
                         std::span<float> y) noexcept;

// d_x = d_y sigmoid(gate);  d_gate = d_y x sigmoid'(gate).   Shape  all [N], d_x (=), d_gate (=);
// d_x may be d_y, d_gate may be gate
void output_gate_backward(std::span<const float> d_y, std::span<const float> x,
                          std::span<const float> gate, std::span<float> d_x,
                          std::span<float> d_gate) noexcept;

}  // namespace engine::ops
