// What a step is said to read against what it reads, and what it is said to compute against a count
// of another kind: every matrix of the checkpoint times how often it is multiplied with.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <string>
#include <tuple>

#include "checks/engine_run.h"
#include "engine/model/expert_stream.h"
#include "engine/model/forecast.h"

namespace {

using engine::base::RamBudget;
using engine::model::AdapterSet;
using engine::model::Batch;
using engine::model::Model;
using engine::model::Plan;
using engine::model::StepTime;
using engine::model::StepWork;

constexpr std::uint64_t kAmple = std::uint64_t{1} << 40;

// Tokens that are all different, so that every one is a row of the embedding.
Batch different_tokens(std::int64_t count) {
  std::vector<std::int32_t> ids;
  for (std::int64_t i = 0; i < count; ++i) ids.push_back(static_cast<std::int32_t>(7 * i % 512));
  return checks::forward_batch(ids);
}

struct Measured {
  engine::model::SweepResult result;
  StepWork work;
};

Measured measure(std::uint64_t beyond_least) {
  const Batch batch = different_tokens(23);
  RamBudget ample(kAmple);
  Model outline(checks::tiny_checkpoint(), ample);
  AdapterSet first(outline.config(), {}, ample);
  const std::uint64_t least =
      ample.used_bytes() +
      static_cast<std::uint64_t>(outline.plan(batch.documents, &first, true).least_bytes());
  RamBudget budget(std::min(least + beyond_least, kAmple));
  Model model(checks::tiny_checkpoint(), budget);
  AdapterSet adapters(model.config(), {}, budget);
  adapters.initialize(3);
  const Plan plan = model.plan(batch.documents, &adapters, true);
  Measured measured;
  measured.result = model.forward_backward(batch, adapters);
  const std::vector<double> distinct(measured.result.distinct_experts.begin(),
                                     measured.result.distinct_experts.end());
  measured.work = engine::model::step_work(model.shards(), model.config(), adapters, plan,
                                           batch.size(), 1, distinct);
  return measured;
}

TEST(Forecast, BytesAreThoseOfTheSweep) {
  std::uint64_t saved_before = 0;
  for (const std::uint64_t beyond : {0ul, 100'000ul, 600'000ul, 2'000'000ul, kAmple}) {
    const auto [result, work] = measure(beyond);
    const std::uint64_t all = work.trunk_bytes + work.expert_bytes + work.embedding_bytes;
    EXPECT_EQ(all, result.bytes_read + result.bytes_saved) << beyond;
    // What is saved is a forecast: within a tenth of what is read.
    const auto saved = static_cast<double>(work.saved_trunk_bytes + work.saved_expert_bytes);
    EXPECT_NEAR(saved, static_cast<double>(result.bytes_saved), 0.1 * static_cast<double>(all))
        << beyond;
    EXPECT_GE(work.saved_trunk_bytes + work.saved_expert_bytes, saved_before);
    saved_before = work.saved_trunk_bytes + work.saved_expert_bytes;
    // Planted: the way down forgotten; nothing remembered of it.
    EXPECT_NE(all / 2, result.bytes_read + result.bytes_saved);
    if (beyond == kAmple) {
      EXPECT_GT(std::abs(0.0 - static_cast<double>(result.bytes_saved)),
                0.1 * static_cast<double>(all));
    }
  }
}

// Matrix products alone, from the files: a matrix is multiplied with three times, but for those whose
// result nothing on the way down needs; an expert by k of E tokens.
TEST(Forecast, ProductsAreThoseOfTheMatricesInTheFiles) {
  RamBudget budget(kAmple);
  const Model model(checks::tiny_checkpoint(), budget);
  const auto& config = model.config();
  double products = 0.0;
  for (const auto& entry : model.shards().entries()) {
    const std::string name(entry.name);
    const auto is = [&](const char* part) { return name.find(part) != std::string::npos; };
    const bool packed = is("weight_packed");
    if (entry.shape.size() != 2 || entry.shape[0] == 1 || is("embed_tokens") || is("_scale"))
      continue;
    const bool twice =
        is("o_proj") || is("down_proj.weight") || is("expert_up_proj") || is(".w2.weight");
    const bool latent_down = is("routed_expert_down_proj");
    double count = static_cast<double>(entry.shape[0] * entry.shape[1]) * (packed ? 2.0 : 1.0);
    count *= twice && !latent_down ? 2.0 : 3.0;
    if (packed) count *= static_cast<double>(config.chosen) / static_cast<double>(config.experts);
    products += count;
  }
  const AdapterSet outline(config, {});
  const std::vector<double> none(static_cast<std::size_t>(config.layers));
  const std::int64_t tokens = 64;
  const StepWork work =
      engine::model::step_work(model.shards(), config, outline, Plan(), tokens, 3, none);
  // Recurrence, attention and adapters come on top; here by their own formulas.
  double others = 4.0 * static_cast<double>(outline.parameters());
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    others +=
        config.is_mla[static_cast<std::size_t>(layer)]
            ? 2.0 * static_cast<double>(tokens * config.mla_heads) *
                  static_cast<double>(config.nope_width + config.rope_width + config.value_width)
            : 20.0 * static_cast<double>(config.kda_inner() * config.kda_width);
  }
  EXPECT_NEAR(work.flops / (2.0 * tokens * 3), products + others, 1e-9 * products);
  // Planted: experts that all tokens go through.
  EXPECT_GT(std::abs(products * 1.05 - products), 1e-9 * products);
}

