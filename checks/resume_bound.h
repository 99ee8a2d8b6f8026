#pragma once

#include <cmath>
#include <cstddef>
#include <span>

#include "engine/train/adamw.h"

namespace checks {

// What an update of AdamW says about the gradient behind it.
//
// Where a gradient is small beside sqrt(v) + eps, or v itself is small, the update turns the
// gradient's float32 noise into a large share of itself; so the update vector as a whole can only
// be held to a loose gate (torch's float32 misses it by 2.1e-3), and a loose gate hides a wrong
// optimiser. Per element the amplification is known. With m, v, t given,
//
//   u(x) = lr N(x) / D(x),  N = (b1 m + (1-b1) x) / (1 - b1^t),
//                           D = sqrt((b2 v + (1-b2) x^2) / (1 - b2^t)) + eps
//
// and if the gradient x errs by at most d, then |u - u_ref| <= sup |u'| over [x - d, x + d] times
// the error that x has. Turned round: an update that is off by more than its float32 rounding rho
// needs a gradient that is off by at least (|u - u_ref| - rho) / sup |u'|. The root of the squares
// of these, a tensor at a time, is at most what the gradient's own gate allows, or the step is not
// AdamW's.
struct ResumedElement {
  double theta, m, v, gradient;  // before the step; the gradient is clipped already
  double difference;             // of the update from the reference's
};

struct ResumedStep {
  engine::train::AdamwSettings settings;
  double learning_rate = 0.0;
  double correction1 = 1.0, correction2 = 1.0;  // 1 - b1^t, 1 - b2^t
};

// sup |u'| over [x - d, x + d], by interval arithmetic:
//   u' = lr (N' D - N D') / D^2,  N' = (1-b1) / (1-b1^t),  D' = ((1-b2) / (1-b2^t)) x / sqrt(...)
// D grows with |x|, D' with x, N with x: their extremes lie at the ends.
inline double steepest_slope(const ResumedStep& step, const ResumedElement& e, double d) {
  const double b1 = step.settings.beta1, b2 = step.settings.beta2;
  const auto root = [&](double x) {
    return std::sqrt((b2 * e.v + (1 - b2) * x * x) / step.correction2);
  };
  const auto numerator = [&](double x) { return (b1 * e.m + (1 - b1) * x) / step.correction1; };
  const auto root_slope = [&](double x) {
    const double r = root(x);
    return r > 0.0 ? (1 - b2) / step.correction2 * x / r : std::sqrt((1 - b2) / step.correction2);
  };
  const double low = e.gradient - d, high = e.gradient + d;
  const double nearest = low > 0.0 ? low : high < 0.0 ? high : 0.0;
  const double d_min = root(nearest) + step.settings.eps;
  const double d_max = std::fmax(root(low), root(high)) + step.settings.eps;
  const double n_slope = (1 - b1) / step.correction1;
  double least = INFINITY, most = -INFINITY;  // of N D'
  for (const double x : {low, high}) {
    for (const double y : {low, high}) {
      least = std::fmin(least, numerator(x) * root_slope(y));
      most = std::fmax(most, numerator(x) * root_slope(y));
    }
  }
  const double top = std::fmax(n_slope * d_max - least, most - n_slope * d_min);
  return step.learning_rate * top / (d_min * d_min);
}

// Float32 rounding of one element's update, from parameters and moments that were rounded as well:
// theta is rounded three times (as given, decayed, updated); u is the quotient of two values, each
// at the end of a chain of fewer than eight roundings, where the terms of N count by their sizes.
inline double update_rounding(const ResumedStep& step, const ResumedElement& e) {
  const double unit = std::ldexp(1.0, -24);
  const double b1 = step.settings.beta1, b2 = step.settings.beta2;
  const double terms = (b1 * std::abs(e.m) + (1 - b1) * std::abs(e.gradient)) / step.correction1;
  const double denominator =
      std::sqrt((b2 * e.v + (1 - b2) * e.gradient * e.gradient) / step.correction2) +
      step.settings.eps;
  return unit * (3 * std::abs(e.theta) + 16 * step.learning_rate * terms / denominator);
}

// The least error of the gradient that explains the differences of a tensor's update, over the
// gradient's norm. `gate` is what that may be.
inline double explained_by(const ResumedStep& step, std::span<const ResumedElement> tensor,
                           double gate) {
  double norm = 0.0, needed = 0.0;
  for (const ResumedElement& e : tensor) norm += e.gradient * e.gradient;
  norm = std::sqrt(norm);
  for (const ResumedElement& e : tensor) {
    const double beyond = std::abs(e.difference) - update_rounding(step, e);
    if (beyond <= 0.0) continue;  // NaN goes on and fails
    const double error = beyond / steepest_slope(step, e, gate * norm);
    needed += error * error;
  }
  return std::sqrt(needed) / norm;
}

}  // namespace checks
