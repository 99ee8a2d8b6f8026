#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "engine/data/line_reader.h"
#include "engine/train/log.h"

namespace engine::train {

// RUN/timings.jsonl held against the log that it stands beside: every line bears the digest of a line of the log,
// in the log's order. It is no state and may be lost, but what is there knows the log's last line, which may stand
// behind every checkpoint, and the clock at its first.
class Timings {
 public:
  // Errors    Error naming the line, here and below: more than kMostLineBytes, or whole and without a digest
  explicit Timings(const std::filesystem::path& run);

  // The log's next line.
  void pass(const LogPosition& behind);
  // Behind the log's last line.
  // Errors    Error naming the line here that belongs to none of the log's
  void require_all_passed() const;
  // Wall clock when the log's first line was written; nothing if that was lost.
  const std::optional<std::int64_t>& began_unix_ns() const { return began_unix_ns_; }

 private:
  void advance();

  std::filesystem::path path_;
  std::optional<data::LineReader> lines_;  // nothing: the file is not there
  std::string of_;                         // the next line's digest; empty: none is left
  std::int64_t number_ = 0, wall_ns_ = -1;
  std::optional<std::int64_t> began_unix_ns_;
};

}  // namespace engine::train
