#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace engine::train {

struct AdamwSettings {
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0.01;
  double clip = 1.0;
};

// A trained tensor. An empty gradient is a zero gradient: the moments decay, the value still moves.
struct AdamwTensor {
  std::string_view name;
  std::span<float> values;
  std::span<const float> gradient;
  std::span<float> m;
  std::span<float> v;
  bool on_disk = false;  // all four are ScratchFloats, to be put away when used
};
// Of a tensor on disk what is there; no other has anything to put away.
void put_away(const AdamwTensor& tensor) noexcept;

// What the update needs to know of the steps before: beta^t as repeated products. A library's pow
// would give other last bits on other machines.
class AdamwClock {
 public:
  // A clock that has seen `steps` steps; as many multiplications.
  explicit AdamwClock(const AdamwSettings& settings, std::int64_t steps = 0) : settings_(settings) {
    for (std::int64_t t = 0; t < steps; ++t) tick();
  }
  void tick() {
    beta1_power_ *= settings_.beta1;
    beta2_power_ *= settings_.beta2;
  }
  double correction1() const { return 1.0 - beta1_power_; }
  double correction2() const { return 1.0 - beta2_power_; }

 private:
  AdamwSettings settings_;
  double beta1_power_ = 1.0;
  double beta2_power_ = 1.0;
};

struct AdamwNorm {
  double norm = 0.0;   // of all gradients together, before clipping
  double scale = 1.0;  // what every gradient is multiplied by: clip / (norm + 1e-6) if norm > clip
};

// The norm in double, and the clip that follows from it. Nothing is changed.
//
// Order     in a tensor: element i to sum i mod 8, then ((0+4)+(2+6)) + ((1+5)+(3+7)); tensors
//           in the order given, which is native-name order
// Errors    Error naming the first tensor with a gradient that is not finite
AdamwNorm adamw_norm(std::span<const AdamwTensor> tensors, double clip);

// One step of torch.optim.AdamW, decoupled weight decay:
//   g <- g scale;  theta <- theta (1 - lr wd);  m <- b1 m + (1 - b1) g;  v <- b2 v + (1 - b2) g g
//   theta <- theta - lr (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + eps)
// eps stands outside the root of the CORRECTED v; wd (or lr wd theta) is never added to g.
//
// Accuracy  scalars in double, rounded once; elements in float32, every operation rounded, no fma
void adamw_update(std::span<const AdamwTensor> tensors, const AdamwSettings& settings,
                  double learning_rate, double scale, const AdamwClock& clock) noexcept;

}  // namespace engine::train
