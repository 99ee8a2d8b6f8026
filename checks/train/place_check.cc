#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <string>

#include "checks/train/toy.h"
#include "engine/train/breadcrumb.h"
#include "engine/train/run_lock.h"
#include "engine/train/status.h"
#include "engine/train/traces.h"

namespace {

namespace fs = std::filesystem;
using checks::dies_in;
using checks::Killed;
using checks::read_bytes;
using checks::reproducible;
using checks::run_toy;
using checks::ScratchFolder;
using checks::toy_functions;
using checks::toy_job;
using checks::why_refused;
using checks::write_bytes;
using engine::train::Breadcrumb;
using engine::train::Job;
using engine::train::read_traces;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

Job again(const fs::path& run) {
  Job job = toy_job(run);
  job.resume = true;
  return job;
}

// The toy, whose first sweep ends with an error.
engine::train::SweepFunctions fails_at_once() {
  engine::train::SweepFunctions functions = toy_functions();
  functions.forward_backward = [](const auto&, auto&, const auto&) -> engine::model::SweepResult {
    throw engine::base::Error("the shard is bad");
  };
  return functions;
}

TEST(Place, WithoutARunThereIsNothingToResume) {
  const ScratchFolder folder;
  for (const char* name : {"nowhere", "empty"}) {
    const fs::path run = folder / name;
    if (name == std::string("empty")) fs::create_directory(run);
    EXPECT_THAT(why_refused([&] { run_toy(again(run)); }),
                HasSubstr((folder / name).string() +
                          ": no run to resume here; leave --resume away to begin one"));
  }
  EXPECT_FALSE(fs::exists(folder / "nowhere"));
  run_toy(toy_job(folder / "empty"));
}

TEST(Place, WhatIsNoFolderIsRefusedBeforeWork) {
  const ScratchFolder folder;
  write_bytes(folder / "file", "mine");
  fs::create_symlink(folder / "gone", folder / "link");
  for (const char* name : {"file", "file/below", "link"}) {
    for (const bool resume : {false, true}) {
      EXPECT_THAT(why_refused([&] { engine::train::require_place(folder / name, resume); }),
                  AllOf(HasSubstr("is no folder"), HasSubstr(std::string(name).substr(0, 4))))
          << name << resume;
    }
  }
  EXPECT_EQ(read_bytes(folder / "file"), "mine");
}

// A run appears by a rename, which a link would meet itself: said before work, not behind it.
TEST(Place, ALinkToAnEmptyFolderIsNamedAndALinkToARunIsTheRun) {
  const ScratchFolder folder;
  fs::create_directory(folder / "empty");
  fs::create_directory_symlink(folder / "empty", folder / "link");
  for (const char* name : {"link", "link/"}) {
    EXPECT_EQ(why_refused([&] { engine::train::require_place(folder / name, false); }),
              fmt::format("{}: is a link to {}, and nothing is written over: name the place itself",
                          (folder / name).string(), (folder / "empty").string()));
  }
  run_toy(toy_job(folder / "empty"));
  EXPECT_NO_THROW(engine::train::require_place(folder / "link", true));
}

// What the system does not tell has its reason, in its words and not in a library's.
TEST(Place, WhatCannotBeLookedAtIsNamedWithTheReason) {
  const ScratchFolder folder;
  fs::create_symlink(folder / "loop", folder / "loop");
  const std::string letters(300, 'x');
  for (const bool resume : {false, true}) {
    const auto why = [&](const std::string& name) {
      return why_refused([&] { engine::train::require_place(folder / name, resume); });
    };
    EXPECT_EQ(why(letters), (folder / letters).string() + ": File name too long");
    EXPECT_EQ(why("loop"), (folder / "loop").string() + ": Too many levels of symbolic links");
    EXPECT_THAT(why("loop/below"), HasSubstr("loop/below: Too many levels of symbolic links"));
  }
}

TEST(Place, AFolderThatMayNotBeReadIsNamedWithTheReason) {
  if (::geteuid() == 0) GTEST_SKIP() << "root may read every folder";
  const ScratchFolder folder;
  fs::create_directory(folder / "closed");
  fs::permissions(folder / "closed", fs::perms::none);
  for (const char* name : {"closed", "closed/run"}) {
    EXPECT_EQ(why_refused([&] { engine::train::require_place(folder / name, false); }),
              (folder / name).string() + ": Permission denied");
  }
  fs::permissions(folder / "closed", fs::perms::owner_all);
}

// A name is not blocked by a start that never took a step, whatever the next one's settings are.
TEST(Place, ARunThatTookNoStepMakesRoom) {
  const ScratchFolder folder;
  run_toy(toy_job(folder / "straight"));
  for (const bool killed : {false, true}) {
    const fs::path run = folder / (killed ? "killed" : "failed");
    Job other = toy_job(run);
    other.settings.seed = 5;
    if (killed) {
      EXPECT_THROW(run_toy(other, dies_in(1)), Killed);
    } else {
      EXPECT_THAT(why_refused([&] { run_toy(other, fails_at_once()); }), HasSubstr("shard is bad"));
    }
    const std::string log = read_bytes(run / "log.jsonl");
    std::vector<std::string> notices;
    engine::train::Observer observer;
    observer.noticed = [&](const std::string& notice) { notices.push_back(notice); };
    run_toy(toy_job(run), toy_functions(), observer);
    EXPECT_EQ(reproducible(run), reproducible(folder / "straight"));
    EXPECT_EQ(read_bytes(run / "log.abandoned.jsonl"), log) << "nothing is lost";
    EXPECT_THAT(notices, testing::Contains(HasSubstr(killed ? "was killed" : "stopped with an")));
    const auto manifest = nlohmann::json::parse(read_bytes(run / "manifest.json"));
    EXPECT_EQ(manifest.at("starts").size(), 1u);
    EXPECT_EQ(manifest.at("settings").at("seed"), "11");
    run_toy(again(run));
  }
}

TEST(Place, ARunThatIsAtWorkOrHasStepsDoesNot) {
  const ScratchFolder folder;
  const fs::path run = folder / "run";
  why_refused([&] { run_toy(toy_job(run), fails_at_once()); });
  {
    const engine::train::RunLock held(run);
    EXPECT_THAT(why_refused([&] { run_toy(toy_job(run)); }), HasSubstr("another process works"));
  }
  // Steps that no checkpoint holds yet are still steps.
  EXPECT_THROW(run_toy(toy_job(run), dies_in(2)), Killed);
  EXPECT_THAT(why_refused([&] { run_toy(toy_job(run)); }),
              HasSubstr("is there already, a run with 1 steps in its log; --resume"));
  // And without a log, a checkpoint.
  EXPECT_THROW(run_toy(again(run), dies_in(4)), Killed);
  fs::remove(run / "log.jsonl");
  EXPECT_THAT(why_refused([&] { run_toy(toy_job(run)); }), HasSubstr("is there already"));
}

// A folder whose checkpoints are gone is not begun again without a word.
TEST(Place, EmptiedCheckpointsAreRefused) {
  const ScratchFolder folder;
  const auto emptied = [&](const fs::path& run) {
    fs::remove_all(run / "checkpoints");
    fs::create_directory(run / "checkpoints");
    const std::string log = read_bytes(run / "log.jsonl");
    const std::string why = why_refused([&] { run_toy(again(run)); });
    EXPECT_EQ(read_bytes(run / "log.jsonl"), log) << "nothing is cut";
    return why;
  };
  const fs::path died = folder / "died", stopped = folder / "stopped", done = folder / "done",
                 resumed = folder / "resumed";
  EXPECT_THROW(run_toy(toy_job(died), dies_in(6)), Killed);
  EXPECT_THAT(emptied(died), AllOf(HasSubstr("checkpoints: no checkpoint is there"),
                                   HasSubstr("one was written behind step 3"),
                                   HasSubstr("log's last step is 5"), HasSubstr("Put the")));
  // Behind its checkpoint's line nothing stands, but the breadcrumb is in the next step.
  const fs::path next = folder / "next";
  EXPECT_THROW(run_toy(toy_job(next), dies_in(4)), Killed);
  EXPECT_THAT(emptied(next), HasSubstr("one was written behind step 3"));
  // Out of turn a checkpoint has no line.
  int asked = 0;
  EXPECT_FALSE(run_toy(toy_job(stopped), toy_functions(), {}, [&] { return asked++ == 2; }));
  EXPECT_THAT(emptied(stopped), HasSubstr("asked to stop in step 2"));
  asked = 0;
  EXPECT_FALSE(run_toy(toy_job(resumed), toy_functions(), {}, [&] { return asked++ == 2; }));
  EXPECT_THROW(run_toy(again(resumed), dies_in(1)), Killed);
  EXPECT_THAT(emptied(resumed), HasSubstr("a start went on behind step 2"));
  run_toy(toy_job(done));
  EXPECT_THAT(emptied(done), HasSubstr("adapter.safetensors, which a finished run leaves"));
  EXPECT_THAT(why_refused([&] { run_toy(toy_job(done)); }), HasSubstr("is there already"));
}

// Killed between a checkpoint's line and its name, a run had none yet: that is no contradiction.
TEST(Place, ALineOfACheckpointAloneProvesNothing) {
  const ScratchFolder folder;
  run_toy(toy_job(folder / "straight"));
  const fs::path run = folder / "run";
  EXPECT_THROW(run_toy(toy_job(run), dies_in(4)), Killed);
  EXPECT_NE(read_traces(run).saved, "");
  fs::remove_all(run / "checkpoints");
  Breadcrumb(run).drop(3, "checkpoint");
  EXPECT_EQ(read_traces(run).saved, "");
  // Half a line, as a kill leaves it, is no line.
  write_bytes(run / "log.jsonl", read_bytes(run / "log.jsonl") + "{\"run\":\"x\",\"step\":4,\"ph");
  EXPECT_EQ(read_traces(run).saved, "");
  EXPECT_EQ(read_traces(run).step, 3);
  run_toy(again(run));
  EXPECT_EQ(reproducible(run), reproducible(folder / "straight"));
}

// What is no JSON is said in plain words.
TEST(Place, FilesThatAreNoJsonAreNamedWithTheByte) {
  const ScratchFolder folder;
  const fs::path run = folder / "run";
  EXPECT_THROW(run_toy(toy_job(run), dies_in(5)), Killed);
  const fs::path state = run / "checkpoints/step_00003/state.json";
  const auto why = [&](const fs::path& file, const std::string& text) {
    const std::string good = read_bytes(file);
    write_bytes(file, text);
    const std::string said = why_refused([&] { run_toy(again(run)); });
    write_bytes(file, good);
    EXPECT_THAT(said, AllOf(HasSubstr(file.filename().string()), Not(HasSubstr("json.exception")),
                            Not(HasSubstr("line 1, column"))));
    return said;
  };
  for (const fs::path& file : {run / "manifest.json", state}) {
    EXPECT_THAT(why(file, ""), HasSubstr(": is empty"));
    EXPECT_THAT(why(file, " \n"), HasSubstr("not valid JSON: it is empty (2 bytes)"));
    EXPECT_THAT(why(file, "{\"run\":"), HasSubstr("it ends at byte 7, before its value does"));
    EXPECT_THAT(why(file, "{\"run\": x"), HasSubstr("at byte 8: not valid JSON: invalid literal"));
    EXPECT_THAT(why(file, "{}"), HasSubstr("not found"));
  }
  EXPECT_THAT(why_refused([&] {
                write_bytes(run / "manifest.json", "");
                engine::train::read_status(run);
              }),
              HasSubstr("manifest.json: is empty"));
}

}  // namespace
