#include <gmock/gmock.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "checks/train/toy.h"
#include "checks/train/toy_set.h"
#include "engine/base/error.h"
#include "engine/base/parallel.h"
#include "engine/cli/stop_signals.h"
#include "engine/store/durable.h"
#include "engine/train/evaluation.h"

namespace {

namespace fs = std::filesystem;
using checks::dies_in;
using checks::Killed;
using checks::log_of;
using checks::phase;
using checks::read_bytes;
using checks::run_toy;
using checks::ScratchFolder;
using checks::toy_functions;
using checks::toy_job;
using checks::why_refused;
using engine::base::Error;
using engine::base::RamBudget;
using engine::model::AdapterSet;
using engine::model::Batch;
using engine::train::Job;
using engine::train::RunLock;
using testing::AllOf;
using testing::HasSubstr;

using StopAfter = std::function<bool()>;
// Says yes when asked for the n-th time, counted from 0.
StopAfter stop_after(int n) {
  const auto count = std::make_shared<int>(0);
  return [count, n] { return (*count)++ == n; };
}

struct Fixture {
  ScratchFolder folder;
  Fixture() {
    const auto all = checks::toy_sequences();
    checks::write_set(folder / "five", all, 9);
    checks::write_set(folder / "held", {all[0], all[1], all[3]}, 9);
  }
  // Seven steps, checkpoints behind 3, 6 and 7, evaluations behind 0, 2, 4, 6 and 7.
  Job job(const std::string& run) const {
    Job job = toy_job(folder / run);
    job.settings.eval_every = 2;
    job.held_out = checks::open_toy_set(folder / "held");
    return job;
  }
  std::string what_counts(const std::string& run) const {
    return read_bytes(folder / run / "adapter.safetensors") +
           read_bytes(folder / run / "log.jsonl");
  }
  // Stops at every question, once each, and goes on.
  bool finish(const std::string& run, const StopAfter& stop) const {
    Job again = job(run);
    again.resume = std::filesystem::exists(again.run);
    return run_toy(again, toy_functions(), {}, stop);
  }
};

// Wherever it is asked: the adapter and the log are those of a run that was never asked.
TEST(Stop, StoppedAnywhereAndResumedItIsTheSameRun) {
  const Fixture f;
  ASSERT_TRUE(run_toy(f.job("straight")));
  int stops = 0;
  for (;; ++stops) {
    const std::string run = "stopped" + std::to_string(stops);
    if (run_toy(f.job(run), toy_functions(), {}, stop_after(stops))) break;
    EXPECT_FALSE(fs::exists(f.folder / run / "adapter.safetensors"));
    EXPECT_EQ(engine::train::read_breadcrumb(f.folder / run)->ending,
              engine::train::Ending::kAsked);
    ASSERT_TRUE(f.finish(run, {}));
    EXPECT_EQ(f.what_counts(run), f.what_counts("straight")) << "stopped at question " << stops;
  }
  // Between seven steps, and before each sweep of five evaluations of two sequences.
  EXPECT_EQ(stops, 7 + 5 * 2);
  // As often as there are questions: some progress is made between any two.
  int starts = 0;
  while (!f.finish("many", stop_after(3))) ASSERT_LT(++starts, 30);
  EXPECT_GT(starts, 3);
  EXPECT_EQ(f.what_counts("many"), f.what_counts("straight"));
}

TEST(Stop, NothingIsLostAndNothingIsSavedTwice) {
  const Fixture f;
  const auto behind = [&](int steps) {
    Job job = toy_job(f.folder / ("run" + std::to_string(steps)));
    EXPECT_FALSE(run_toy(job, toy_functions(), {}, stop_after(steps)));
    const auto found = engine::train::find_newest(job.run);
    return found.newest ? found.newest->state.step : 0;
  };
  for (const int steps : {0, 1, 2, 3, 4}) EXPECT_EQ(behind(steps), steps);
  EXPECT_EQ(phase(log_of(f.folder / "run4"), "checkpoint").size(), 1u)
      << "out of turn there is no line";
}

TEST(Evaluation, NoBitOfTheTrainingDependsOnIt) {
  const Fixture f;
  run_toy(f.job("with"));
  run_toy(toy_job(f.folder / "without"));
  EXPECT_EQ(read_bytes(f.folder / "with/adapter.safetensors"),
            read_bytes(f.folder / "without/adapter.safetensors"));
  const auto lines = phase(log_of(f.folder / "with"), "evaluation");
  std::vector<int> steps;
  for (const auto& line : lines) {
    steps.push_back(line.at("step"));
    EXPECT_EQ(line.at("trained"), 8);
    EXPECT_EQ(line.at("sequences"), 2) << "of the third nothing is trained";
  }
  EXPECT_EQ(steps, (std::vector<int>{0, 2, 4, 6, 7}));
  EXPECT_NE(lines.front().at("loss"), lines.back().at("loss"));
}

double loss_of(const Fixture& f, std::int64_t together) {
  RamBudget budget(1 << 20);
  AdapterSet adapters(checks::toy_config(), {3, 6.0, {"q", "expert_gate"}}, budget);
  adapters.initialize(3);
  const auto forward = [&](const Batch& batch) { return checks::toy_forward(batch, adapters, {}); };
  const auto feed = engine::data::feed_of(checks::open_toy_set(f.folder / "five"), false);
  return engine::train::evaluate(feed, together, forward, {})->loss;
}

TEST(Evaluation, MemoryDecidesTheSweepsAndNoBitDependsOnThem) {
  const Fixture f;
  const double want = loss_of(f, 1);
  for (const std::int64_t together : {2, 3, 4, 5, 100}) EXPECT_EQ(loss_of(f, together), want);
  const auto feed = engine::data::feed_of(checks::open_toy_set(f.folder / "five"), false);
  for (const auto& [tokens, together] :
       {std::pair(6, 1), std::pair(11, 2), std::pair(16, 4), std::pair(1000, 8)}) {
    const auto fits = [most = tokens](const Batch& batch) {
      if (batch.size() > most) throw Error("too large");
    };
    EXPECT_EQ(engine::train::sequences_a_sweep(feed, fits), together) << tokens;
  }
  EXPECT_THAT(why_refused([&] {
                engine::train::sequences_a_sweep(feed, [](const Batch&) { throw Error("none"); });
              }),
              HasSubstr("none"));
}

TEST(Evaluation, AnotherHeldOutSetIsRefusedByName) {
  const Fixture f;
  EXPECT_THROW(run_toy(f.job("run"), dies_in(5)), Killed);
  checks::write_set(f.folder / "other", {checks::toy_sequences()[2]}, 5);
  Job again = f.job("run");
  again.resume = true;
  again.held_out = checks::open_toy_set(f.folder / "other");
  EXPECT_THAT(why_refused([&] { run_toy(again); }),
              AllOf(HasSubstr("not the run's held-out data"), HasSubstr("other")));
}

// The kernel takes the lock back, however the process ends; asking does not take it.
TEST(RunLock, IsHeldAsLongAsTheProcessLives) {
  const ScratchFolder folder;
  EXPECT_FALSE(RunLock::held(folder.path()));
  {
    const RunLock lock(folder.path());
    EXPECT_TRUE(RunLock::held(folder.path()));
    EXPECT_THAT(why_refused([&] { RunLock(folder.path()); }), HasSubstr("another process"));
    EXPECT_TRUE(RunLock::held(folder.path())) << "asking and being refused took it away";
  }
  EXPECT_FALSE(RunLock::held(folder.path()));
  for (const int signal : {SIGKILL, SIGTERM}) {
    int ready[2];
    ASSERT_EQ(pipe(ready), 0);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      const RunLock lock(folder.path());
      static_cast<void>(write(ready[1], "x", 1) < 0);
      for (;;) pause();
    }
    char byte = 0;
    ASSERT_EQ(read(ready[0], &byte, 1), 1);
    EXPECT_TRUE(RunLock::held(folder.path()));
    kill(child, signal);
    ASSERT_EQ(waitpid(child, nullptr, 0), child);
    EXPECT_FALSE(RunLock::held(folder.path()));
    close(ready[0]);
    close(ready[1]);
  }
}

