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
using engine::train::Job;
using engine::train::plan_restart;
using engine::train::read_status;
using engine::train::Restart;
using engine::train::RestartLimits;
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
  const auto plan = [&](const RestartLimits& limits) {
    return plan_restart(run, read_status(run), limits, kMemory);
  };
  EXPECT_THROW(run_toy(job_of(run, false), dies_in(2)), Killed);
  for (int restarts = 0; restarts < 3; ++restarts) {
    const Restart restart = plan({});
    EXPECT_EQ(restart.restarts, restarts) << "behind nothing yet";
    EXPECT_EQ(restart.folder, folder.path());
    EXPECT_EQ(std::ranges::count(restart.arguments, "--resume"), 1);
    EXPECT_THROW(run_toy(job_of(run, true), dies_in(3)), Killed);
  }
  EXPECT_THAT(why_refused([&] { plan({}); }),
              HasSubstr("started 4 times behind step 0 and dead each time before the next "
                        "checkpoint, 3 are allowed"));
  EXPECT_EQ(plan({4, {}, {}}).restarts, 3);
  // A checkpoint is progress: it is counted anew.
  EXPECT_THROW(run_toy(job_of(run, true), dies_in(5)), Killed);
  EXPECT_EQ(plan({1, {}, {}}).restarts, 0);
  EXPECT_THROW(run_toy(job_of(run, true), dies_in(1)), Killed);
  EXPECT_THAT(why_refused([&] { plan({1, {}, {}}); }), HasSubstr("behind step 3"));
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
}

}  // namespace
