#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "checks/train/toy.h"
#include "checks/train/toy_set.h"
#include "engine/base/error.h"
#include "engine/base/parallel.h"
#include "engine/base/rng.h"
#include "engine/base/sha256.h"
#include "engine/train/schedule.h"
#include "engine/train/trainer.h"

namespace {

namespace fs = std::filesystem;
using checks::dies_in;
using checks::Killed;
using checks::log_of;
using checks::phase;
using checks::read_bytes;
using checks::reproducible;
using checks::run_toy;
using checks::ScratchFolder;
using checks::toy_functions;
using checks::toy_job;
using checks::why_refused;
using engine::model::AdapterSet;
using engine::train::Job;
using testing::HasSubstr;

// One place where a run dies: after 0 to 9 sweeps, inside any step, then resumed to the end.
TEST(Resume, G6_ResumedRunEqualsAnUninterruptedOneByteForByte) {
  const ScratchFolder folder;
  const fs::path straight = folder.path() / "straight";
  run_toy(toy_job(straight));
  for (int sweep = 1; sweep <= 7; ++sweep) {
    const fs::path run = folder.path() / ("killed" + std::to_string(sweep));
    EXPECT_THROW(run_toy(toy_job(run), dies_in(sweep)), Killed);
    Job again = toy_job(run);
    again.resume = true;
    run_toy(again);
    const auto got = reproducible(run);
    const auto want = reproducible(straight);
    ASSERT_EQ(got.size(), want.size());
    for (std::size_t i = 0; i < got.size(); ++i) EXPECT_EQ(got[i], want[i]) << "sweep " << sweep;
    EXPECT_EQ(nlohmann::json::parse(read_bytes(run / "manifest.json")).at("starts").size(), 2u);
    EXPECT_EQ(fs::exists(run / "log.abandoned.jsonl"), sweep != 4) << sweep;
  }
}

// The real thing: SIGKILL at a random moment, again and again, until a run comes through.
TEST(Resume, SurvivesSigkillAtAnyMoment) {
  const ScratchFolder folder;
  const fs::path straight = folder.path() / "straight";
  const auto job = [&](const fs::path& run) {
    Job j = toy_job(run);
    j.settings.schedule.total = 20;
    j.settings.checkpoint_every = 1;
    j.resume = fs::exists(run / "manifest.json");  // killed before, there is nothing to resume
    return j;
  };
  run_toy(job(straight));
  const fs::path run = folder.path() / "killed";
  const engine::base::CounterRng rng(1, "moments of death");
  bool done = false;
  std::uint64_t kills = 0;
  for (std::uint64_t attempt = 0; attempt < 400 && !done; ++attempt) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      engine::base::set_threads(1);  // OpenMP's threads do not survive a fork
      try {
        run_toy(job(run));
      } catch (const std::exception& error) {
        fmt::print(stderr, "{}\n", error.what());
        _exit(1);
      }
      _exit(0);
    }
    // Longer from attempt to attempt, so that a slow disk does not keep it from ending.
    const float longest_ms = 10.0f + static_cast<float>(attempt);
    const auto delay = static_cast<int>(rng.uniform(attempt) * longest_ms * 1000.0f);
    std::this_thread::sleep_for(std::chrono::microseconds(delay));
    kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    if (WIFEXITED(status)) {
      ASSERT_EQ(WEXITSTATUS(status), 0);
      done = true;
    } else {
      ++kills;
    }
  }
  EXPECT_TRUE(done);
  EXPECT_GT(kills, 0u) << "nothing was killed: the test did not test";
  EXPECT_EQ(reproducible(run), reproducible(straight));
  RecordProperty("kills", static_cast<int>(kills));
}

