#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "engine/train/log.h"

namespace engine::train {

// One line of strict JSON, keys in the order they are added. Numbers are the shortest decimals that
// give the same double back. What is not finite is null, and "KEY_is" says what it was.
class JsonLine {
 public:
  JsonLine& text(std::string_view key, std::string_view value);
  JsonLine& integer(std::string_view key, std::int64_t value);
  JsonLine& integers(std::string_view key, std::span<const std::int64_t> values);
  JsonLine& real(std::string_view key, double value);
  JsonLine& null(std::string_view key);
  JsonLine& all(const JsonLine& other);
  std::string str() const { return "{" + body_ + "}"; }

 private:
  void key(std::string_view name);
  std::string body_;
};

// What of a phase is not reproducible. Readings are running totals; a line of timings.jsonl holds
// what was added since the line before, as it does for the seconds.
struct Timing {
  std::int64_t wall_ns = 0;       // since 1970
  std::int64_t monotonic_ns = 0;  // since the machine started
  std::uint64_t bytes_read = 0;   // from the checkpoint
  std::uint64_t reads_retried = 0;
  std::uint64_t rss_bytes = 0;
  std::uint64_t peak_rss_bytes = 0;
  std::uint64_t swap_bytes = 0;
};

// Clocks and memory now; the readings of the store are the caller's to add.
Timing timing_now();

// A file that only grows.
class AppendFile {
 public:
  explicit AppendFile(const std::filesystem::path& path);
  ~AppendFile();
  AppendFile(const AppendFile&) = delete;
  AppendFile& operator=(const AppendFile&) = delete;

  // Errors    Error naming the file and the system's reason
  void write(std::string_view text);
  void sync();
  int descriptor() const { return descriptor_; }

 private:
  std::filesystem::path path_;
  int descriptor_;
};

// RUN/log.jsonl and RUN/timings.jsonl, written together, a line a phase. log.jsonl holds only what
// a repetition of the run would write again, and "prev", the SHA-256 of the line before: changing,
// removing or adding a line changes every digest behind it, up to the one that state.json keeps.
class Record {
 public:
  // Continues behind `at` (the default: a new log). Lines behind it, of steps that a killed run
  // took after its last checkpoint, go to log.abandoned.jsonl and timings.abandoned.jsonl; killed
  // here, the next start abandons them a second time. Timings are no state: where they do not reach
  // `at`, what is there is moved to timings.abandoned.jsonl and notice() says so.
  // Errors    Error if another process writes this record, if the lines up to `at` are not those
  //           that the checkpoint saw (see check_log), or for the system's reasons
  Record(const std::filesystem::path& run, std::string run_id, const LogPosition& at = {});

  // Adds run, step and phase in front of `fields` and prev behind them.
  // Errors    Error, naming the file, if the disk is full
  void write(std::int64_t step, std::string_view phase, const JsonLine& fields,
             const Timing& timing);
  // Both files on the disk, before a checkpoint refers to them.
  void sync();
  const LogPosition& position() const { return at_; }
  // For the user; empty if there is nothing to say.
  const std::string& notice() const { return notice_; }

 private:
  void open_timings();

  std::filesystem::path run_;
  std::string run_id_;
  LogPosition at_;
  AppendFile log_;
  AppendFile timings_;
  Timing last_;
  std::string notice_;
};

}  // namespace engine::train
