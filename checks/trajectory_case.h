#pragma once

#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checks/engine_run.h"
#include "checks/json_file.h"
#include "checks/reference.h"
#include "engine/data/batching.h"
#include "engine/train/moments.h"
#include "engine/train/schedule.h"

namespace checks {

namespace fs = std::filesystem;
using engine::model::AdapterSet;
using engine::model::Batch;
using engine::train::AdamwClock;
using engine::train::AdamwNorm;
using engine::train::AdamwSettings;
using engine::train::Moments;
using engine::train::Schedule;

// The gates of docs/numerics.md; torch's own float32 lands at a loss of 7.4e-5 and 1.6e-5, and at
// an update of 2.5e-5 where the case is well conditioned.
struct Gates {
  double loss;
  std::optional<double> update;  // ||theta - ref|| / ||ref - theta_0|| after the last step
  bool same_routing;
};
constexpr Gates kEpsTiny = {1e-3, std::nullopt, false};
constexpr std::int64_t kStepsOfACase = 10;
constexpr Gates kWellConditioned = {2e-4, 5e-4, true};

// A folder of ten steps (README.md section 6 of the gradient reference).
// Errors    std::runtime_error naming file and place
struct Case {
  explicit Case(const fs::path& at) : folder(at), result(at / "result.json") {
    const auto hyper = [&](const char* name) {
      return result.get<double>(std::string("/hyper/") + name);
    };
    settings = {hyper("beta1"), hyper("beta2"), hyper("eps"), hyper("weight_decay"), hyper("clip")};
    schedule = {hyper("peak_lr"), hyper("min_lr"), result.get<std::int64_t>("/hyper/warmup"),
                result.get<std::int64_t>("/hyper/total")};
    // With eps near nothing the first steps are lr sign(g), also where g is float32 noise: then
    // only the losses can be followed (README.md section 6).
    gates = settings.eps >= 1e-4 ? kWellConditioned : kEpsTiny;
    const auto steps = static_cast<std::int64_t>(result.get<nlohmann::json>("/steps").size());
    if (steps != kStepsOfACase) {
      throw std::runtime_error(
          fmt::format("{}: has {} steps, wanted {}", result.path(), steps, kStepsOfACase));
    }
  }

  // Of step t = 1, 2, ...
  static std::string place(std::int64_t t, const char* name) {
    return fmt::format("/steps/{}/{}", t - 1, name);
  }

  NamedTensors tensors(const std::string& name) const {
    return read_safetensors(folder / (name + ".safetensors"));
  }
  bool has(const std::string& name) const { return fs::exists(folder / (name + ".safetensors")); }

  Batch batch(std::int64_t step) const {
    const std::string name = step % 2 == 1 ? "batch_A" : "batch_B";
    const NamedTensors given = tensors(name);
    const auto sequence = engine::data::make_sequence(name, at(given, "tokens").i32(),
                                                      result.get<std::int64_t>("/prompt_length"));
    if (sequence.targets != at(given, "targets").i32()) {
      throw std::runtime_error(fmt::format(
          "{}/{}: targets differ from those that the prompt's mask gives", folder.string(), name));
    }
    return {
        sequence.tokens, sequence.targets, {0, static_cast<std::int64_t>(sequence.tokens.size())}};
  }

  fs::path folder;
  JsonFile result;
  AdamwSettings settings;
  Schedule schedule;
  Gates gates{};
};

// An adapter set in training.
struct Training {
  Training(Engine& engine_in, const Case& about, const NamedTensors& values)
      : engine(engine_in),
        adapters(adapter_set(engine_in, about.result.get<std::int64_t>("/r"),
                             about.result.get<double>("/alpha"), values)),
        moments(*adapters, engine_in.budget) {}

  // The loss and its gradient; the update is the caller's.
  double sweep(const Batch& batch, engine::model::Trace* trace) {
    adapters->clear_gradients();
    engine::model::SweepHooks hooks;
    hooks.trace = trace;
    return engine.model.forward_backward(batch, *adapters, hooks).loss;
  }
  AdamwNorm update(const Case& about, std::int64_t step, AdamwClock& clock) {
    const AdamwNorm norm = adamw_norm(moments.tensors(), about.settings.clip);
    clock.tick();
    adamw_update(moments.tensors(), about.settings, learning_rate(about.schedule, step), norm.scale,
                 clock);
    return norm;
  }
  // theta minus `from`, all tensors in native-name order.
  std::vector<double> moved(const NamedTensors& from) const {
    std::vector<double> difference;
    for (const auto& tensor : adapters->tensors()) {
      const auto& start = at(from, tensor.name).data;
      for (std::size_t i = 0; i < start.size(); ++i) {
        difference.push_back(static_cast<double>(tensor.values[i]) - start[i]);
      }
    }
    return difference;
  }

  Engine& engine;
  std::unique_ptr<AdapterSet> adapters;
  Moments moments;
};

inline std::vector<double> moved(const NamedTensors& to, const NamedTensors& from) {
  std::vector<double> difference;
  for (const auto& [name, start] : from) {
    const auto& end = at(to, name).data;
    for (std::size_t i = 0; i < end.size(); ++i) difference.push_back(end[i] - start.data[i]);
  }
  return difference;
}

}  // namespace checks
