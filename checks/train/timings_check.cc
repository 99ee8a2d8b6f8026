// Timings beside their log: what they hold of it that nothing else does, and what may be lost of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "checks/train/toy.h"
#include "checks/train/toy_set.h"
#include "engine/train/timings.h"

namespace checks {
namespace {

namespace fs = std::filesystem;
using engine::train::Timings;
using testing::HasSubstr;

// The clock at the first line of a log that its timings hold.
std::optional<std::int64_t> held(const fs::path& run) {
  Timings timings(run);
  engine::train::check_log(run / "log.jsonl", nullptr,
                           [&](std::string_view, const auto& behind) { timings.pass(behind); });
  timings.require_all_passed();
  return timings.began_unix_ns();
}

std::int64_t first_start(const fs::path& run) {
  return nlohmann::json::parse(read_bytes(run / "manifest.json"))
      .at("starts")
      .at(0)
      .at("start_unix_ns");
}

// Seven steps, the last line of the log being that of an evaluation, behind every checkpoint.
engine::train::Job evaluated_job(const ScratchFolder& folder, const fs::path& run) {
  if (!fs::exists(folder / "held")) {
    write_set(folder / "held", {toy_sequences()[0]}, 9);
  }
  engine::train::Job job = toy_job(run);
  job.settings.eval_every = 2;
  job.held_out = open_toy_set(folder / "held");
  return job;
}

std::size_t last_line(const std::string& lines) { return lines.rfind('\n', lines.size() - 2) + 1; }

TEST(Timings, HoldTheLogOfEveryRunHoweverItCameAbout) {
  const ScratchFolder folder;
  for (int n = 1; n <= 7; ++n) {
    const fs::path run = folder / fmt::format("killed{}", n);
    EXPECT_THROW(run_toy(evaluated_job(folder, run), dies_in(n)), Killed);
    engine::train::Job again = evaluated_job(folder, run);
    again.resume = true;
    int asked = 0;
    run_toy(again, toy_functions(), {}, [&] { return ++asked == 3; });
    run_toy(again);
    ASSERT_TRUE(held(run)) << n;
    EXPECT_LE(first_start(run), *held(run)) << n;
  }
}

TEST(Timings, MayBeLost) {
  const ScratchFolder folder;
  const fs::path run = folder / "run", timings = run / "timings.jsonl";
  EXPECT_THROW(run_toy(evaluated_job(folder, run), dies_in(5)), Killed);
  fs::remove(timings);
  EXPECT_FALSE(held(run));
  engine::train::Job again = evaluated_job(folder, run);
  again.resume = true;
  run_toy(again);
  EXPECT_FALSE(held(run)) << "begun anew behind the first line";
  const std::string whole = read_bytes(timings);
  write_bytes(timings, whole.substr(0, whole.size() - 30));
  EXPECT_EQ(why_refused([&] { held(run); }), "") << "a line that was cut short";
  write_bytes(timings, whole.substr(0, last_line(whole)));
  EXPECT_EQ(why_refused([&] { held(run); }), "") << "the last line lost";
}

// Planted: what leaves the chain whole up to the last checkpoint and beyond.
TEST(Timings, PlantedFaults) {
  const ScratchFolder folder;
  const fs::path run = folder / "run", log = run / "log.jsonl", timings = run / "timings.jsonl";
  run_toy(evaluated_job(folder, run));
  const std::string good_log = read_bytes(log), good = read_bytes(timings);
  ASSERT_TRUE(held(run));
  const auto why = [&] { return why_refused([&] { held(run); }); };
  std::string changed = good_log;
  const std::size_t loss = changed.find("\"loss\":", last_line(changed)) + 7;
  ASSERT_NE(changed[loss], '9');
  changed[loss] = '9';
  const std::string last = fmt::format("timings.jsonl line {}: stands beside a line of SHA-256",
                                       std::ranges::count(good, '\n'));
  for (const std::string& other : {changed, good_log.substr(0, last_line(good_log))}) {
    write_bytes(log, other);
    EXPECT_THAT(why(), HasSubstr(last));
  }
  write_bytes(log, good_log);
  // What is no line of timings is none, unless the write of the last was cut short.
  const std::string rest = good.substr(good.find('\n') + 1);
  for (const char* junk : {"x", "", "{}", "[]", "{\"line\":7}"}) {
    write_bytes(timings, std::string(junk) + "\n" + rest);
    EXPECT_THAT(why(), HasSubstr("timings.jsonl line 1: is no JSON object")) << junk;
  }
  write_bytes(timings, good + "x\n");
  EXPECT_THAT(why(), HasSubstr("is no JSON object"));
  const std::size_t second = good.find('\n') + 1, third = good.find('\n', second) + 1;
  write_bytes(timings,
              good.substr(second, third - second) + good.substr(0, second) + good.substr(third));
  EXPECT_THAT(why(), HasSubstr("timings.jsonl line 2: stands beside"));
}

}  // namespace
}  // namespace checks
