#include <gmock/gmock.h>

#include <string>

#include "checks/train/toy.h"
#include "engine/train/restart.h"

namespace {

namespace fs = std::filesystem;
using checks::dies_in;
using checks::Killed;
using checks::run_toy;
using checks::ScratchFolder;
using checks::toy_job;
using checks::why_refused;
using engine::train::count_restart;
using engine::train::Job;
using engine::train::plan_restart;
using engine::train::read_status;
using engine::train::Restart;
using engine::train::RestartLimits;
using engine::train::RunStatus;
using testing::AllOf;
using testing::HasSubstr;

constexpr std::uint64_t kMemory = 1 << 30;

Job job_of(const fs::path& run, bool resume) {
  Job job = toy_job(run);
  job.resume = resume;
  job.start.arguments = {"train", "--out", "run"};
  if (resume) job.start.arguments.insert(job.start.arguments.begin() + 1, "--resume");
  job.start.working_folder = run.parent_path();
  job.start.ram_bytes = 1000;
  return job;
}

TEST(Restart, ADeadRunIsStartedAsItWasAFewTimesBehindOneCheckpoint) {
  const ScratchFolder folder;
  const fs::path run = folder / "run";
  const auto attempt = [&](const RestartLimits& limits) {
    const RunStatus status = read_status(run);
    const Restart restart = plan_restart(run, status, limits, kMemory);
    count_restart(run, status, restart);
    return restart;
  };
  EXPECT_THROW(run_toy(job_of(run, false), dies_in(2)), Killed);
  for (int restarts = 0; restarts < 3; ++restarts) {
    const Restart restart = attempt({});
    EXPECT_EQ(restart.restarts, restarts) << "behind nothing yet";
    EXPECT_EQ(restart.folder, folder.path());
    EXPECT_EQ(std::ranges::count(restart.arguments, "--resume"), 1);
    EXPECT_THROW(run_toy(job_of(run, true), dies_in(3)), Killed);
  }
  EXPECT_THAT(why_refused([&] { attempt({}); }),
              HasSubstr("started again 3 times behind step 0 without a newer checkpoint, 3 are "
                        "allowed"));
  EXPECT_EQ(attempt({4, {}, {}}).restarts, 3);
  // A checkpoint is progress: it is counted anew.
  EXPECT_THROW(run_toy(job_of(run, true), dies_in(5)), Killed);
  EXPECT_EQ(attempt({1, {}, {}}).restarts, 0);
  EXPECT_THROW(run_toy(job_of(run, true), dies_in(1)), Killed);
  EXPECT_THAT(why_refused([&] { attempt({1, {}, {}}); }), HasSubstr("behind step 3"));
  fs::remove(run / "restarts.json");
  EXPECT_EQ(attempt({1, {}, {}}).restarts, 0) << "as the message says";
}

// The manifest knows nothing of a start that is refused before its first step: by it there is no attempt.
TEST(Restart, AnAttemptThatLeavesNoStartIsCounted) {
  const ScratchFolder folder;
  const fs::path run = folder / "run";
  EXPECT_THROW(run_toy(job_of(run, false), dies_in(5)), Killed);
  const std::string manifest = checks::read_bytes(run / "manifest.json");
  Job refused = job_of(run, true);
  refused.identity.config_sha256[0] = 'e';
  int attempts = 0;
  const auto attempt = [&] {
    const RunStatus status = read_status(run);
    count_restart(run, status, plan_restart(run, status, {}, kMemory));
    ++attempts;
    run_toy(refused);
  };
  for (int i = 0; i < 3; ++i) EXPECT_THAT(why_refused(attempt), HasSubstr("config.json"));
  EXPECT_THAT(why_refused(attempt), HasSubstr("started again 3 times behind step 3"));
  EXPECT_EQ(attempts, 3);
  EXPECT_EQ(checks::read_bytes(run / "manifest.json"), manifest);
}

// A count is of the run that stands in the folder, and goes with it.
TEST(Restart, ANewRunInTheFolderIsCountedAnew) {
  const ScratchFolder folder;
  const fs::path run = folder / "run";
  EXPECT_THROW(run_toy(job_of(run, false), dies_in(1)), Killed);
  RunStatus status = read_status(run);
  count_restart(run, status, {{}, {}, 2});
  EXPECT_THAT(why_refused([&] { plan_restart(run, status, {}, kMemory); }), HasSubstr("3 times"));
  EXPECT_THROW(run_toy(job_of(run, false), dies_in(1)), Killed);
  EXPECT_EQ(plan_restart(run, read_status(run), {}, kMemory).restarts, 0);
}

// What is started again is the folder that was named, and not the one that its manifest names.
TEST(Restart, AMovedRunIsStartedWhereItIs) {
  const ScratchFolder folder;
  EXPECT_THROW(run_toy(job_of(folder / "run", false), dies_in(5)), Killed);
  const fs::path moved = folder / "moved";
  fs::rename(folder / "run", moved);
  const Restart restart = plan_restart(moved, read_status(moved), {}, kMemory);
  EXPECT_EQ(restart.arguments,
            (std::vector<std::string>{"train", "--out", moved.string(), "--resume"}));
}

TEST(Restart, DiskAndMemoryMustBeFree) {
  const ScratchFolder folder;
  const fs::path run = folder / "run";
  EXPECT_THROW(run_toy(job_of(run, false), dies_in(5)), Killed);
  auto status = read_status(run);
  const auto why = [&](const RestartLimits& limits, std::uint64_t memory) {
    return why_refused([&] { plan_restart(run, status, limits, memory); });
  };
  EXPECT_EQ(why({}, 1000), "");
  EXPECT_THAT(why({}, 999), HasSubstr("of memory free"));
  EXPECT_EQ(why({3, {}, 500}, 999), "");
  status.disk_free_bytes = 2 * status.checkpoint_bytes;
  EXPECT_EQ(why({}, 1000), "");
  --status.disk_free_bytes;
  EXPECT_THAT(why({}, 1000), HasSubstr("of its disk free"));
  EXPECT_EQ(why({3, 0, {}}, 1000), "");
}

TEST(Restart, PlantedFaults) {
  const ScratchFolder folder;
  const fs::path run = folder / "run";
  Job job = toy_job(run);  // bears no arguments
  EXPECT_THROW(run_toy(job, dies_in(2)), Killed);
  EXPECT_THAT(why_refused([&] { plan_restart(run, read_status(run), {}, kMemory); }),
              HasSubstr("does not say how it was started"));
  // A count that cannot be read is none of zero.
  const fs::path counted = folder / "counted";
  EXPECT_THROW(run_toy(job_of(counted, false), dies_in(2)), Killed);
  for (const auto& [text, why] :
       {std::pair("", "is empty"), std::pair("{", "not valid JSON"),
        std::pair(R"({"behind_step": 0})", "restarts"),
        std::pair(R"({"behind_step": 0, "restarts": "none"})", "must be number")}) {
    checks::write_bytes(counted / "restarts.json", text);
    EXPECT_THAT(why_refused([&] { plan_restart(counted, read_status(counted), {}, kMemory); }),
                AllOf(HasSubstr("restarts.json"), HasSubstr(why)));
  }
  // Nor is one that cannot be written: there is no attempt.
  fs::remove(counted / "restarts.json");
  fs::create_directories(counted / "restarts.json" / "in the way");
  EXPECT_THAT(why_refused([&] { count_restart(counted, read_status(counted), {}); }),
              HasSubstr("restarts.json"));
}

}  // namespace
