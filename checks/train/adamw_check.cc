#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "checks/compare.h"
#include "checks/reference.h"
#include "engine/base/error.h"
#include "engine/base/parallel.h"
#include "engine/base/rng.h"
#include "engine/train/adamw.h"
#include "engine/train/schedule.h"

namespace {

using checks::Comparison;
using checks::NamedTensors;
using engine::base::CounterRng;
using engine::base::Error;
using engine::train::adamw_norm;
using engine::train::adamw_update;
using engine::train::AdamwClock;
using engine::train::AdamwNorm;
using engine::train::AdamwSettings;
using engine::train::AdamwTensor;
using engine::train::Schedule;

constexpr double kRounding = 0x1p-24;  // u: half an ulp of float32, relative

struct Tensor {
  std::string name;
  std::vector<float> values, gradient, m, v;
};

std::vector<AdamwTensor> views(std::vector<Tensor>& tensors) {
  std::vector<AdamwTensor> result;
  for (Tensor& t : tensors) result.push_back({t.name, t.values, t.gradient, t.m, t.v});
  return result;
}

std::vector<float> random_values(std::uint64_t seed, const std::string& name, std::size_t count) {
  const CounterRng rng(seed, name);
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = 2.0f * rng.uniform(i) - 1.0f;
  return values;
}

// A step of the engine, or of one of the wrong optimisers that look like it.
enum class Fault {
  kNone,
  kCoupledDecay,         // wd added to the gradient
  kNoCorrection,         // m and v as they are
  kEpsInsideRoot,        // sqrt(v/c + eps)
  kEpsBeforeCorrection,  // (sqrt(v) + eps) / sqrt(c): eps grows by 1 / sqrt(c)
  kNoClip,
  kScheduleLate,  // lr of the step before
  kNoMoments,     // both start at zero every step: a resume without them
};

void faulty_update(std::vector<Tensor>& tensors, const AdamwSettings& s, double lr, double scale,
                   std::int64_t t, Fault fault) {
  const double b1 = 1.0 - std::pow(s.beta1, t);
  const double b2 = 1.0 - std::pow(s.beta2, t);
  const auto c1 = static_cast<float>(fault == Fault::kNoCorrection ? 1.0 : b1);
  const auto c2 = static_cast<float>(fault == Fault::kNoCorrection ? 1.0 : b2);
  const auto rate = static_cast<float>(lr);
  const auto eps = static_cast<float>(s.eps);
  for (Tensor& x : tensors) {
    for (std::size_t i = 0; i < x.values.size(); ++i) {
      const bool forget = fault == Fault::kNoMoments;
      float g = x.gradient[i] * static_cast<float>(scale);
      if (fault == Fault::kCoupledDecay) g += static_cast<float>(s.weight_decay) * x.values[i];
      const float m = static_cast<float>(s.beta1) * (forget ? 0.0f : x.m[i]) +
                      static_cast<float>(1.0 - s.beta1) * g;
      const float v = static_cast<float>(s.beta2) * (forget ? 0.0f : x.v[i]) +
                      static_cast<float>(1.0 - s.beta2) * (g * g);
      float root = std::sqrt(v / c2) + eps;
      if (fault == Fault::kEpsInsideRoot) root = std::sqrt(v / c2 + eps);
      if (fault == Fault::kEpsBeforeCorrection) root = (std::sqrt(v) + eps) / std::sqrt(c2);
      const bool coupled = fault == Fault::kCoupledDecay;
      const auto decay = static_cast<float>(coupled ? 1.0 : 1.0 - lr * s.weight_decay);
      x.m[i] = m;
      x.v[i] = v;
      x.values[i] = x.values[i] * decay - rate * (m / c1) / root;
    }
  }
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

Drift drift_after(const Drift& before, const Exact& from, const Exact& to, double g,
                  const AdamwSettings& s, double lr, double scale, std::int64_t t) {
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

const char* const kNames[] = {"a.lora_A", "a.lora_B", "b.lora_A"};

// Six steps of a reference case; the first comparison that does not hold, or the last one.
Comparison run_case(const NamedTensors& file, const nlohmann::json& about, Fault fault,
                    double* worst) {
  const std::string id = about.at("id");
  const auto& p = about.at("params");
  const AdamwSettings settings{p.at("beta1"), p.at("beta2"), p.at("eps"), p.at("weight_decay"),
                               p.at("clip")};
  const Schedule schedule{p.at("peak_lr"), p.at("min_lr"), p.at("warmup"), p.at("total")};
  const auto key = [&](const char* what, std::int64_t t, const char* name) {
    return checks::at(file, id + "." + what + std::to_string(t) + "." + name);
  };
  std::vector<Tensor> tensors;
  std::vector<std::vector<Drift>> drifts;
  for (const char* name : kNames) {
    const std::vector<float> values = key("param", 0, name).f32();
    tensors.push_back({name, values, values, std::vector<float>(values.size()),
                       std::vector<float>(values.size())});
    drifts.emplace_back(values.size());
  }
  AdamwClock clock(settings);
  Comparison last;
  for (std::int64_t t = 1; t <= schedule.total; ++t) {
    for (Tensor& x : tensors) x.gradient = key("grad", t, x.name.c_str()).f32();
    const std::vector<AdamwTensor> bound = views(tensors);
    const AdamwNorm norm = adamw_norm(bound, settings.clip);
    const double lr = engine::train::learning_rate(schedule, t);
    clock.tick();
    if (fault == Fault::kNone) {
      adamw_update(bound, settings, lr, norm.scale, clock);
    } else {
      const double scale = fault == Fault::kNoClip ? 1.0 : norm.scale;
      const double late = t == 1 ? 0.0 : engine::train::learning_rate(schedule, t - 1);
      faulty_update(tensors, settings, fault == Fault::kScheduleLate ? late : lr, scale, t, fault);
    }
    for (std::size_t k = 0; k < tensors.size(); ++k) {
      const char* name = kNames[k];
      const auto want_theta = key("param", t, name).data;
      const auto want_m = key("m", t, name).data;
      const auto want_v = key("v", t, name).data;
      const std::size_t count = want_theta.size();
      const auto zeros = std::vector<double>(count, 0.0);
      const auto from_theta = key("param", t - 1, name).data;
      const auto from_m = t == 1 ? zeros : key("m", t - 1, name).data;
      const auto from_v = t == 1 ? zeros : key("v", t - 1, name).data;
      std::vector<double> allowed_theta(count), allowed_m(count), allowed_v(count);
      for (std::size_t i = 0; i < count; ++i) {
        Drift& d = drifts[k][i];
        d = drift_after(d, {from_theta[i], from_m[i], from_v[i]},
                        {want_theta[i], want_m[i], want_v[i]}, tensors[k].gradient[i], settings, lr,
                        norm.scale, t);
        allowed_theta[i] = d.theta;
        allowed_m[i] = d.m;
        allowed_v[i] = d.v;
      }
      for (const auto& [got, want, allowed] :
           {std::tie(tensors[k].values, want_theta, allowed_theta),
            std::tie(tensors[k].m, want_m, allowed_m), std::tie(tensors[k].v, want_v, allowed_v)}) {
        last = checks::compare(checks::widen(got), want, allowed);
        if (worst != nullptr) *worst = std::max(*worst, last.worst);
        if (!last) {
          last.why = id + " step " + std::to_string(t) + " " + name + ": " + last.why;
          return last;
        }
      }
    }
  }
  return last;
}

TEST(Adamw, AgreesWithTheReferenceToFloat32Rounding) {
  CHECKS_NEED(folder, checks::reference_data("grad/ops"));
  const NamedTensors file = checks::read_safetensors(folder / "adamw.safetensors");
  const auto about = nlohmann::json::parse(std::ifstream(folder / "adamw.json"));
  ASSERT_EQ(about.at("cases").size(), 2u);
  for (const auto& entry : about.at("cases")) {
    double worst = 0.0;
    const Comparison result = run_case(file, entry, Fault::kNone, &worst);
    EXPECT_TRUE(result) << result.why;
    RecordProperty("worst_" + entry.at("id").get<std::string>(), std::to_string(worst));
  }
}

TEST(Adamw, NormAndClipFollowTheReference) {
  CHECKS_NEED(folder, checks::reference_data("grad/ops"));
  const NamedTensors file = checks::read_safetensors(folder / "adamw.safetensors");
  const auto about = nlohmann::json::parse(std::ifstream(folder / "adamw.json"));
  int clipped = 0;
  for (const auto& entry : about.at("cases")) {
    for (const auto& step : entry.at("steps")) {
      std::vector<Tensor> tensors;
      const std::string prefix =
          entry.at("id").get<std::string>() + ".grad" + std::to_string(step.at("step").get<int>());
      for (const char* name : kNames) {
        tensors.push_back({name, {}, checks::at(file, prefix + "." + name).f32(), {}, {}});
      }
      const AdamwNorm got = adamw_norm(views(tensors), 1.0);
      const double norm = std::stod(step.at("grad_norm").get<std::string>());
      const double scale = std::stod(step.at("clip_scale").get<std::string>());
      // 83 squares are summed in double, in an order that the reference does not share.
      const double allowed = 83 * 0x1p-53 * 2.0;
      EXPECT_NEAR(got.norm / norm, 1.0, allowed);
      EXPECT_NEAR(got.scale / scale, 1.0, allowed);
      clipped += scale < 1.0 ? 1 : 0;
    }
  }
  EXPECT_EQ(clipped, 8) << "both branches of the clip must be met";
}

TEST(Adamw, SameBitsForAnyNumberOfThreads) {
  const auto run = [](int threads) {
    engine::base::set_threads(threads);
    std::vector<Tensor> tensors;
    for (const std::size_t count : {70001u, 5u, 4096u, 12289u}) {
      const std::string name = "t" + std::to_string(count);
      tensors.push_back({name, random_values(1, name, count), random_values(2, name, count),
                         random_values(3, name, count), std::vector<float>(count, 0.25f)});
    }
    const AdamwSettings settings;
    const AdamwNorm norm = adamw_norm(views(tensors), settings.clip);
    adamw_update(views(tensors), settings, 1e-3, norm.scale, AdamwClock(settings, 3));
    std::vector<float> all;
    for (const Tensor& t : tensors) {
      for (const auto* part : {&t.values, &t.m, &t.v})
        all.insert(all.end(), part->begin(), part->end());
    }
    all.push_back(static_cast<float>(norm.norm));
    return all;
  };
  const int before = engine::base::threads();
  const std::vector<float> one = run(1);
  for (const int threads : {2, 3, 4, 7}) {
    const Comparison result = checks::same_bits(run(threads), one);
    EXPECT_TRUE(result) << threads << " threads: " << result.why;
  }
  engine::base::set_threads(before);
}

TEST(Adamw, PowersAreRepeatedProducts) {
  const AdamwSettings settings;
  double power = 1.0;
  for (int t = 0; t < 137; ++t) power *= settings.beta2;
  EXPECT_EQ(AdamwClock(settings, 137).correction2(), 1.0 - power);
}

TEST(Adamw, RefusesAGradientThatIsNotFiniteBeforeAnythingIsChanged) {
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    std::vector<Tensor> tensors;
    for (const char* name : kNames) {
      tensors.push_back({name, random_values(1, name, 40), random_values(2, name, 40),
                         random_values(3, name, 40), std::vector<float>(40, 0.5f)});
    }
    tensors[1].gradient[17] = bad;
    tensors[2].gradient[0] = bad;
    const std::vector<Tensor> before = tensors;
    try {
      adamw_norm(views(tensors), 1.0);
      FAIL() << "accepted " << bad;
    } catch (const Error& error) {
      const std::string what = error.what();
      EXPECT_NE(what.find("a.lora_B"), std::string::npos) << what;
      EXPECT_NE(what.find("17"), std::string::npos) << what;
    }
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      EXPECT_EQ(tensors[i].values, before[i].values);
      EXPECT_EQ(tensors[i].m, before[i].m);
      EXPECT_EQ(tensors[i].v, before[i].v);
    }
  }
}

// A huge finite gradient is not mistaken for an infinite one: its square overflows float32 only.
TEST(Adamw, NormOfHugeGradientsIsFinite) {
  std::vector<Tensor> tensors{{"x", {}, std::vector<float>(9, 3e38f), {}, {}}};
  EXPECT_NEAR(adamw_norm(views(tensors), 1.0).norm / 9e38, 1.0, 1e-6);
}

// An expert that was never routed to: its adapter has no gradient this step.
TEST(Adamw, G14_TensorWithoutGradientDecaysItsMoments) {
  const AdamwSettings settings;
  const auto make = [](bool empty) {
    Tensor t{"x", random_values(1, "x", 50), std::vector<float>(50, 0.0f),
             random_values(3, "x", 50), std::vector<float>(50, 0.25f)};
    if (empty) t.gradient.clear();
    return std::vector<Tensor>{t};
  };
  std::vector<Tensor> absent = make(true);
  std::vector<Tensor> zero = make(false);
  const std::vector<Tensor> before = absent;
  EXPECT_EQ(adamw_norm(views(absent), 1.0).norm, 0.0);
  adamw_update(views(absent), settings, 1e-3, 1.0, AdamwClock(settings, 5));
  adamw_update(views(zero), settings, 1e-3, 1.0, AdamwClock(settings, 5));
  EXPECT_TRUE(checks::same_bits(absent[0].values, zero[0].values));
  for (std::size_t i = 0; i < 50; ++i) {
    EXPECT_EQ(absent[0].m[i], static_cast<float>(settings.beta1) * before[0].m[i]);
    EXPECT_EQ(absent[0].v[i], static_cast<float>(settings.beta2) * before[0].v[i]);
    EXPECT_NE(absent[0].values[i], before[0].values[i]);
  }
}

TEST(Adamw, PlantedFaults) {
  // The faults below are the only difference: without one the copy is the engine, bit for bit.
  const AdamwSettings settings;
  std::vector<Tensor> engine_step{{"x", random_values(1, "x", 99), random_values(2, "x", 99),
                                   random_values(3, "x", 99), std::vector<float>(99, 0.25f)}};
  std::vector<Tensor> copy = engine_step;
  adamw_update(views(engine_step), settings, 1e-3, 0.5, AdamwClock(settings, 1));
  faulty_update(copy, settings, 1e-3, 0.5, 1, Fault::kNone);
  EXPECT_TRUE(checks::same_bits(copy[0].values, engine_step[0].values));

  CHECKS_NEED(folder, checks::reference_data("grad/ops"));
  const NamedTensors file = checks::read_safetensors(folder / "adamw.safetensors");
  const auto about = nlohmann::json::parse(std::ifstream(folder / "adamw.json"));
  for (const Fault fault :
       {Fault::kCoupledDecay, Fault::kNoCorrection, Fault::kEpsInsideRoot,
        Fault::kEpsBeforeCorrection, Fault::kNoClip, Fault::kScheduleLate, Fault::kNoMoments}) {
    int caught = 0;
    for (const auto& entry : about.at("cases")) caught += !run_case(file, entry, fault, nullptr);
    EXPECT_GT(caught, 0) << "fault " << static_cast<int>(fault);
  }
}

}  // namespace
