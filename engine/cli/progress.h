#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

#include "engine/train/cadence.h"
#include "engine/train/settings.h"
#include "engine/train/trainer.h"

namespace engine::cli {

// One line that says where a run is: step, layer, direction, loss, tokens and megabytes a second, and
// the time to go, redrawn in place on a terminal. Elsewhere (a pipe, a log) a plain line a step and
// nothing in between.
class ProgressLine {
 public:
  // Without a terminal, `to` gets only whole lines.
  ProgressLine(std::FILE* to, const train::Settings& settings, std::int64_t layers);
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  void move(const train::Movement& movement);
  // The time to go is that of all that is still due, by the cadence so far.
  void finish_step(const train::StepReport& report);
  void finish_evaluation(std::int64_t step, const train::Evaluation& evaluation, double seconds);
  void finish_checkpoint(std::int64_t step, const std::string& folder, double seconds);
  void note(const std::string& text);

 private:
  std::string to_go(std::int64_t step) const;
  void draw(const std::string& text);
  void erase();
  void put(const std::string& text);

  std::FILE* to_;
  bool terminal_;
  train::Settings settings_;
  std::int64_t layers_;
  train::Cadence cadence_;
  bool drawn_ = false;
  std::string last_;  // of the step that ended
};

// "1 h 02 min", "3 min 10 s", "42 s"; below ten seconds "4.21 s". The one form in which times are shown.
std::string format_seconds(double seconds);

}  // namespace engine::cli
