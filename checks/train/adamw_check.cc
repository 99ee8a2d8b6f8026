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
#include "checks/train/adamw_step.h"
#include "engine/base/error.h"
#include "engine/base/parallel.h"
#include "engine/train/adamw.h"
#include "engine/train/schedule.h"

namespace {

using checks::Comparison;
using checks::Drift;
using checks::faulty_update;
using checks::NamedTensors;
using checks::random_values;
using checks::TrainedTensor;
using checks::views;
using Fault = checks::AdamwFault;
using engine::base::Error;
using engine::train::adamw_norm;
using engine::train::adamw_update;
using engine::train::AdamwClock;
using engine::train::AdamwNorm;
using engine::train::AdamwSettings;
using engine::train::Schedule;

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
  std::vector<TrainedTensor> tensors;
  std::vector<std::vector<Drift>> drifts;
  for (const char* name : kNames) {
    const std::vector<float> values = key("param", 0, name).f32();
    tensors.push_back({name, values, values, std::vector<float>(values.size()),
                       std::vector<float>(values.size())});
    drifts.emplace_back(values.size());
  }
  Comparison last;
  for (std::int64_t t = 1; t <= schedule.total; ++t) {
    for (TrainedTensor& x : tensors) x.gradient = key("grad", t, x.name.c_str()).f32();
    const double lr = engine::train::learning_rate(schedule, t);
    const double late = t == 1 ? 0.0 : engine::train::learning_rate(schedule, t - 1);
    const AdamwNorm norm = checks::take_step(tensors, settings, lr, late, t, fault);
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
      std::vector<TrainedTensor> tensors;
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
    std::vector<TrainedTensor> tensors;
    for (const std::size_t count : {70001u, 5u, 4096u, 12289u}) {
      const std::string name = "t" + std::to_string(count);
      tensors.push_back({name, random_values(1, name, count), random_values(2, name, count),
                         random_values(3, name, count), std::vector<float>(count, 0.25f)});
    }
    const AdamwSettings settings;
    const AdamwNorm norm = adamw_norm(views(tensors), settings.clip);
    adamw_update(views(tensors), settings, 1e-3, norm.scale, AdamwClock(settings, 3));
    std::vector<float> all;
    for (const TrainedTensor& t : tensors) {
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
    std::vector<TrainedTensor> tensors;
    for (const char* name : kNames) {
      tensors.push_back({name, random_values(1, name, 40), random_values(2, name, 40),
                         random_values(3, name, 40), std::vector<float>(40, 0.5f)});
    }
    tensors[1].gradient[17] = bad;
    tensors[2].gradient[0] = bad;
    const std::vector<TrainedTensor> before = tensors;
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
  std::vector<TrainedTensor> tensors{{"x", {}, std::vector<float>(9, 3e38f), {}, {}}};
  EXPECT_NEAR(adamw_norm(views(tensors), 1.0).norm / 9e38, 1.0, 1e-6);
}

// An expert that was never routed to: its adapter has no gradient this step.
TEST(Adamw, G14_TensorWithoutGradientDecaysItsMoments) {
  const AdamwSettings settings;
  const auto make = [](bool empty) {
    TrainedTensor t{"x", random_values(1, "x", 50), std::vector<float>(50, 0.0f),
                    random_values(3, "x", 50), std::vector<float>(50, 0.25f)};
    if (empty) t.gradient.clear();
    return std::vector<TrainedTensor>{t};
  };
  std::vector<TrainedTensor> absent = make(true);
  std::vector<TrainedTensor> zero = make(false);
  const std::vector<TrainedTensor> before = absent;
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
  std::vector<TrainedTensor> engine_step{{"x", random_values(1, "x", 99), random_values(2, "x", 99),
                                          random_values(3, "x", 99),
                                          std::vector<float>(99, 0.25f)}};
  std::vector<TrainedTensor> copy = engine_step;
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
