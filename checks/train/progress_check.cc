#include <gmock/gmock.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "checks/train/toy.h"
#include "engine/cli/progress.h"
#include "engine/train/cadence.h"

namespace {

namespace fs = std::filesystem;
using checks::log_of;
using checks::phase;
using checks::run_toy;
using checks::ScratchFolder;
using checks::toy_job;
using engine::cli::format_seconds;
using engine::cli::ProgressLine;
using engine::model::AdapterSet;
using engine::model::Batch;
using engine::model::SweepHooks;
using engine::train::Cadence;
using engine::train::Job;
using engine::train::Settings;
using engine::train::StepReport;
using engine::train::Timing;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// A machine with a clock of its own: a step takes three seconds and reads 2 MB for each token, a
// checkpoint takes five.
struct Machine {
  fs::path run;
  std::int64_t now_ns = 0;
  std::uint64_t bytes_read = 0;

  engine::train::SweepFunctions functions() {
    engine::train::SweepFunctions functions = checks::toy_functions();
    functions.forward_backward = [this](const Batch& batch, AdapterSet& set,
                                        const SweepHooks& hooks) {
      now_ns += 3'000'000'000;
      bytes_read += 2'000'000 * static_cast<std::uint64_t>(batch.size());
      return checks::toy_sweep(batch, set, hooks);
    };
    functions.add_reads = [this](Timing& timing) {
      if (checkpoint_is_being_made()) now_ns += 5'000'000'000;
      timing.monotonic_ns = now_ns;
      timing.bytes_read = bytes_read;
    };
    return functions;
  }
  bool checkpoint_is_being_made() const {
    if (!fs::exists(run / "checkpoints")) return false;
    for (const auto& entry : fs::directory_iterator(run / "checkpoints")) {
      if (entry.path().extension() == ".lazylora-tmp") return true;
    }
    return false;
  }
};

Job twenty_steps(const fs::path& run) {
  Job job = toy_job(run);
  job.settings.schedule.total = 20;
  return job;
}

// What a run of twenty steps shows on `to`; the reports, and when each step ended.
struct Shown {
  std::vector<StepReport> reports;
  std::vector<double> ended;
  double end = 0.0;
  std::uint64_t bytes_read = 0;
};
Shown show(const fs::path& run, std::FILE* to) {
  Machine machine{run};
  ProgressLine progress(to, twenty_steps(run).settings, 2);
  Shown shown;
  engine::train::Observer observer;
  observer.moved = [&](const engine::train::Movement& m) { progress.move(m); };
  observer.stepped = [&](const StepReport& report) {
    shown.reports.push_back(report);
    shown.ended.push_back(static_cast<double>(machine.now_ns) * 1e-9);
    progress.finish_step(report);
  };
  observer.saved = [&](std::int64_t step, const fs::path& folder, double seconds) {
    progress.finish_checkpoint(step, folder.string(), seconds);
  };
  run_toy(twenty_steps(run), machine.functions(), observer);
  shown.end = static_cast<double>(machine.now_ns) * 1e-9;
  shown.bytes_read = machine.bytes_read;
  return shown;
}

std::vector<std::string> lines_of(std::FILE* file) {
  std::vector<std::string> lines;
  std::rewind(file);
  std::string line;
  for (int c = std::fgetc(file); c != EOF; c = std::fgetc(file)) {
    if (c != '\n') {
      line += static_cast<char>(c);
      continue;
    }
    lines.push_back(line);
    line.clear();
  }
  return lines;
}

TEST(Progress, TimesHaveOneForm) {
  for (const auto& [seconds, text] :
       {std::pair(0.0, "0 s"), std::pair(0.01234, "0.0123 s"), std::pair(4.21, "4.21 s"),
        std::pair(9.994, "9.99 s"), std::pair(9.996, "10 s"), std::pair(59.4, "59 s"),
        std::pair(59.6, "1 min 00 s"), std::pair(3599.6, "1 h 00 min"),
        std::pair(45'296.0, "12 h 34 min")}) {
    EXPECT_EQ(format_seconds(seconds), text);
  }
}

// G16 (heyobi/LazyLora, FAQ question 9): by the step's own time, without what comes between, twenty
// steps would end 35 seconds too early.
TEST(Progress, G16_TimeToGoHasTheCheckpointsAndBytesAreTheReadersOwnCount) {
  const ScratchFolder folder;
  std::FILE* file = std::tmpfile();
  ASSERT_NE(file, nullptr);
  const Shown shown = show(folder / "run", file);
  std::vector<std::string> steps;
  for (const std::string& line : lines_of(file)) {
    EXPECT_EQ(line.find_first_of("\r\x1b"), std::string::npos) << "not a terminal: plain lines";
    if (line.rfind("step ", 0) == 0 && line.find("saved") == std::string::npos) {
      steps.push_back(line);
    }
  }
  std::fclose(file);
  ASSERT_EQ(steps.size(), 20u);
  // From the first checkpoint on, which is behind step 3, every kind of work has been measured.
  for (std::size_t i = 3; i < 20; ++i) {
    const std::string left = format_seconds(shown.end - shown.ended[i]);
    EXPECT_THAT(steps[i], HasSubstr("  " + left + " to go"));
  }
  EXPECT_DOUBLE_EQ(shown.end, 20 * 3.0 + 7 * 5.0);
  EXPECT_THAT(steps[19], HasSubstr("  5 s to go")) << "the last checkpoint is still to come";

  std::uint64_t all = 0;
  for (std::size_t i = 0; i < 20; ++i) {
    const StepReport& report = shown.reports[i];
    EXPECT_EQ(report.bytes_read, 2'000'000 * static_cast<std::uint64_t>(report.tokens));
    EXPECT_DOUBLE_EQ(report.seconds, 3.0);
    EXPECT_THAT(steps[i], HasSubstr(fmt::format("  {:.4g} tokens/s  {:.4g} MB/s",
                                                static_cast<double>(report.tokens) / 3.0,
                                                2.0 * static_cast<double>(report.tokens) / 3.0)));
    all += report.bytes_read;
  }
  EXPECT_EQ(all, shown.bytes_read);
  std::uint64_t timed = 0;
  std::ifstream timings(folder / "run/timings.jsonl");
  for (std::string line; std::getline(timings, line);) {
    timed += nlohmann::json::parse(line).at("bytes_read").get<std::uint64_t>();
  }
  EXPECT_EQ(timed, shown.bytes_read);
}

TEST(Progress, OnATerminalOneLineIsDrawnAgainAndAgain) {
  constexpr const char* kEnd = "<end>";
  const ScratchFolder folder;
  int ours = -1, theirs = -1;
  winsize wide{24, 200, 0, 0};
  if (openpty(&ours, &theirs, nullptr, nullptr, &wide) != 0) {
    GTEST_SKIP() << "no pseudo-terminal is to be had here: " << std::strerror(errno);
  }
  std::FILE* terminal = fdopen(theirs, "w");
  Settings settings = toy_job("x").settings;
  {
    ProgressLine progress(terminal, settings, 93);
    progress.finish_step({3, 5.25, 1e-4, 0.5, 20, 30, 2.0, 4'000'000});
    progress.move({4, "backward", 12, 0.5, 50'000'000});
    progress.move({4, "evaluation", 92, 0.5, 50'000'000});
  }
  // A terminal hands on what was written in as many pieces as it likes.
  std::fputs(kEnd, terminal);
  std::fflush(terminal);
  std::string text;
  for (char piece[4096]; !text.ends_with(kEnd);) {
    const ssize_t bytes = read(ours, piece, sizeof piece);
    ASSERT_GT(bytes, 0) << text;
    text.append(piece, static_cast<std::size_t>(bytes));
  }
  text.resize(text.size() - std::strlen(kEnd));
  std::fclose(terminal);
  close(ours);
  EXPECT_THAT(text, HasSubstr("step 3/7  loss 5.250000"));
  EXPECT_THAT(text, HasSubstr("15 tokens/s  2 MB/s  8 s to go"));
  EXPECT_THAT(text, HasSubstr("\r\x1b[K[##################..] step 4/7 backward layer 12/93  "
                              "100 MB/s  loss 5.250000  8 s to go"));
  EXPECT_THAT(text, HasSubstr("[####################] step 4/7 evaluation layer 92/93"));
  EXPECT_EQ(text.substr(text.size() - 4), "\r\x1b[K") << "the line is taken back at the end";
}

TEST(Cadence, EveryKindIsCountedAsOftenAsItIsDue) {
  Settings settings = toy_job("x").settings;  // 7 steps, a checkpoint behind 3, 6 and 7
  settings.eval_every = 2;                    // and an evaluation behind 0, 2, 4, 6 and 7
  for (const auto& [step, steps, checkpoints, evaluations] :
       {std::tuple(0, 7, 3, 5), std::tuple(2, 5, 3, 4), std::tuple(3, 4, 3, 3),
        std::tuple(6, 1, 2, 2), std::tuple(7, 0, 1, 1), std::tuple(9, 0, 0, 0)}) {
    const auto left = engine::train::remaining(settings, step);
    EXPECT_EQ(left.steps, steps) << step;
    EXPECT_EQ(left.checkpoints, checkpoints) << step;
    EXPECT_EQ(left.evaluations, evaluations) << step;
  }
  settings.schedule.total = 8;
  settings.checkpoint_every = 4;
  EXPECT_EQ(engine::train::remaining(settings, 5).checkpoints, 1) << "the last is due once";
  Cadence cadence;
  EXPECT_FALSE(cadence.seconds_for({1, 1, 1}));
  for (int i = 0; i < 20; ++i) cadence.add_step(i < 12 ? 100.0 : 2.0);  // eight are remembered
  cadence.add_checkpoint(10.0);
  EXPECT_DOUBLE_EQ(*cadence.seconds_for({3, 2, 5}), 3 * 2.0 + 2 * 10.0);
  cadence.add_evaluation(1.0);
  EXPECT_DOUBLE_EQ(*cadence.seconds_a_step(settings), (8 * 2.0 + 2 * 10.0 + 5 * 1.0) / 8);
}

// The estimate that G16 is about, and one that takes the mean over all that was: neither is right.
TEST(Progress, PlantedFaults) {
  const ScratchFolder folder;
  std::FILE* file = std::tmpfile();
  const Shown shown = show(folder / "run", file);
  std::fclose(file);
  const std::size_t i = 4;  // behind step 5: one checkpoint so far
  const double left = shown.end - shown.ended[i];
  EXPECT_EQ(format_seconds(left), "1 min 15 s");
  EXPECT_NE(format_seconds(shown.reports[i].seconds * 15), format_seconds(left));
  EXPECT_NE(format_seconds(shown.ended[i] / 5 * 15), format_seconds(left));
}

}  // namespace
