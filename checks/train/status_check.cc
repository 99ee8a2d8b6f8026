#include <gmock/gmock.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <thread>

#include "checks/train/toy.h"
#include "engine/base/parallel.h"
#include "engine/base/sha256.h"
#include "engine/train/status.h"

namespace {

namespace fs = std::filesystem;
using checks::dies_in;
using checks::Killed;
using checks::run_toy;
using checks::ScratchFolder;
using checks::toy_job;
using checks::why_refused;
using engine::train::read_status;
using engine::train::RunStatus;
using engine::train::Standing;
using testing::AllOf;
using testing::HasSubstr;

constexpr const char* kLeftByAKill =
    R"({"step":7,"phase":"checkpoint","layer":-1,"rss_bytes":1,"peak_rss_bytes":1,"ending":"none"})";

// Starts a run in a process of its own that waits within its n-th sweep, and waits until it does.
class Waiting {
 public:
  Waiting(const fs::path& run, int n) {
    int ready[2] = {-1, -1};
    EXPECT_EQ(pipe(ready), 0);
    child_ = fork();
    if (child_ == 0) {
      engine::base::set_threads(1);  // OpenMP's threads do not survive a fork
      engine::train::SweepFunctions functions = checks::toy_functions();
      int count = 0;
      functions.forward_backward = [&](const engine::model::Batch& batch,
                                       engine::model::AdapterSet& adapters,
                                       const engine::model::SweepHooks& hooks) {
        if (++count == n) {
          hooks.progress("forward", 1);
          static_cast<void>(write(ready[1], "x", 1) < 0);
          for (;;) pause();
        }
        return checks::toy_sweep(batch, adapters, hooks);
      };
      run_toy(toy_job(run), functions);
      _exit(0);
    }
    char byte = 0;
    EXPECT_EQ(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    close(ready[1]);
  }
  ~Waiting() { end(); }
  void end() {
    if (child_ <= 0) return;
    kill(child_, SIGKILL);
    waitpid(child_, nullptr, 0);
    child_ = 0;
  }

 private:
  pid_t child_ = 0;
};

TEST(Status, RunningStalledDeadAndFinished) {
  const ScratchFolder folder;
  const fs::path run = folder / "run";
  Waiting process(run, 5);
  const RunStatus running = read_status(run);
  EXPECT_EQ(running.standing, Standing::kRunning);
  EXPECT_EQ(running.step, 4);
  EXPECT_EQ(running.steps, 7);
  ASSERT_TRUE(running.where);
  EXPECT_THAT(describe(*running.where), HasSubstr("step 5, forward, after layer 1"));
  EXPECT_EQ(running.losses.size(), 4u);
  EXPECT_EQ(running.losses.back().step, 4);
  EXPECT_EQ(running.checkpoint.filename(), "step_00003");
  EXPECT_GT(running.checkpoint_bytes, 1000u);
  EXPECT_GT(running.rss_bytes, 0u);
  EXPECT_GT(running.disk_free_bytes, 0u);
  EXPECT_TRUE(running.seconds_to_go);
  EXPECT_EQ(running.sequences, 3);
  EXPECT_EQ(running.cursor, 5) << "the third has no target and was passed over";

  std::this_thread::sleep_for(std::chrono::milliseconds(60));
  EXPECT_EQ(read_status(run, 0.05).standing, Standing::kStalled);
  EXPECT_EQ(read_status(run, 600.0).standing, Standing::kRunning);
  process.end();
  const RunStatus dead = read_status(run, 0.05);
  EXPECT_EQ(dead.standing, Standing::kDead) << "killed: the lock went with the process";
  EXPECT_EQ(dead.where->ending, engine::train::Ending::kNone);

  engine::train::Job again = toy_job(run);
  again.resume = true;
  run_toy(again);
  const RunStatus finished = read_status(run);
  EXPECT_EQ(finished.standing, Standing::kFinished);
  EXPECT_EQ(finished.step, 7);
  EXPECT_FALSE(finished.where);
  EXPECT_EQ(finished.losses.size(), 5u);
  EXPECT_DOUBLE_EQ(*finished.seconds_to_go, 0.0);
}

// Before anything was taken, or with files half gone: what is known is said.
TEST(Status, SaysWhatThereIsAndChangesNothing) {
  const ScratchFolder folder;
  EXPECT_THAT(checks::why_refused([&] { read_status(folder.path()); }), HasSubstr("is no run"));
  const fs::path run = folder / "run";
  EXPECT_THROW(run_toy(toy_job(run), dies_in(1)), Killed);
  const RunStatus young = read_status(run);
  EXPECT_EQ(young.standing, Standing::kDead);
  EXPECT_EQ(young.step, 0);
  EXPECT_FALSE(young.seconds_a_step);
  EXPECT_TRUE(young.checkpoint.empty());
  std::set<std::string> before;
  for (const auto& entry : fs::recursive_directory_iterator(run)) before.insert(entry.path());
  fs::remove(run / "lock");
  fs::remove(run / "timings.jsonl");
  fs::remove(run / "breadcrumb.json");
  EXPECT_EQ(read_status(run).standing, Standing::kDead);
  EXPECT_FALSE(fs::exists(run / "lock"));
  EXPECT_FALSE(fs::exists(run / "breadcrumb.json"));
  EXPECT_TRUE(before.contains(run / "lock"));
}

TEST(Status, TheLogsEndIsReadWhateverItIs) {
  const ScratchFolder folder;
  const fs::path run = folder / "run";
  EXPECT_THROW(run_toy(toy_job(run), dies_in(6)), Killed);
  // A line half written, and a log longer than what is read of it.
  std::string log(3 << 20, ' ');
  log += "\n" + checks::read_bytes(run / "log.jsonl");
  checks::write_bytes(run / "log.jsonl", log + R"({"run":"x","step":6,"pha)");
  EXPECT_EQ(read_status(run).step, 5);
  // Without a line of its own the step is the newest checkpoint's.
  checks::write_bytes(run / "log.jsonl", std::string(3 << 20, ' '));
  EXPECT_EQ(read_status(run).step, 3);
}

// A folder that says of itself that its run has come to its end, and says something else as well.
TEST(Status, AFinishedRunThatContradictsItselfIsNotFinished) {
  const ScratchFolder folder;
  const fs::path run = folder / "run", log = run / "log.jsonl",
                 adapter = run / "adapter.safetensors", checkpoints = run / "checkpoints";
  run_toy(toy_job(run));
  ASSERT_EQ(read_status(run).standing, Standing::kFinished);
  const std::string good_log = checks::read_bytes(log), good_adapter = checks::read_bytes(adapter);
  const auto restore = [&] {
    checks::write_bytes(log, good_log);
    checks::write_bytes(adapter, good_adapter);
    EXPECT_EQ(read_status(run).standing, Standing::kFinished);
  };
  const auto expect = [&](const fs::path& file, const std::string& why) {
    EXPECT_THAT(why_refused([&] { read_status(run); }),
                AllOf(HasSubstr(file.string()), HasSubstr(why)));
    // After a kill it is what the kill left: the run is dead, and a resume puts it right or refuses.
    checks::write_bytes(run / "breadcrumb.json", kLeftByAKill);
    EXPECT_EQ(read_status(run).standing, Standing::kDead) << why;
    fs::remove(run / "breadcrumb.json");
    restore();
  };
  fs::remove(adapter);
  expect(adapter, "is not there, and " + log.string() + " has all 7 steps");
  std::string other = good_adapter;
  other[other.find(std::string(64, 'd'))] = 'e';  // for another checkpoint, its header says
  checks::write_bytes(adapter, other);
  expect(adapter, "the last checkpoint in " + log.string() + " wrote");
  fs::copy_file(checkpoints / "step_00003/adapter.safetensors", adapter,
                fs::copy_options::overwrite_existing);
  expect(adapter, "has SHA-256");
  checks::write_bytes(log, good_log + "{\"prev\":1}\n");
  expect(log, "line 29: not a JSON object with a \"prev\"");
  const std::string line =
      good_log.substr(good_log.rfind('\n', good_log.size() - 2) + 1,
                      good_log.size() - good_log.rfind('\n', good_log.size() - 2) - 2);
  checks::write_bytes(log, good_log + fmt::format("{{\"phase\":\"start\",\"prev\":\"{}\"}}\n",
                                                  engine::base::sha256_hex(line)));
  expect(log, "stands behind the checkpoint of the run's last step, 7");
  std::string changed = good_log;
  changed.replace(changed.find("\"loss\":"), 7, "\"Loss\":");
  checks::write_bytes(log, changed);
  expect(log, "the line before has SHA-256");
  // Shorter than its checkpoint saw it: no kill leaves that, with a breadcrumb or without.
  for (const std::size_t bytes : {std::size_t{0}, good_log.find('\n') + 1}) {
    checks::write_bytes(log, good_log.substr(0, bytes));
    EXPECT_THAT(why_refused([&] { read_status(run); }),
                HasSubstr(fmt::format("log.jsonl: {} bytes, and the checkpoint was written behind "
                                      "byte {} (line 28)",
                                      bytes, good_log.size())));
  }
  restore();
  // Another run's log and adapter, which agree with one another. No checkpoint contradicts them.
  engine::train::Job job = toy_job(folder / "other");
  job.settings.seed = 12;
  run_toy(job);
  fs::rename(checkpoints, folder / "aside");
  EXPECT_EQ(read_status(run).standing, Standing::kFinished) << "checkpoints may go";
  for (const char* name : {"log.jsonl", "adapter.safetensors"}) {
    fs::copy_file(folder / "other" / name, run / name, fs::copy_options::overwrite_existing);
  }
  EXPECT_THAT(why_refused([&] { read_status(run); }),
              AllOf(HasSubstr("log.jsonl: is of run "), HasSubstr("manifest.json is of run ")));
}

// What is said to help helps, to the same bytes; and where nothing does, that is said.
TEST(Status, AFinishedRunWithoutItsAdapterIsToldWhatWritesItAgain) {
  const ScratchFolder folder;
  const fs::path run = folder / "run", adapter = run / "adapter.safetensors";
  run_toy(toy_job(run));
  const std::string good = checks::read_bytes(adapter);
  engine::train::Job again = toy_job(run);
  again.resume = true;
  for (const char* newest : {"step_00007", "step_00006"}) {
    fs::remove(adapter);
    EXPECT_THAT(why_refused([&] { read_status(run); }),
                HasSubstr("--resume goes on behind " + (run / "checkpoints" / newest).string() +
                          " and writes it again"));
    EXPECT_TRUE(run_toy(again));
    EXPECT_EQ(checks::read_bytes(adapter), good) << newest;
    EXPECT_EQ(read_status(run).standing, Standing::kFinished);
    fs::remove_all(run / "checkpoints/step_00007");
  }
  for (const auto& checkpoint : fs::directory_iterator(run / "checkpoints")) {
    fs::remove_all(checkpoint);
  }
  fs::remove(adapter);
  EXPECT_THAT(why_refused([&] { read_status(run); }),
              HasSubstr("has all 7 steps; nor is a checkpoint that it could be written from"));
  EXPECT_THAT(why_refused([&] { run_toy(again); }), HasSubstr("no checkpoint is there"));
}

// Nobody can contradict himself in the middle of a sentence: a run at work is at work.
TEST(Status, ARunAtWorkIsNotHeldAgainstItself) {
  const ScratchFolder folder;
  const fs::path run = folder / "run";
  run_toy(toy_job(run));
  fs::remove(run / "adapter.safetensors");
  checks::write_bytes(run / "log.jsonl", "");
  const engine::train::RunLock work(run);
  EXPECT_EQ(read_status(run).standing, Standing::kRunning);
}

// Saved out of turn by a stop, and made the last by an override: the log names its adapter like any other's.
TEST(Status, ARunThatIsShortenedToWhereItStoppedIsFinished) {
  const ScratchFolder folder;
  const fs::path run = folder / "run";
  int asked = 0;
  EXPECT_FALSE(run_toy(toy_job(run), checks::toy_functions(), {}, [&] { return ++asked > 4; }));
  engine::train::Job job = toy_job(run);
  job.resume = true;
  job.overrides = {{"steps", "4"}};
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(run_toy(job));
    const RunStatus status = read_status(run);
    EXPECT_EQ(status.standing, Standing::kFinished);
    EXPECT_EQ(status.steps, 4);
    EXPECT_EQ(checks::phase(checks::log_of(run), "checkpoint").size(), 2u);
  }
}

// Answers that a process id in a file, or the presence of files, would give.
TEST(Status, PlantedFaults) {
  const ScratchFolder folder;
  const fs::path run = folder / "run";
  EXPECT_THROW(run_toy(toy_job(run), dies_in(5)), Killed);
  EXPECT_EQ(read_status(run).standing, Standing::kDead)
      << "this process, whose id the manifest bears, is alive all the same";
  checks::write_bytes(run / "adapter.safetensors", "of an earlier end");
  EXPECT_EQ(read_status(run).standing, Standing::kDead) << "an adapter, but steps are missing";
  engine::train::Job again = toy_job(run);
  again.resume = true;
  run_toy(again);
  ASSERT_EQ(read_status(run).standing, Standing::kFinished);
  const engine::train::RunLock other(run);
  EXPECT_EQ(read_status(run).standing, Standing::kRunning) << "at work again";
}

}  // namespace
