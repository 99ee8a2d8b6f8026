#include "engine/train/timings.h"

#include "engine/base/error.h"
#include "engine/store/at_path.h"

namespace engine::train {

Timings::Timings(const std::filesystem::path& run) : path_(run / "timings.jsonl") {
  if (store::is_there(path_)) lines_.emplace(path_, kMostLineBytes);
  advance();
}

// What bears no digest, such as a line that was cut short, is none of ours.
void Timings::advance() {
  of_.clear();
  while (lines_ && of_.empty()) {
    const auto line = lines_->next();
    if (!line) return;
    of_ = text_of(line->text, "line");
    wall_ns_ = number_of(line->text, "wall_ns");
    number_ = line->number;
  }
}

void Timings::pass(const LogPosition& behind) {
  if (of_ != behind.head) return;
  if (behind.lines == 1) began_unix_ns_ = wall_ns_;
  advance();
}

void Timings::require_all_passed() const {
  if (of_.empty()) return;
  throw base::Error(
      "{} line {}: stands beside a line of SHA-256 {}, which log.jsonl does not have where it "
      "should: "
      "one of the two files was changed",
      path_.string(), number_, of_);
}

}  // namespace engine::train