// Where adapters, gradients and moments are is no setting of the run: it may change from one start to
// the next.
TEST(Resume, AdaptersGradientsAndMomentsOnDiskChangeNoByte) {
  const ScratchFolder scratch;
  run_toy(toy_job(scratch / "memory"));
  const auto want = reproducible(scratch / "memory");
  run_toy(toy_job(scratch / "disk"), toy_functions(), {}, {}, scratch.path());
  EXPECT_EQ(reproducible(scratch / "disk"), want);
  // Killed in memory, gone on with on disk.
  Job job = toy_job(scratch / "both");
  job.settings.schedule.total = 7;
  int sweeps = 0;
  engine::train::SweepFunctions failing = toy_functions();
  failing.forward_backward = [&](const auto& batch, auto& adapters, const auto& hooks) {
    if (++sweeps == 5) throw engine::base::Error("planted");
    return checks::toy_sweep(batch, adapters, hooks);
  };
  EXPECT_THROW(run_toy(job, failing), engine::base::Error);
  job.resume = true;
  run_toy(job, toy_functions(), {}, {}, scratch.path());
  EXPECT_EQ(reproducible(scratch / "both"), want);
  // Planted: a moment that is lost on its way to the disk and back.
  sweeps = 0;
  engine::train::SweepFunctions losing = toy_functions();
  losing.forward_backward = [&](const auto& batch, auto& adapters, const auto& hooks) {
    auto result = checks::toy_sweep(batch, adapters, hooks);
    if (++sweeps == 2) adapters.tensors()[0].gradient[0] = 0.0f;
    return result;
  };
  run_toy(toy_job(scratch / "lost"), losing, {}, {}, scratch.path());
  EXPECT_NE(reproducible(scratch / "lost"), want);
}

TEST(Resume, DamagedNewestCheckpointIsRepeatedFromTheOneBefore) {
  const ScratchFolder folder;
  const fs::path straight = folder.path() / "straight", run = folder.path() / "run";
  run_toy(toy_job(straight));
  EXPECT_THROW(run_toy(toy_job(run), dies_in(7)), Killed);  // behind the checkpoint of step 6
  fs::resize_file(run / "checkpoints/step_00006/moments.safetensors", 100);
  Job again = toy_job(run);
  again.resume = true;
  EXPECT_THAT(engine::train::open_run(again).notices,
              testing::ElementsAre(HasSubstr("step_00006")));
  run_toy(again);
  fs::remove_all(run / "checkpoints/step_00006.damaged");
  EXPECT_EQ(reproducible(run), reproducible(straight));
}

TEST(Resume, NoWholeCheckpointIsARefusalNotANewStart) {
  const ScratchFolder folder;
  const fs::path run = folder.path() / "run";
  EXPECT_THROW(run_toy(toy_job(run), dies_in(5)), Killed);
  fs::remove(run / "checkpoints/step_00003/state.json");
  Job again = toy_job(run);
  again.resume = true;
  EXPECT_THAT(why_refused([&] { run_toy(again); }), HasSubstr("no checkpoint is whole"));
}

TEST(Resume, ResumeOfAFinishedRunChangesNothing) {
  const ScratchFolder folder;
  const fs::path run = folder.path() / "run";
  run_toy(toy_job(run));
  const auto before = reproducible(run);
  Job again = toy_job(run);
  again.resume = true;
  run_toy(again);
  EXPECT_EQ(reproducible(run), before);
}

// There is nothing left to do, which is no reason not to look.
TEST(Resume, ResumeOfAFinishedRunWhoseLogContradictsIsRefused) {
  const ScratchFolder folder;
  const fs::path run = folder.path() / "run";
  run_toy(toy_job(run));
  Job again = toy_job(run);
  again.resume = true;
  const std::string good = read_bytes(run / "log.jsonl");
  const auto with = [&](const std::string& log) {
    checks::write_bytes(run / "log.jsonl", log);
    const std::string why = why_refused([&] { run_toy(again); });
    EXPECT_EQ(read_bytes(run / "log.jsonl"), log) << "nothing is written";
    return why;
  };
  std::string changed = good;
  changed.replace(changed.find("\"loss\":"), 7, "\"Loss\":");
  EXPECT_THAT(with(changed), HasSubstr("log.jsonl line"));
  EXPECT_THAT(with(good.substr(0, good.size() / 2)), HasSubstr("checkpoint was written behind"));
  EXPECT_THAT(with(""), HasSubstr("0 bytes"));
  EXPECT_EQ(with(good), "");
  fs::remove(run / "log.jsonl");
  EXPECT_THAT(why_refused([&] { run_toy(again); }), HasSubstr("log.jsonl"));
  EXPECT_FALSE(fs::exists(run / "log.jsonl"));
}

