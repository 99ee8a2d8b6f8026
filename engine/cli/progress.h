#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

namespace engine::cli {

// One line that says where a long run is: redrawn in place on a terminal; elsewhere (a pipe, a log)
// a plain line a step and nothing in between.
class ProgressLine {
 public:
  // Without a terminal, `to` gets only note() and finish_step().
  ProgressLine(std::FILE* to, std::int64_t steps, std::int64_t first_step, std::int64_t layers);
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  void move(std::int64_t step, std::string_view direction, std::int64_t layer);
  // `text` is about the step that ended; the time to go follows from the cadence of the steps so
  // far, checkpoints included.
  void finish_step(std::int64_t step, const std::string& text);
  void note(const std::string& text);

 private:
  void draw(const std::string& text);
  void erase();
  void put(const std::string& text);

  std::FILE* to_;
  bool terminal_;
  std::int64_t steps_;
  std::int64_t first_step_;
  std::int64_t layers_;
  double started_;
  bool drawn_ = false;
  std::string last_;
};

// "1 h 02 min", "3 min 10 s", "4 s".
std::string format_seconds(double seconds);

}  // namespace engine::cli
