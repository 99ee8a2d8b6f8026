// The update against the formulas of engine/train/adamw.h in double, from gradients made here: what
// needs no reference data to be seen.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "checks/compare.h"
#include "checks/train/adamw_step.h"
#include "engine/train/adamw.h"

namespace {

using checks::Comparison;
using checks::Drift;
using checks::Exact;
using checks::random_values;
using checks::TrainedTensor;
using checks::views;
using engine::train::adamw_norm;
using engine::train::adamw_update;
using engine::train::AdamwClock;
using engine::train::AdamwNorm;
using engine::train::AdamwSettings;
using Fault = checks::AdamwFault;

constexpr std::size_t kCount = 40;
constexpr std::int64_t kSteps = 6;

// Sizes of the tensors' gradients: one that the clip cuts, one in which eps outweighs the root, and
// the last, which decides nothing about the norm.
constexpr double kSizes[] = {1.0, 1e-8, 1e-3};

Exact exact_step(const Exact& x, double gradient, const AdamwSettings& s, double lr, double scale,
                 std::int64_t t) {
  const double g = gradient * scale;
  const double m = s.beta1 * x.m + (1.0 - s.beta1) * g;
  const double v = s.beta2 * x.v + (1.0 - s.beta2) * g * g;
  const double m_hat = m / (1.0 - std::pow(s.beta1, t));
  const double v_hat = v / (1.0 - std::pow(s.beta2, t));
  return {x.theta * (1.0 - lr * s.weight_decay) - lr * m_hat / (std::sqrt(v_hat) + s.eps), m, v};
}

double exact_scale(const std::vector<TrainedTensor>& tensors, double clip) {
  double sum = 0.0;
  for (const TrainedTensor& x : tensors) {
    for (const double g : x.gradient) sum += g * g;
  }
  const double norm = std::sqrt(sum);
  return norm > clip ? clip / (norm + 1e-6) : 1.0;
}

std::vector<float> gradient_of(std::size_t tensor, std::int64_t t) {
  std::vector<float> all = random_values(static_cast<std::uint64_t>(t), "g", kCount);
  for (float& g : all) g *= static_cast<float>(kSizes[tensor]);
  return all;
}

// Six steps; the first comparison that does not hold, or the last one.
Comparison run_by_hand(Fault fault) {
  const AdamwSettings settings;
  std::vector<TrainedTensor> tensors;
  std::vector<std::vector<Exact>> exact;
  for (const double size : kSizes) {
    const std::string name = fmt::format("gradients of size {}", size);
    const std::vector<float> zeros(kCount);
    tensors.push_back({name, random_values(9, name, kCount), zeros, zeros, zeros});
    exact.emplace_back();
    for (const float value : tensors.back().values) exact.back().push_back({value, 0.0, 0.0});
  }
  std::vector<std::vector<Drift>> drifts(tensors.size(), std::vector<Drift>(kCount));
  Comparison last;
  for (std::int64_t t = 1; t <= kSteps; ++t) {
    for (std::size_t k = 0; k < tensors.size(); ++k) tensors[k].gradient = gradient_of(k, t);
    const double lr = 1e-2 / static_cast<double>(t);
    const double late = t == 1 ? 0.0 : 1e-2 / static_cast<double>(t - 1);
    const double scale = exact_scale(tensors, settings.clip);
    checks::take_step(tensors, settings, lr, late, t, fault);
    for (std::size_t k = 0; k < tensors.size(); ++k) {
      std::vector<double> want[3], allowed[3];
      for (std::size_t i = 0; i < kCount; ++i) {
        const double g = tensors[k].gradient[i];
        const Exact from = exact[k][i];
        const Exact to = exact[k][i] = exact_step(from, g, settings, lr, scale, t);
        const Drift d = drifts[k][i] =
            checks::drift_after(drifts[k][i], from, to, g, settings, lr, scale, t);
        const double values[] = {to.theta, to.m, to.v}, bounds[] = {d.theta, d.m, d.v};
        for (std::size_t part = 0; part < 3; ++part) {
          want[part].push_back(values[part]);
          allowed[part].push_back(bounds[part]);
        }
      }
      const std::vector<float>* got[] = {&tensors[k].values, &tensors[k].m, &tensors[k].v};
      for (std::size_t part = 0; part < 3; ++part) {
        last = checks::compare(checks::widen(*got[part]), want[part], allowed[part]);
        if (last) continue;
        last.why = fmt::format("step {}, {}: {}", t, tensors[k].name, last.why);
        return last;
      }
    }
  }
  return last;
}

TEST(Adamw, StepsAreThoseOfTheFormulas) {
  const Comparison result = run_by_hand(Fault::kNone);
  EXPECT_TRUE(result) << result.why;
  for (const Fault fault :
       {Fault::kCoupledDecay, Fault::kNoCorrection, Fault::kEpsInsideRoot,
        Fault::kEpsBeforeCorrection, Fault::kNoClip, Fault::kScheduleLate, Fault::kNoMoments}) {
    EXPECT_FALSE(run_by_hand(fault)) << "fault " << static_cast<int>(fault);
  }
}

// In the first step m and v, corrected, are g and g g: theta moves by lr g / (|g| + eps), and a g as
// large as eps by lr / 2.
TEST(Adamw, EpsStandsOutsideTheRoot) {
  AdamwSettings settings;
  settings.weight_decay = 0.0;
  const auto eps = static_cast<float>(settings.eps);
  std::vector<TrainedTensor> one{
      {"x", {0.0f, 0.0f}, {eps, -3.0f * eps}, {0.0f, 0.0f}, {0.0f, 0.0f}}};
  adamw_update(views(one), settings, 1.0, 1.0, AdamwClock(settings, 1));
  // Nine roundings on the way, none of which grows on it: (1-b) g, g g, (1-b) g g and both
  // quotients, root, sum, product, quotient; and five scalars.
  const Comparison result =
      checks::compare(one[0].values, std::vector<double>{-0.5, 0.75},
                      [](double want) { return 14 * checks::kRounding * std::abs(want); });
  EXPECT_TRUE(result) << result.why;
}

// 3, 4 and 12 in tensors of their own: 13 together.
TEST(Adamw, ClipIsByTheNormOfAllTensorsTogether) {
  std::vector<TrainedTensor> tensors{
      {"a", {}, {3.0f}, {}, {}}, {"b", {}, {0.0f, -4.0f}, {}, {}}, {"c", {}, {12.0f}, {}, {}}};
  const AdamwNorm cut = adamw_norm(views(tensors), 1.0);
  EXPECT_EQ(cut.norm, 13.0);
  EXPECT_EQ(cut.scale, 1.0 / (13.0 + 1e-6));
  EXPECT_EQ(adamw_norm(views(tensors), 12.5).scale, 12.5 / (13.0 + 1e-6));
  EXPECT_EQ(adamw_norm(views(tensors), 13.0).scale, 1.0) << "a norm that is the limit is not above";
}

}  // namespace