// Lines behind its last are those of a start that would have gone on: they go where they go in any other run.
TEST(Resume, ResumeOfAFinishedRunAbandonsLinesBehindItsLast) {
  const ScratchFolder folder;
  checks::write_set(folder / "held", {checks::toy_sequences()[0]}, 9);
  for (const std::int64_t eval_every : {0, 2}) {
    const fs::path run = folder / fmt::format("run{}", eval_every), log = run / "log.jsonl";
    Job job = toy_job(run);
    job.settings.eval_every = eval_every;
    if (eval_every > 0) job.held_out = checks::open_toy_set(folder / "held");
    run_toy(job);
    const auto before = reproducible(run);
    const std::string good = read_bytes(log);
    const std::size_t last = good.rfind('\n', good.size() - 2) + 1;
    const std::string head = engine::base::sha256_hex(good.substr(last, good.size() - last - 1));
    job.resume = true;
    std::string abandoned;
    for (const std::string& more :
         {std::string("{\"half a li"), std::string("no JSON\n"),
          fmt::format("{{\"phase\":\"evaluation\",\"prev\":\"{}\"}}\n", head),
          fmt::format("{{\"phase\":\"override\",\"prev\":\"{}\"}}\n", head)}) {
      checks::write_bytes(log, good + more);
      run_toy(job);
      EXPECT_EQ(reproducible(run), before) << more;
      if (eval_every > 0) abandoned += good.substr(last);  // the evaluation was made again
      abandoned += more;
      EXPECT_EQ(read_bytes(run / "log.abandoned.jsonl"), abandoned);
    }
    // Without its last evaluation it is not finished either.
    if (eval_every == 0) continue;
    checks::write_bytes(log, good.substr(0, last));
    run_toy(job);
    EXPECT_EQ(reproducible(run), before);
  }
}

TEST(Resume, SettingChangedOnResumeIsRefusedNamingBothValues) {
  const ScratchFolder folder;
  const fs::path run = folder.path() / "run";
  EXPECT_THROW(run_toy(toy_job(run), dies_in(5)), Killed);
  Job again = toy_job(run);
  again.resume = true;
  again.settings.schedule.peak = 0.5;
  again.settings.schedule.total = 9;
  const std::string why = why_refused([&] { run_toy(again); });
  EXPECT_THAT(why, HasSubstr("lr: the run has 0.01, now 0.5"));
  EXPECT_THAT(why, HasSubstr("steps: the run has 7, now 9"));

  again = toy_job(run);
  again.resume = true;
  again.sequences[0][2] += 1;
  EXPECT_THAT(why_refused([&] { run_toy(again); }), HasSubstr("not the run's data"));
  again = toy_job(run);
  again.resume = true;
  again.identity.config_sha256[0] = 'e';
  EXPECT_THAT(why_refused([&] { run_toy(again); }), HasSubstr("not the run's config.json"));
  again = toy_job(run);
  again.resume = true;
  again.name = "other";
  EXPECT_THAT(why_refused([&] { run_toy(again); }), HasSubstr("other"));
}

TEST(Resume, OverrideIsTakenAndLogged) {
  const ScratchFolder folder;
  const fs::path run = folder.path() / "run";
  EXPECT_THROW(run_toy(toy_job(run), dies_in(5)), Killed);
  Job again = toy_job(run);
  again.resume = true;
  again.overrides = {{"lr", "0.5"}, {"steps", "9"}};
  EXPECT_THROW(run_toy(again, dies_in(2)),
               Killed);  // before a checkpoint: the override is due again
  run_toy(again);
  const auto lines = log_of(run);
  const auto changes = phase(lines, "override");
  ASSERT_EQ(changes.size(), 2u);
  EXPECT_EQ(changes[0].at("setting"), "steps");
  EXPECT_EQ(changes[0].at("saved"), "7");
  EXPECT_EQ(changes[0].at("now"), "9");
  EXPECT_EQ(changes[1].at("setting"), "lr");
  const auto steps = phase(lines, "step_end");
  ASSERT_EQ(steps.size(), 9u);
  EXPECT_EQ(steps[3].at("lr").get<double>(), engine::train::learning_rate({0.5, 1e-4, 2, 9}, 4));
  engine::train::check_log(run / "log.jsonl");
  run_toy(again);
  EXPECT_EQ(phase(log_of(run), "override").size(), 2u) << "a change that holds is not made again";
}