TEST(RunLock, TwoProcessesDoNotWorkOnOneRun) {
  const ScratchFolder folder;
  EXPECT_THROW(run_toy(toy_job(folder / "run"), dies_in(5)), Killed);
  const RunLock other(folder / "run");
  Job again = toy_job(folder / "run");
  again.resume = true;
  EXPECT_THAT(why_refused([&] { run_toy(again); }), HasSubstr("another process works on this run"));
}

// As the command hears it: the first is a wish, the second ends the process as if nobody listened.
TEST(StopSignals, TheFirstIsAWishTheSecondAnEnd) {
  for (const auto& [first, second] :
       {std::pair(SIGTERM, SIGTERM), std::pair(SIGINT, SIGTERM), std::pair(SIGTERM, SIGINT)}) {
    int heard[2];
    ASSERT_EQ(pipe(heard), 0);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      dup2(heard[1], STDERR_FILENO);
      signal(SIGINT, SIG_DFL);
      const engine::cli::StopSignals signals("heard");
      if (engine::cli::StopSignals::asked()) _exit(1);
      raise(first);
      if (!engine::cli::StopSignals::asked()) _exit(2);
      raise(second);
      _exit(3);
    }
    close(heard[1]);
    std::string said(200, '\0');
    said.resize(static_cast<std::size_t>(std::max<ssize_t>(0, read(heard[0], said.data(), 200))));
    close(heard[0]);
    EXPECT_EQ(said, "heard");
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << WEXITSTATUS(status);
    EXPECT_EQ(WTERMSIG(status), second);
  }
}

