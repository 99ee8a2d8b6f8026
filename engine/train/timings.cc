#include "engine/train/timings.h"

#include "engine/base/error.h"
#include "engine/store/at_path.h"

namespace engine::train {

Timings::Timings(const std::filesystem::path& run) : path_(run / "timings.jsonl") {
  if (store::is_there(path_)) lines_.emplace(path_, kMostLineBytes);
  advance();
}

// A last line without its newline was cut short with the process that wrote it, and counts as lost.
void Timings::advance() {
  of_.clear();
  if (!lines_) return;
  const auto line = lines_->next();
  if (!line) return;
  if (line->offset + line->text.size() == lines_->bytes()) return;
  of_ = text_of(line->text, "line");
  if (of_.empty()) {
    throw base::Error(
        "{} line {}: is no JSON object that has the digest of a line of log.jsonl as \"line\": the "
        "file was changed; without it the run is judged as one whose timings were lost",
        path_.string(), line->number);
  }
  wall_ns_ = number_of(line->text, "wall_ns");
  number_ = line->number;
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