TEST(Resume, BadOverridesAreRefused) {
  const ScratchFolder folder;
  const fs::path run = folder.path() / "run";
  EXPECT_THROW(run_toy(toy_job(run), dies_in(5)), Killed);
  for (const auto& [name, text, expected] :
       {std::tuple("learning-rate", "1", "there is no setting"), std::tuple("lr", "fast", "fast"),
        std::tuple("lr", "1e-3x", "1e-3x"), std::tuple("lr", "nan", "lr is \"nan\""),
        std::tuple("steps", "0", "steps is \"0\""), std::tuple("steps", "2", "3 steps taken"),
        std::tuple("strict", "yes", "strict"),
        std::tuple("rank", "8", "--override rank=8: the run's rank is 3, the shape of its"),
        std::tuple("targets", "q", "cannot be overridden (what can: steps, lr, "),
        std::tuple("rank", "0", "rank is \"0\"")}) {
    Job again = toy_job(run);
    again.resume = true;
    again.overrides = {{name, text}};
    EXPECT_THAT(why_refused([&] { run_toy(again); }), HasSubstr(expected)) << name << "=" << text;
  }
  Job same = toy_job(run);
  same.resume = true;
  same.overrides = {{"rank", "3"}};
  EXPECT_EQ(why_refused([&] { engine::train::open_run(same); }), "") << "no change, no refusal";
  same.overrides = {};
  same.settings.adapter.rank = 4;
  EXPECT_THAT(why_refused([&] { run_toy(same); }),
              HasSubstr("rank: the run has 3, now 4 (cannot be overridden)"));
  Job fresh = toy_job(folder.path() / "fresh");
  fresh.overrides = {{"lr", "0.5"}};
  EXPECT_THAT(why_refused([&] { run_toy(fresh); }), HasSubstr("--override lr"));
}

// It would be announced, and no checkpoint would ever say so.
TEST(Resume, AnOverrideForWhichNoStepIsLeftIsRefused) {
  const ScratchFolder folder;
  const fs::path run = folder.path() / "run";
  run_toy(toy_job(run));
  const std::string log = read_bytes(run / "log.jsonl");
  Job again = toy_job(run);
  again.resume = true;
  for (const auto& [name, text] : {std::pair("lr", "0.5"), std::pair("keep", "1")}) {
    again.overrides = {{name, text}};
    const std::string why = why_refused([&] { run_toy(again); });
    EXPECT_THAT(why, HasSubstr(fmt::format("--override {}={}: ", name, text)));
    EXPECT_THAT(why, HasSubstr("its 7 steps were taken with"));
  }
  EXPECT_EQ(read_bytes(run / "log.jsonl"), log);
  EXPECT_FALSE(fs::exists(run / "log.abandoned.jsonl"));
  again.overrides = {{"lr", "0.5"}, {"steps", "9"}};
  EXPECT_TRUE(run_toy(again)) << "two steps are left";
  EXPECT_EQ(phase(log_of(run), "override").size(), 2u);
}

// Resumes that forget something; each must end elsewhere than the straight run.
TEST(Resume, PlantedFaults) {
  const ScratchFolder folder;
  run_toy(toy_job(folder.path() / "straight"));
  const std::string want = read_bytes(folder.path() / "straight/adapter.safetensors");
  enum Forget { kNothing, kMoments, kCursor, kStep, kAdapter };
  for (const Forget forget : {kNothing, kMoments, kCursor, kStep, kAdapter}) {
    const fs::path run = folder.path() / std::to_string(forget);
    EXPECT_THROW(run_toy(toy_job(run), dies_in(4)), Killed);
    auto found = engine::train::find_newest(run);
    ASSERT_TRUE(found.newest);
    engine::base::RamBudget budget(1 << 20);
    const auto& settings = toy_job(run).settings;
    AdapterSet adapters(checks::toy_config(), settings.adapter, budget);
    const engine::train::Moments moments(adapters, budget);
    engine::train::load_tensors(found.newest->folder, adapters, moments);
    auto state = found.newest->state;
    ASSERT_EQ(state.step, 3);
    if (forget == kMoments) {
      for (const auto& tensor : moments.tensors()) {
        std::fill(tensor.m.begin(), tensor.m.end(), 0.0f);
        std::fill(tensor.v.begin(), tensor.v.end(), 0.0f);
      }
    }
    if (forget == kCursor) state.cursor = 0;
    if (forget == kAdapter) adapters.initialize(11);
    if (forget == kStep) state.step = 2;
    {
      // The forged checkpoint takes the place of the true one.
      const fs::path place = found.newest->folder;
      fs::remove_all(place);
      engine::train::SnapshotWriter writer(run, state.step);
      writer.write_tensors(adapters, moments, state.identity);
      writer.publish(state);
    }
    Job again = toy_job(run);
    again.resume = true;
    run_toy(again);
    EXPECT_EQ(read_bytes(run / "adapter.safetensors") == want, forget == kNothing) << forget;
  }
}

}  // namespace