// Of every other command: what is unfinished is removed, and where nothing is, nobody waits.
TEST(StopSignals, AWishRemovesWhatIsUnfinishedAndNothingElseWaits) {
  const ScratchFolder folder;
  const auto exit_of = [](const std::function<int()>& run) {
    const pid_t child = fork();
    if (child == 0) {
      signal(SIGINT, SIG_DFL);
      engine::cli::hear_signals();
      _exit(run());
    }
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  };
  const auto stopped = [&](const char* name, bool committed, int signals) {
    return exit_of([&] {
      engine::store::TemporaryFolder out(folder / name);
      if (committed) out.commit();
      for (int i = 0; i < signals; ++i) raise(SIGINT);
      try {
        engine::store::write_file_durably(out.path() / "file", std::string_view("text"));
      } catch (const Error& error) {
        return error.what() == (folder / name).string() +
                                   ": stopped by a signal; what was written is removed"
                   ? 1
                   : 2;
      }
      return 0;
    });
  };
  EXPECT_EQ(exit_of([] { return raise(SIGTERM); }), 128 + SIGTERM);
  EXPECT_EQ(stopped("none", false, 0), 0);
  EXPECT_EQ(stopped("one", false, 1), 1);
  EXPECT_EQ(stopped("two", false, 2), 128 + SIGINT);
  EXPECT_EQ(stopped("there", true, 1), 128 + SIGINT);
  std::vector<std::string> left;
  for (const auto& entry : fs::directory_iterator(folder.path())) {
    left.push_back(entry.path().filename());
  }
  EXPECT_THAT(left, testing::UnorderedElementsAre("there", "two.lazylora-tmp"));
}

// Ways to stop that lose or repeat something; each must show.
TEST(Stop, PlantedFaults) {
  const Fixture f;
  ASSERT_TRUE(run_toy(f.job("straight")));
  const auto stopped_with = [&](const std::string& run, const char* field, auto value) {
    EXPECT_FALSE(run_toy(f.job(run), toy_functions(), {}, stop_after(10)));
    const auto newest = engine::train::find_newest(f.folder / run).newest;
    const fs::path state = newest->folder / "state.json";
    auto json = nlohmann::ordered_json::parse(read_bytes(state));
    json.erase("sha256");
    json["data"][field] = value(json["data"][field]);
    json["sha256"] = engine::base::sha256_hex(json.dump());
    checks::write_bytes(state, json.dump());
    EXPECT_TRUE(f.finish(run, {}));
    return f.what_counts(run) == f.what_counts("straight");
  };
  EXPECT_TRUE(stopped_with("same", "cursor", [](int n) { return n; }));
  EXPECT_FALSE(stopped_with("ahead", "cursor", [](int n) { return n + 1; }));
  EXPECT_FALSE(stopped_with("again", "evaluated", [](int) { return -1; }))
      << "an evaluation that stands in the log is made once more";
}

}  // namespace
