#include <gmock/gmock.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "checks/train/toy.h"
#include "engine/base/error.h"
#include "engine/base/parallel.h"
#include "engine/train/breadcrumb.h"
#include "engine/train/trainer.h"

namespace {

namespace fs = std::filesystem;
using checks::reproducible;
using checks::run_toy;
using checks::ScratchFolder;
using checks::toy_job;
using engine::train::Breadcrumb;
using engine::train::Job;
using engine::train::SweepFunctions;
using engine::train::Whereabouts;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

// The toy model, on whose n-th sweep `end` is called behind the forward half.
SweepFunctions ends_in(int n, const std::function<void()>& end) {
  SweepFunctions functions = checks::toy_functions();
  const auto count = std::make_shared<int>(0);
  functions.forward_backward = [=](const engine::model::Batch& batch,
                                   engine::model::AdapterSet& adapters,
                                   const engine::model::SweepHooks& hooks) {
    if (++*count == n) {
      hooks.progress("forward", 1);
      end();
    }
    return checks::toy_sweep(batch, adapters, hooks);
  };
  return functions;
}

std::vector<std::string> notices_of_resume(const fs::path& run) {
  std::vector<std::string> notices;
  engine::train::Observer observer;
  observer.noticed = [&](const std::string& notice) { notices.push_back(notice); };
  Job again = toy_job(run);
  again.resume = true;
  run_toy(again, checks::toy_functions(), observer);
  return notices;
}

// C8 (JustVugg/colibri#305): as the kernel's out-of-memory killer does it.
TEST(Breadcrumb, C8_NextStartSaysWhereTheLastOneWasKilledAndGoesOn) {
  const ScratchFolder folder;
  const fs::path straight = folder.path() / "straight", run = folder.path() / "killed";
  run_toy(toy_job(straight));
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    engine::base::set_threads(1);  // OpenMP's threads do not survive a fork
    run_toy(toy_job(run), ends_in(5, [] { ::raise(SIGKILL); }));
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_THAT(notices_of_resume(run),
              ElementsAre(AllOf(HasSubstr("was killed in step 5, forward, after layer 1"),
                                HasSubstr("B resident (at most "))));
  EXPECT_EQ(reproducible(run), reproducible(straight)) << "a breadcrumb is no part of a run";
  EXPECT_FALSE(fs::exists(run / "breadcrumb.json")) << "a run that ended has nothing to tell";
  EXPECT_TRUE(notices_of_resume(run).empty());
}

TEST(Breadcrumb, AnErrorIsNotAKill) {
  const ScratchFolder folder;
  const fs::path run = folder.path() / "run";
  const auto fail = [] { throw engine::base::Error("the disk is gone"); };
  EXPECT_THAT(checks::why_refused([&] { run_toy(toy_job(run), ends_in(4, fail)); }),
              HasSubstr("step 4, forward, after layer 1: the disk is gone"));
  EXPECT_THAT(notices_of_resume(run), ElementsAre(HasSubstr("stopped with an error in step 4")));
}

// Neither is one that stops a run before its first step: here a disk that is full.
TEST(Breadcrumb, AnErrorWhileTheRunIsOpenedIsNotAKill) {
  const ScratchFolder folder;
  const fs::path run = folder.path() / "run";
  const auto fail = [] { throw engine::base::Error("the disk is gone"); };
  checks::why_refused([&] { run_toy(toy_job(run), ends_in(4, fail)); });
  Job again = toy_job(run);
  again.resume = true;
  again.start.program.assign(std::size_t{1} << 20, 'x');
  {
    const checks::FileSizeLimit full(1 << 16);
    EXPECT_THAT(checks::why_refused([&] { run_toy(again); }), HasSubstr("manifest.json"));
  }
  EXPECT_THAT(notices_of_resume(run),
              ElementsAre(HasSubstr("stopped with an error in the time before its first step")));
}

TEST(Breadcrumb, TheLastOneCounts) {
  const ScratchFolder folder;
  {
    Breadcrumb crumb(folder.path());
    EXPECT_FALSE(crumb.left_behind());
    crumb.drop(123456789, "checkpoint");
    crumb.drop(7, "forward", 12);
    crumb.drop(7, "update");
  }
  const Breadcrumb next(folder.path());
  ASSERT_TRUE(next.left_behind());
  EXPECT_EQ(next.left_behind()->step, 7);
  EXPECT_EQ(next.left_behind()->phase, "update");
  EXPECT_EQ(next.left_behind()->layer, -1);
  EXPECT_GT(next.left_behind()->rss_bytes, 0u);
  EXPECT_GE(next.left_behind()->peak_rss_bytes, next.left_behind()->rss_bytes);
  EXPECT_EQ(next.left_behind()->ending, engine::train::Ending::kNone);
  EXPECT_EQ(fs::file_size(folder / "breadcrumb.json"), 256u);
}

TEST(Breadcrumb, SaysPlaceAndMemory) {
  const Whereabouts first{7, "forward", 0, 43'100'000, 45'000'000};
  EXPECT_EQ(engine::train::describe(first),
            "step 7, forward, after layer 0, with 43.1 MB resident (at most 45.0 MB)");
  EXPECT_EQ(engine::train::place({7, "backward", 12}), "step 7, backward, after layer 12");
  EXPECT_EQ(engine::train::place({7, "update", -1}), "step 7, update");
  EXPECT_EQ(engine::train::place({0, "start", -1}), "the time before its first step");
  EXPECT_EQ(engine::train::place({0, "evaluation", 3}),
            "the time before its first step, evaluation, after layer 3");
}

// Whatever stands there instead: nothing is said, and nothing is lost.
TEST(Breadcrumb, PlantedFaults) {
  const ScratchFolder folder;
  Breadcrumb(folder.path()).drop(3, "backward", 2);
  const std::string good = checks::read_bytes(folder / "breadcrumb.json");
  ASSERT_TRUE(Breadcrumb(folder.path()).left_behind());
  for (const std::string& bad :
       {std::string(), std::string("\0\0\0", 3), std::string("[]"), std::string("{\"step\":1}"),
        good.substr(0, 30), std::string(300, ' '), "x" + good}) {
    checks::write_bytes(folder / "breadcrumb.json", bad);
    EXPECT_FALSE(Breadcrumb(folder.path()).left_behind()) << bad;
  }
}

}  // namespace
