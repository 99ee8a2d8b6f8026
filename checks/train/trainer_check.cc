#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <regex>
#include <string>
#include <vector>

#include "checks/compare.h"
#include "checks/engine_run.h"
#include "checks/train/toy.h"
#include "engine/base/error.h"
#include "engine/base/parallel.h"
#include "engine/train/schedule.h"
#include "engine/train/trainer.h"

namespace {

namespace fs = std::filesystem;
using checks::log_of;
using checks::phase;
using checks::read_bytes;
using checks::reproducible;
using checks::run_toy;
using checks::ScratchFolder;
using checks::toy_functions;
using checks::toy_job;
using checks::why_refused;
using engine::base::Error;
using engine::model::AdapterSet;
using engine::model::Batch;
using engine::model::SweepHooks;
using engine::model::SweepResult;
using engine::train::Job;
using engine::train::SweepFunctions;
using testing::HasSubstr;

TEST(Trainer, WritesARunThatCanBeFollowed) {
  const ScratchFolder folder;
  const fs::path run = folder.path() / "run";
  run_toy(toy_job(run));
  const auto lines = log_of(run);
  const auto steps = phase(lines, "step_end");
  ASSERT_EQ(steps.size(), 7u);
  EXPECT_LT(steps.back().at("loss").get<double>(), steps.front().at("loss").get<double>());
  EXPECT_EQ(phase(lines, "start").size(), 1u);
  EXPECT_EQ(phase(lines, "forward_end").size(), 7u);
  EXPECT_EQ(phase(lines, "backward_end").size(), 7u);
  EXPECT_EQ(phase(lines, "checkpoint").size(), 3u);
  // Of three sequences the third has no target: it is passed over, and no step is taken for it.
  EXPECT_EQ(phase(lines, "skipped").size(), 3u);
  EXPECT_EQ(steps.back().at("cursor"), 10);
  for (const auto& line : phase(lines, "skipped")) EXPECT_TRUE(line.at("loss").is_null());
  for (std::size_t i = 0; i < steps.size(); ++i) {
    EXPECT_EQ(steps[i].at("lr").get<double>(),
              engine::train::learning_rate({1e-2, 1e-4, 2, 7}, static_cast<std::int64_t>(i) + 1));
  }
  engine::train::check_log(run / "log.jsonl");
  const auto found = engine::train::find_newest(run);
  ASSERT_TRUE(found.newest);
  EXPECT_EQ(found.newest->state.step, 7);
  EXPECT_EQ(read_bytes(run / "adapter.safetensors"),
            read_bytes(found.newest->folder / "adapter.safetensors"));
  const auto manifest = nlohmann::json::parse(read_bytes(run / "manifest.json"));
  EXPECT_EQ(manifest.at("starts").size(), 1u);
  EXPECT_EQ(manifest.at("starts").at(0).at("mxcsr"), "0x1f80");
  EXPECT_EQ(manifest.at("run"), lines.front().at("run"));
}

TEST(Trainer, ThreadsDoNotMatter) {
  const ScratchFolder folder;
  const int before = engine::base::threads();
  for (const int threads : {1, 4}) {
    engine::base::set_threads(threads);
    run_toy(toy_job(folder.path() / std::to_string(threads)));
  }
  engine::base::set_threads(before);
  EXPECT_EQ(reproducible(folder.path() / "1"), reproducible(folder.path() / "4"));
}

TEST(Trainer, ExistingRunIsNotOverwritten) {
  const ScratchFolder folder;
  const fs::path run = folder.path() / "run";
  run_toy(toy_job(run));
  EXPECT_THAT(why_refused([&] { run_toy(toy_job(run)); }), HasSubstr("--resume"));
  fs::create_directories(folder.path() / "other");
  checks::write_bytes(folder.path() / "other/file", "mine");
  Job job = toy_job(folder.path() / "other");
  EXPECT_THAT(why_refused([&] { run_toy(job); }), HasSubstr("is there already and is no run"));
  job.resume = true;
  EXPECT_THAT(why_refused([&] { run_toy(job); }), HasSubstr("no run"));
  EXPECT_EQ(checks::read_bytes(folder.path() / "other/file"), "mine");
}

Job short_and_long(const fs::path& run) {
  Job job = toy_job(run);
  job.sequence_names = {"short", "long", "other"};
  job.sequences = {{1, 2, 3, 4}, {}, {5, 6}};
  for (int i = 0; i < 301; ++i) job.sequences[1].push_back(i % 50);
  job.settings.mask_first = 0;
  job.settings.sequences = 2;
  job.settings.schedule.total = 2;
  return job;
}

// A sequence of the job as a batch of its own.
Batch alone(const Job& job, std::size_t i) {
  const auto s = engine::data::make_sequence("", job.sequences[i], 0);
  return {s.tokens, s.targets, {0, static_cast<std::int64_t>(s.tokens.size())}};
}

// The toy's gradients at its first values, each batch weighing as much as it has trained tokens; or
// all the same, which is the fault.
std::vector<double> weighted(const std::vector<Batch>& batches, bool by_tokens = true) {
  engine::base::RamBudget budget(1 << 20);
  AdapterSet adapters(checks::toy_config(), {3, 6.0, {"q", "expert_gate"}}, budget);
  adapters.initialize(11);
  std::vector<double> sum;
  double weights = 0.0;
  for (const Batch& batch : batches) {
    adapters.clear_gradients();
    checks::toy_sweep(batch, adapters, {});
    const double weight = by_tokens ? static_cast<double>(batch.trained()) : 1.0;
    weights += weight;
    std::size_t at = 0;
    for (const auto& tensor : adapters.tensors()) {
      for (const float g : tensor.gradient) {
        if (at == sum.size()) sum.push_back(0.0);
        sum[at++] += weight * static_cast<double>(g);
      }
    }
  }
  for (double& g : sum) g /= weights;
  return sum;
}

// Every gradient was rounded to float32 once (values are of order 1), on both sides.
std::vector<double> rounding_of(const std::vector<double>& gradients) {
  std::vector<double> allowed;
  for (const double g : gradients) allowed.push_back(0x1p-23 * (std::abs(g) + 1.0));
  return allowed;
}

// Micro-batches with 3 and 300 trained tokens against one batch of both: the gradient is that of
// the tokens together, not the mean of two means; the last window, which is not full, is applied.
TEST(Trainer, G2_TokensWeighTheSameHoweverSequencesAreBatched) {
  const ScratchFolder folder;
  std::vector<Batch> seen;
  SweepFunctions functions = toy_functions();
  functions.forward_backward = [&](const Batch& batch, AdapterSet& adapters,
                                   const SweepHooks& hooks) {
    seen.push_back(batch);
    return checks::toy_sweep(batch, adapters, hooks);
  };
  const Job job = short_and_long(folder.path() / "run");
  run_toy(job, functions);
  ASSERT_EQ(seen.size(), 2u);
  EXPECT_EQ(seen[0].trained(), 303);
  EXPECT_EQ(seen[0].documents, (std::vector<std::int64_t>{0, 3, 303}));
  EXPECT_EQ(seen[1].trained(), 4) << "the last sequence, then cyclically the first";
  EXPECT_EQ(seen[1].documents, (std::vector<std::int64_t>{0, 1, 4}));

  const auto result = checks::compare(weighted({seen[0]}), weighted({alone(job, 0), alone(job, 1)}),
                                      rounding_of(weighted({seen[0]})));
  EXPECT_TRUE(result) << result.why;
}

// The loss of a whole model's step over 3 and 12 trained tokens is the mean of all 15. Each sequence's
// losses come from a sweep of its own over the base model, which the adapter at first is.
TEST(Trainer, LossIsTheMeanOverTrainedTokensNotOverSequences) {
  const ScratchFolder folder;
  checks::Engine engine(checks::tiny_checkpoint());
  Job job = toy_job(folder.path() / "run");
  job.sequence_names = {"short", "long"};
  job.sequences = {checks::random_ids(4, engine.config().vocabulary, 1),
                   checks::random_ids(13, engine.config().vocabulary, 2)};
  job.settings.adapter = {2, 4.0, {"q"}};
  job.settings.mask_first = 0;
  job.settings.sequences = 2;
  job.settings.schedule.total = 1;
  double sum = 0.0, sum_of_means = 0.0, tokens = 0.0;
  for (std::size_t i = 0; i < 2; ++i) {
    double own = 0.0;
    for (const double nll : engine.model.forward(alone(job, i), nullptr).nll) own += nll;
    const auto count = static_cast<double>(alone(job, i).trained());
    sum += own;
    sum_of_means += own / count;
    tokens += count;
  }
  ASSERT_EQ(tokens, 15.0);
  const SweepFunctions functions{[&](const Batch& batch, AdapterSet& set, const SweepHooks& hooks) {
                                   return engine.model.forward_backward(batch, set, hooks);
                                 },
                                 {}};
  engine::train::OpenRun open = engine::train::open_run(job);
  AdapterSet adapters(engine.config(), open.job.settings.adapter, engine.budget);
  engine::train::Trainer(std::move(open), adapters, engine.budget, functions).run();
  const auto steps = phase(log_of(folder.path() / "run"), "step_end");
  ASSERT_EQ(steps.size(), 1u);
  const auto loss = steps[0].at("loss").get<double>();
  // Sums of 15 terms of one sign in two orders, and a quotient each.
  const double allowed = 16 * std::numeric_limits<double>::epsilon() * loss;
  EXPECT_NEAR(loss, sum / tokens, allowed);
  EXPECT_GT(std::abs(loss - sum_of_means / 2.0), allowed) << "the fault would not be seen";
}

TEST(Trainer, GradientThatIsNotFiniteStopsBeforeAnythingIsChanged) {
  for (const bool in_loss : {false, true}) {
    const ScratchFolder folder;
    const fs::path run = folder.path() / "run";
    SweepFunctions functions = toy_functions();
    int sweeps = 0;
    std::vector<float> before;
    const AdapterSet* adapters_seen = nullptr;
    functions.forward_backward = [&](const Batch& batch, AdapterSet& adapters,
                                     const SweepHooks& hooks) {
      SweepResult result = checks::toy_sweep(batch, adapters, hooks);
      if (++sweeps < 4) return result;
      adapters_seen = &adapters;
      const float nan = std::numeric_limits<float>::quiet_NaN();
      if (in_loss) {
        result.loss = nan;
      } else {
        adapters.tensors()[2].gradient[1] = nan;
      }
      return result;
    };
    const std::string why = why_refused([&] { run_toy(toy_job(run), functions); });
    EXPECT_THAT(why, HasSubstr("nothing was changed"));
    EXPECT_THAT(why, HasSubstr(in_loss ? "loss" : "layers."));
    const auto lines = log_of(run);
    EXPECT_EQ(phase(lines, "step_end").size(), 3u);
    EXPECT_EQ(phase(lines, "forward_end").back().contains("loss_is"), in_loss);
    EXPECT_EQ(engine::train::find_newest(run).newest->state.step, 3);
  }
}

TEST(Trainer, G14_TensorThatNeverGetsAGradientIsSavedLikeTheOthers) {
  const ScratchFolder folder;
  const fs::path run = folder.path() / "run";
  SweepFunctions functions = toy_functions();
  functions.forward_backward = [](const Batch& batch, AdapterSet& adapters,
                                  const SweepHooks& hooks) {
    const SweepResult result = checks::toy_sweep(batch, adapters, hooks);
    const auto& tensor = adapters.tensors()[0];
    std::fill(tensor.gradient.begin(), tensor.gradient.end(), 0.0f);
    return result;
  };
  run_toy(toy_job(run), functions);
  EXPECT_EQ(engine::train::find_newest(run).newest->state.step, 7);
}

TEST(Trainer, BudgetThatCannotHoldIsRefusedBeforeTheRunFolderIsThere) {
  const ScratchFolder folder;
  const fs::path run = folder.path() / "run";
  Job job = toy_job(run);
  std::swap(job.sequences[0], job.sequences[1]);  // so that the second is the longest
  engine::train::OpenRun open = engine::train::open_run(job);
  const auto second_does_not_fit = [](engine::ops::Documents documents) {
    if (documents.back() == 5) throw Error("budget: the second sequence does not fit");
  };
  engine::base::RamBudget some(1 << 20);
  EXPECT_THAT(
      why_refused([&] { engine::train::require_memory(open, some, 1000, second_does_not_fit); }),
      HasSubstr("does not fit"));
  EXPECT_FALSE(fs::exists(run));
  const auto& settings = open.job.settings.adapter;
  engine::base::RamBudget ample(1 << 20);
  const AdapterSet measured(checks::toy_config(), settings, ample);
  engine::base::RamBudget budget(ample.used_bytes() + 100);
  AdapterSet adapters(checks::toy_config(), settings, budget);
  EXPECT_THAT(
      why_refused([&] { engine::train::Trainer(open, adapters, budget, toy_functions()).run(); }),
      HasSubstr("moments"));
  EXPECT_FALSE(fs::exists(run));
}

TEST(Trainer, G8_DiskThatCannotHoldIsRefusedBeforeTheRunFolderIsThere) {
  const ScratchFolder folder;
  Job job = toy_job(folder.path() / "run");
  job.settings.schedule.total = 1'000'000'000'000;
  job.settings.checkpoint_every = 1;
  job.settings.keep = 1'000'000'000'000;
  const std::string why = why_refused([&] { run_toy(job); });
  EXPECT_THAT(why, HasSubstr("1000000000000 kept"));
  EXPECT_THAT(why, HasSubstr("nothing was started"));
  EXPECT_FALSE(fs::exists(job.run));
}

// What is said to be needed is the sum of what is said to need it; what is there needs nothing more.
TEST(Trainer, G8_TheTermsOfTheDisksNeedAddUp) {
  const ScratchFolder folder;
  Job job = toy_job(folder.path() / "run");
  job.settings.keep = 1'000'000'000'000;
  job.settings.checkpoint_every = 1;
  job.settings.schedule.total = 2;
  run_toy(job);
  job.resume = true;
  job.overrides = {{"steps", "100000000000"}};
  const std::string why = why_refused([&] { run_toy(job); });
  const std::regex said(R"(, (\d+) needed: (\d+) checkpoints of (\d+) \((\d+) kept and one being )"
                        R"(written, (\d+) there\) and the final adapter of (\d+);)");
  std::smatch terms;
  ASSERT_TRUE(std::regex_search(why, terms, said)) << why;
  const auto term = [&](std::size_t i) { return std::stoll(terms[i]); };
  EXPECT_EQ(term(1), term(2) * term(3) + term(6)) << why;
  EXPECT_EQ(term(2), term(4) + 1 - term(5)) << why;
  EXPECT_EQ(term(5), 2);
}

TEST(Trainer, RunIdIsAFunctionOfSettingsModelDataAndName) {
  const auto id = [](const std::function<void(Job&)>& change) {
    Job job = toy_job("/nowhere/run");
    change(job);
    return engine::train::open_run(job).run_id;
  };
  const std::string plain = id([](Job&) {});
  EXPECT_EQ(plain.size(), 16u);
  EXPECT_EQ(id([](Job& j) { j.run = "/nowhere/else"; }), plain);
  EXPECT_EQ(id([](Job& j) { j.start.threads = 8; }), plain);
  EXPECT_NE(id([](Job& j) { j.settings.adamw.eps *= 2; }), plain);
  EXPECT_NE(id([](Job& j) { j.sequences[1][0] = 0; }), plain);
  EXPECT_NE(id([](Job& j) { j.identity.headers_sha256[5] = '0'; }), plain);
  EXPECT_THAT(id([](Job& j) { j.name = "first"; }), testing::StartsWith("first-"));
}

TEST(Trainer, AnUpdateThatLeavesFloat32IsNeverSaved) {
  const ScratchFolder folder;
  Job job = toy_job(folder.path() / "run");
  job.settings.schedule.peak = 1e300;
  EXPECT_THAT(why_refused([&] { run_toy(job); }),
              testing::AllOf(HasSubstr("step 1"), HasSubstr("not saved"), HasSubstr("lora_")));
  EXPECT_FALSE(fs::exists(job.run / "adapter.safetensors"));
  Job small = toy_job(folder.path() / "other");
  small.settings.adamw.eps = 1e-46;  // zero as float32
  EXPECT_THAT(why_refused([&] { run_toy(small); }),
              testing::AllOf(HasSubstr("eps"), HasSubstr("2^-126")));
  EXPECT_FALSE(fs::exists(small.run));
}

TEST(Trainer, PlantedFaults) {
  const Job job = short_and_long("/nowhere/run");
  const std::vector<Batch> apart{alone(job, 0), alone(job, 1)};
  const auto right = weighted(apart);
  EXPECT_TRUE(checks::compare(weighted(apart), right, rounding_of(right)));
  EXPECT_FALSE(checks::compare(weighted(apart, false), right, rounding_of(right)))
      << "the mean of two means";
  EXPECT_FALSE(checks::compare(weighted({apart[1]}), right, rounding_of(right)))
      << "a sequence that was left out";
}

}  // namespace
