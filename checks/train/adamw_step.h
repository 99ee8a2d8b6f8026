#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/base/rng.h"
#include "engine/train/adamw.h"

namespace checks {

inline constexpr double kRounding = 0x1p-24;  // u: half an ulp of float32, relative

struct TrainedTensor {
  std::string name;
  std::vector<float> values, gradient, m, v;
};

inline std::vector<engine::train::AdamwTensor> views(std::vector<TrainedTensor>& tensors) {
  std::vector<engine::train::AdamwTensor> result;
  for (TrainedTensor& t : tensors) result.push_back({t.name, t.values, t.gradient, t.m, t.v});
  return result;
}

inline std::vector<float> random_values(std::uint64_t seed, const std::string& name,
                                        std::size_t count) {
  const engine::base::CounterRng rng(seed, name);
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = 2.0f * rng.uniform(i) - 1.0f;
  return values;
}

// A step of the engine, or of one of the wrong optimisers that look like it.
enum class AdamwFault {
  kNone,
  kCoupledDecay,         // wd added to the gradient
  kNoCorrection,         // m and v as they are
  kEpsInsideRoot,        // sqrt(v/c + eps)
  kEpsBeforeCorrection,  // (sqrt(v) + eps) / sqrt(c): eps grows by 1 / sqrt(c)
  kNoClip,
  kScheduleLate,  // lr of the step before
  kNoMoments,     // both start at zero every step: a resume without them
};

inline void faulty_update(std::vector<TrainedTensor>& tensors,
                          const engine::train::AdamwSettings& s, double lr, double scale,
                          std::int64_t t, AdamwFault fault) {
  const double b1 = 1.0 - std::pow(s.beta1, t);
  const double b2 = 1.0 - std::pow(s.beta2, t);
  const auto c1 = static_cast<float>(fault == AdamwFault::kNoCorrection ? 1.0 : b1);
  const auto c2 = static_cast<float>(fault == AdamwFault::kNoCorrection ? 1.0 : b2);
  const auto rate = static_cast<float>(lr);
  const auto eps = static_cast<float>(s.eps);
  for (TrainedTensor& x : tensors) {
    for (std::size_t i = 0; i < x.values.size(); ++i) {
      const bool forget = fault == AdamwFault::kNoMoments;
      float g = x.gradient[i] * static_cast<float>(scale);
      if (fault == AdamwFault::kCoupledDecay) g += static_cast<float>(s.weight_decay) * x.values[i];
      const float m = static_cast<float>(s.beta1) * (forget ? 0.0f : x.m[i]) +
                      static_cast<float>(1.0 - s.beta1) * g;
      const float v = static_cast<float>(s.beta2) * (forget ? 0.0f : x.v[i]) +
                      static_cast<float>(1.0 - s.beta2) * (g * g);
      float root = std::sqrt(v / c2) + eps;
      if (fault == AdamwFault::kEpsInsideRoot) root = std::sqrt(v / c2 + eps);
      if (fault == AdamwFault::kEpsBeforeCorrection) root = (std::sqrt(v) + eps) / std::sqrt(c2);
      const bool coupled = fault == AdamwFault::kCoupledDecay;
      const auto decay = static_cast<float>(coupled ? 1.0 : 1.0 - lr * s.weight_decay);
      x.m[i] = m;
      x.v[i] = v;
      x.values[i] = x.values[i] * decay - rate * (m / c1) / root;
    }
  }
}

// A step by the engine, or by a wrong one: with `late` for lr if that is the fault.
inline engine::train::AdamwNorm take_step(std::vector<TrainedTensor>& tensors,
                                          const engine::train::AdamwSettings& s, double lr,
                                          double late, std::int64_t t, AdamwFault fault) {
  const engine::train::AdamwNorm norm = engine::train::adamw_norm(views(tensors), s.clip);
  if (fault == AdamwFault::kNone) {
    adamw_update(views(tensors), s, lr, norm.scale, engine::train::AdamwClock(s, t));
  } else {
    const double scale = fault == AdamwFault::kNoClip ? 1.0 : norm.scale;
    faulty_update(tensors, s, fault == AdamwFault::kScheduleLate ? late : lr, scale, t, fault);
  }
  return norm;
}

// How far float32 may be from the exact result after a step, from how far it was before and from
// the exact values: every operation adds u |result|, every scalar was rounded once (u), first order
// in u. The factor at the end covers the second order, below u times the number of operations.
struct Drift {
  double theta = 0.0, m = 0.0, v = 0.0;
};
struct Exact {
  double theta, m, v;
};

inline Drift drift_after(const Drift& before, const Exact& from, const Exact& to, double g,
                         const engine::train::AdamwSettings& s, double lr, double scale,
                         std::int64_t t) {
  constexpr double u = kRounding;
  const double clipped = std::abs(g * scale);
  const double e_g = 2.0 * u * clipped;  // the scale, the product
  const double c1 = 1.0 - std::pow(s.beta1, t);
  const double c2 = 1.0 - std::pow(s.beta2, t);
  const double r1 = 1.0 - s.beta1;
  const double r2 = 1.0 - s.beta2;
  Drift after;
  after.m = s.beta1 * (before.m + 2.0 * u * std::abs(from.m)) + r1 * (e_g + 2.0 * u * clipped) +
            u * std::abs(to.m);
  after.v = s.beta2 * (before.v + 2.0 * u * from.v) +
            r2 * (2.0 * clipped * e_g + 3.0 * u * clipped * clipped) + u * to.v;
  const double m_hat = std::abs(to.m) / c1;
  const double v_hat = to.v / c2;
  const double e_m_hat = after.m / c1 + 2.0 * u * m_hat;
  const double e_v_hat = after.v / c2 + 2.0 * u * v_hat;
  const double root = std::sqrt(v_hat);
  const double e_root = std::min(e_v_hat / root, std::sqrt(e_v_hat)) + u * root;
  const double denominator = root + s.eps;
  const double e_denominator = e_root + u * s.eps + u * denominator;
  const double move = lr * m_hat / denominator;
  const double e_move =
      lr * e_m_hat / denominator + move * (e_denominator / (denominator - e_denominator) + 3.0 * u);
  after.theta = before.theta + 2.0 * u * std::abs(from.theta) + e_move + u * std::abs(to.theta);
  constexpr double kSecondOrder = 1.001;
  return {after.theta * kSecondOrder, after.m * kSecondOrder, after.v * kSecondOrder};
}

}  // namespace checks
