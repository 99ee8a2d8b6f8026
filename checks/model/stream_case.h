#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <vector>

#include "checks/engine_run.h"
#include "engine/model/model.h"

namespace checks {

inline constexpr std::uint64_t kAmple = std::uint64_t{1} << 40;

inline engine::model::Batch some_batch() { return forward_batch(random_ids(19, 512, 11)); }

struct Outcome {
  engine::model::SweepResult result;
  std::vector<float> logits, gradients;
  std::uint64_t taken = 0;  // from the budget, at most
  engine::model::Plan plan;
};

// Forward and backward with `beyond_least` bytes more than it must have.
inline Outcome run(std::uint64_t beyond_least, const engine::model::ModelOptions& options = {},
                   const std::filesystem::path& scratch = {}) {
  const engine::model::Batch batch = some_batch();
  engine::base::RamBudget ample(kAmple);
  engine::model::Model outline(tiny_checkpoint(), ample);
  engine::model::AdapterSet first(outline.config(), {}, ample, scratch);
  const std::uint64_t held = ample.used_bytes();
  const auto least =
      static_cast<std::uint64_t>(outline.plan(batch.documents, &first, true).least_bytes());
  engine::base::RamBudget budget(held + least + beyond_least);
  engine::model::Model model(tiny_checkpoint(), budget, options);
  engine::model::AdapterSet adapters(model.config(), {}, budget, scratch);
  adapters.initialize(3);
  for (const auto& tensor : adapters.tensors()) {  // B is zero at first, and so is A's gradient
    for (std::size_t i = 0; i < tensor.values.size(); i += 7) tensor.values[i] += 0.01f;
  }
  Outcome run;
  run.plan = model.plan(batch.documents, &adapters, true);
  engine::model::SweepHooks hooks;
  hooks.logits = [&](std::int64_t, std::int64_t, std::span<const float> band) {
    run.logits.insert(run.logits.end(), band.begin(), band.end());
  };
  run.result = model.forward_backward(batch, adapters, hooks);
  run.taken = budget.peak_bytes() - held;
  EXPECT_EQ(budget.used_bytes(), held);
  for (const auto& tensor : adapters.tensors()) {
    run.gradients.insert(run.gradients.end(), tensor.gradient.begin(), tensor.gradient.end());
  }
  return run;
}

}  // namespace checks
