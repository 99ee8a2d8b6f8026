#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "checks/train/toy.h"
#include "checks/train/toy_set.h"
#include "engine/base/sha256.h"
#include "engine/train/run_adapter.h"

namespace checks {
namespace {

namespace fs = std::filesystem;
using engine::train::adapter_file;
using engine::train::require_logged;
using engine::train::require_logged_run;
using testing::AllOf;
using testing::HasSubstr;

TEST(RunAdapter, IsAFileOrWhatAFolderHolds) {
  const ScratchFolder folder;
  const fs::path run = folder / "run";
  const auto why = [&] { return why_refused([&] { adapter_file(run); }); };
  fs::create_directory(run);
  EXPECT_THAT(why(), HasSubstr("holds no adapter.safetensors, and is no run"));
  EXPECT_THROW(run_toy(toy_job(run), dies_in(2)), Killed);
  EXPECT_THAT(why(), HasSubstr("is not finished, and has no whole checkpoint yet"));
  engine::train::Job job = toy_job(run);
  job.resume = true;
  EXPECT_THROW(run_toy(job, dies_in(5)), Killed);
  EXPECT_THAT(why(), AllOf(HasSubstr("is not finished (no adapter.safetensors)"),
                           HasSubstr("its newest checkpoint is " +
                                     (run / "checkpoints/step_00003").string())));
  EXPECT_EQ(adapter_file(run / "checkpoints/step_00003"),
            run / "checkpoints/step_00003/adapter.safetensors");
  // One that is not whole is not offered.
  write_bytes(run / "checkpoints/step_00003/state.json", "");
  EXPECT_THAT(why(), AllOf(HasSubstr("no whole checkpoint"), HasSubstr("step_00003")));
  EXPECT_EQ(adapter_file(run / "anything"), run / "anything") << "who opens it will say";
}

TEST(RunAdapter, ANameThatCannotBeLookedAtIsNamedWithTheReason) {
  const ScratchFolder folder;
  const fs::path path = folder / std::string(300, 'x');
  EXPECT_EQ(why_refused([&] { adapter_file(path); }), path.string() + ": File name too long");
  EXPECT_THAT(why_refused([&] { require_logged(path / "adapter.safetensors"); }),
              HasSubstr("File name too long"));
}

// A chain holds whatever its lines say: what is no string is not what is looked for.
TEST(RunAdapter, LinesThatNoRunWrites) {
  const ScratchFolder folder;
  const fs::path run = folder / "run", log = run / "log.jsonl";
  run_toy(toy_job(run));
  const std::string good = read_bytes(log);
  const std::size_t last = good.rfind('\n', good.size() - 2) + 1;
  const std::string head = engine::base::sha256_hex(good.substr(last, good.size() - last - 1));
  for (const char* phase : {"3", "null", "[\"checkpoint\"]", "{}"}) {
    const std::string line = fmt::format("{{\"phase\":{},\"prev\":\"{}\"}}\n", phase, head);
    write_bytes(log, good + line);
    EXPECT_EQ(why_refused([&] { require_logged_run(run); }), "") << phase;
  }
  const std::string zeros(64, '0');
  write_bytes(
      log,
      fmt::format("{{\"phase\":\"checkpoint\",\"adapter_sha256\":7,\"prev\":\"{}\"}}\n", zeros));
  EXPECT_THAT(why_refused([&] { require_logged_run(run); }),
              HasSubstr("1 lines, and no checkpoint among them"));
}

// The run id stands for settings and digests, and is in every line of the log.
TEST(RunAdapter, AnEditedManifestIsOfAnotherRun) {
  const ScratchFolder folder;
  const fs::path run = folder / "run", manifest = run / "manifest.json";
  for (const char* name : {"", "my-run"}) {
    engine::train::Job job = toy_job(run);
    job.name = name;
    job.identity.preregistration_sha256 = std::string(64, 'f');
    run_toy(job);
    const std::string good = read_bytes(manifest);
    const auto read = [&] { return engine::train::read_manifest(run); };
    EXPECT_EQ(read()->identity.preregistration_sha256, std::string(64, 'f'));
    const std::pair<std::string, std::string> edits[] = {
        {std::string(64, 'f'), std::string(64, 'a')},
        {std::string(64, 'f'), ""},
        {std::string(64, 'c'), std::string(64, 'a')},
        {std::string(64, 'd'), std::string(64, 'a')},
        {"\"held_out_sha256\": \"\"", "\"held_out_sha256\": \"a\""},
        {"\"seed\": \"11\"", "\"seed\": \"12\""},
        {"\"run\": \"" + read()->run_id, "\"run\": \"" + std::string(16, '0')}};
    for (const auto& [from, to] : edits) {
      std::string changed = good;
      ASSERT_NE(changed.find(from), std::string::npos) << from;
      write_bytes(manifest, changed.replace(changed.find(from), from.size(), to));
      EXPECT_THAT(why_refused([&] { read(); }),
                  AllOf(HasSubstr(manifest.string() + ": says it is of run "),
                        HasSubstr("one of them was changed")))
          << to;
    }
    fs::remove_all(run);
  }
}

// Planted: a run that says of itself that it is finished, against its newest checkpoint and its last evaluation.
TEST(RunAdapter, PlantedFaultsOfAFinishedRun) {
  const ScratchFolder folder;
  const fs::path run = folder / "run", log = run / "log.jsonl";
  write_set(folder / "held", {toy_sequences()[0]}, 9);
  engine::train::Job job = toy_job(run);
  job.settings.eval_every = 2;
  job.held_out = open_toy_set(folder / "held");
  job.identity.preregistration_sha256 = std::string(64, 'f');
  run_toy(job);
  const auto manifest = *engine::train::read_manifest(run);
  const auto why = [&](const std::function<void(engine::train::SnapshotState&)>& change) {
    auto newest = engine::train::glance_at_newest(run);
    change(newest->state);
    return why_refused([&] { engine::train::require_finished(run, manifest, 7, newest); });
  };
  EXPECT_EQ(why([](auto&) {}), "");
  EXPECT_EQ(why([](auto& state) { state.identity.preregistration_sha256 = "b"; }),
            fmt::format("{}: preregistration_sha256 is \"b\", {} has \"{}\"",
                        (run / "checkpoints/step_00007/state.json").string(),
                        (run / "manifest.json").string(), std::string(64, 'f')));
  EXPECT_THAT(why([](auto& state) { state.identity.data_sha256 = "b"; }), HasSubstr("data_sha256"));
  EXPECT_THAT(why([](auto& state) { state.run_id = "b"; }), HasSubstr("run is \"b\""));
  EXPECT_THAT(why([](auto& state) { state.log.head = "b"; }), HasSubstr("the checkpoint wants"));
  // Behind the last checkpoint, whose state does not hold it.
  const std::string good = read_bytes(log);
  write_bytes(log, good.substr(0, good.rfind('\n', good.size() - 2) + 1));
  EXPECT_THAT(why([](auto&) {}),
              HasSubstr("its last evaluation is behind step 6, and the run has 7"));
}

// Planted: each way in which a log and an adapter may disagree, of a run and of a checkpoint.
TEST(RunAdapter, PlantedFaults) {
  const ScratchFolder folder;
  const fs::path run = folder / "run", log = run / "log.jsonl", adapter = "adapter.safetensors",
                 checkpoint = run / "checkpoints/step_00006";
  run_toy(toy_job(run));
  const std::string good = read_bytes(log);
  const auto why = [&](const fs::path& file) { return why_refused([&] { require_logged(file); }); };
  const auto expect = [&](const char* of_run, const char* of_checkpoint) {
    EXPECT_THAT(why(run / adapter), HasSubstr(of_run));
    EXPECT_THAT(why(checkpoint / adapter), HasSubstr(of_checkpoint));
  };
  EXPECT_EQ(why(run / adapter), "");
  EXPECT_EQ(why(checkpoint / adapter), "");
  EXPECT_EQ(require_logged_run(run).end.bytes, good.size());
  std::string changed = good;
  changed.replace(changed.find("\"loss\":"), 7, "\"Loss\":");
  write_bytes(log, changed);
  expect("log.jsonl line", "log.jsonl line");
  write_bytes(log, "");
  expect("log.jsonl: is empty", "log.jsonl: 0 bytes");
  write_bytes(log, good.substr(0, good.find('\n') + 1));
  expect("1 lines, and no checkpoint among them", "checkpoint was written behind");
  fs::remove(log);
  expect("log.jsonl: cannot be opened", "log.jsonl: cannot be opened");
  write_bytes(log, good);
  // Another adapter than the one that was written.
  for (const fs::path& where : {run, checkpoint}) {
    std::string bytes = read_bytes(where / adapter);
    bytes.back() ^= 1;
    write_bytes(where / adapter, bytes);
  }
  expect("the last checkpoint in", "state.json says");
  // By itself an adapter has no log to be compared with; nor has a file of another name.
  fs::create_directory(folder / "alone");
  for (const fs::path& copy : {folder / "alone" / adapter, run / "mine.safetensors"}) {
    fs::copy_file(run / adapter, copy);
    EXPECT_EQ(why(copy), "") << copy;
  }
}

}  // namespace
}  // namespace checks