TEST(Forecast, DistinctExperts) {
  RamBudget budget(kAmple);
  const Model model(checks::tiny_checkpoint(), budget);
  auto config = model.config();
  EXPECT_DOUBLE_EQ(engine::model::distinct_experts_if_even(config, 1), 4.0);
  EXPECT_DOUBLE_EQ(engine::model::distinct_experts_if_even(config, 2), 7.0);  // 16 (1 - 9/16)
  config.experts = 896;
  config.chosen = 16;
  // On paper: 896 (1 - (55/56)^16) = 224.4125
  EXPECT_NEAR(engine::model::distinct_experts_if_even(config, 16), 224.4125, 1e-4);
  const std::vector<double> even(896, 16.0 / 896.0), uneven = {1.0, 1.0, 0.5, 0.5, 0.0};
  EXPECT_NEAR(engine::model::distinct_experts(even, 100),
              engine::model::distinct_experts_if_even(config, 100), 1e-9);
  EXPECT_DOUBLE_EQ(engine::model::distinct_experts(uneven, 2), 2.0 + 2 * 0.75);
}

// With room for every expert nothing of them is read on the way down, to the byte, whatever part of a
// byte their mean number is. Rounding up and up-and-down apart is one byte less than nothing.
TEST(Forecast, NothingIsLeftWhereEveryExpertIsKept) {
  RamBudget budget(kAmple);
  const Model model(checks::tiny_checkpoint(), budget);
  const auto& config = model.config();
  const AdapterSet outline(config, {});
  Plan plan;
  plan.expert_slots = config.layers * config.experts + 1;
  bool apart = false;
  for (std::int64_t tokens = 1; tokens <= 64; ++tokens) {
    std::vector<double> distinct(static_cast<std::size_t>(config.layers));
    for (std::int64_t layer = config.dense_layers; layer < config.layers; ++layer) {
      distinct[static_cast<std::size_t>(layer)] =
          engine::model::distinct_experts_if_even(config, tokens);
    }
    const StepWork work =
        engine::model::step_work(model.shards(), config, outline, plan, tokens, 1, distinct);
    EXPECT_EQ(work.rest.expert_bytes, 0u) << tokens;
    const auto sum = std::accumulate(distinct.begin(), distinct.end(), 0.0) *
                     static_cast<double>(engine::model::ExpertStream::bytes(config));
    apart = apart || std::llround(2 * sum) < 2 * std::llround(sum);
  }
  EXPECT_TRUE(apart) << "no number of tokens shows the difference";
}

TEST(Forecast, TheSlowestSaysHowLongItTakes) {
  StepWork work;
  work.embedding_bytes = 10;
  work.rest = {4000.0, 500, 990};
  const StepTime one = engine::model::step_time(work, {100.0, 0.0, 1000.0});
  EXPECT_DOUBLE_EQ(one.disk, 15.0);
  EXPECT_DOUBLE_EQ(one.seconds, 15.0);
  EXPECT_STREQ(one.bound_by(), "the disk");
  const StepTime two = engine::model::step_time(work, {500.0, 50.0, 1000.0});
  EXPECT_DOUBLE_EQ(two.disk, 2.0);
  EXPECT_DOUBLE_EQ(two.fast_disk, 10.0);
  EXPECT_STREQ(two.bound_by(), "the fast disk");
  EXPECT_STREQ(engine::model::step_time(work, {500.0, 500.0, 1000.0}).bound_by(), "the processor");
  // Attention that computes while there is little to read is not hidden by what is read later.
  work.up_attention = {3000.0, 100, 0};
  work.up_mlp = {1000.0, 100, 200};
  const StepTime phases = engine::model::step_time(work, {100.0, 0.0, 1000.0});
  EXPECT_DOUBLE_EQ(phases.disk, 19.0);
  EXPECT_DOUBLE_EQ(phases.processor, 8.0);
  EXPECT_DOUBLE_EQ(phases.seconds, 3.0 + 3.0 + 14.9 + 0.1);
}

// The phases are the step.
TEST(Forecast, PhasesAddUp) {
  const StepWork work = measure(2'000'000).work;
  const auto& [attention, mlp, rest] = std::tie(work.up_attention, work.up_mlp, work.rest);
  EXPECT_NEAR(attention.flops + mlp.flops + rest.flops, work.flops, 1e-9 * work.flops);
  EXPECT_EQ(attention.trunk_bytes + mlp.trunk_bytes + rest.trunk_bytes + attention.expert_bytes +
                mlp.expert_bytes + rest.expert_bytes + work.embedding_bytes,
            work.read_bytes());
  // A third of the products is the way up, or a little more: not all are recomputed.
  EXPECT_GT(attention.flops + mlp.flops, 0.25 * work.flops);
  EXPECT_LT(attention.flops + mlp.flops, 0.45 * work.flops);
}

}  // namespace
