#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace engine::train {

// How a start of a run ended.
enum class Ending {
  kNone,   // it goes on, or was killed
  kError,  // by an error that was reported
  kAsked,  // because it was asked to
};

// Where a run was when it was last heard of.
struct Whereabouts {
  std::int64_t step = 0;    // the step at hand, counted from 1; 0: before the first
  std::string phase;        // "start", "forward", "backward", "update", "checkpoint", "evaluation"
  std::int64_t layer = -1;  // the last one that was done in this phase; -1: none yet
  std::uint64_t rss_bytes = 0;
  std::uint64_t peak_rss_bytes = 0;
  Ending ending = Ending::kNone;
};

// RUN/breadcrumb.json: what is left to say where a run ended that was killed, as the kernel does it
// without a word when memory runs out. One line of a fixed number of bytes, written over in place
// with one system call: within a page, so that a kill leaves the old line or the new one. Not
// synced, because it is about the death of a process, and not part of what a run reproduces.
class Breadcrumb {
 public:
  // Reads what the last start left; then begins anew.
  // Errors    Error if the file cannot be opened
  explicit Breadcrumb(const std::filesystem::path& run);
  ~Breadcrumb();
  Breadcrumb(const Breadcrumb&) = delete;
  Breadcrumb& operator=(const Breadcrumb&) = delete;

  // Where the last start ended; nothing if it ended well, or what is there cannot be read.
  const std::optional<Whereabouts>& left_behind() const { return left_behind_; }

  // Resident memory is filled in. A disk that does not take it is no reason to stop a run.
  // Cost      two reads of /proc and one write: tens of microseconds
  void drop(std::int64_t step, std::string_view phase, std::int64_t layer = -1);
  const Whereabouts& here() const { return here_; }
  // The run ends here, and the user is told.
  void stop(Ending ending);
  // The run has come to its end: there is nothing to tell the next start.
  void remove();

 private:
  void write();

  std::filesystem::path path_;
  int descriptor_ = -1;
  std::optional<Whereabouts> left_behind_;
  Whereabouts here_;
};

// What RUN/breadcrumb.json says; nothing if it is not there or cannot be read. Changes nothing.
std::optional<Whereabouts> read_breadcrumb(const std::filesystem::path& run);

// "was killed", "stopped with an error", "was asked to stop".
std::string_view verb_of(Ending ending);

// "step 7, forward, after layer 12"; "the time before its first step"; that, "..., evaluation, after layer 3".
std::string place(const Whereabouts& where);

// "step 7, forward, after layer 12, with 43.1 MB resident (at most 45.0 MB)".
std::string describe(const Whereabouts& where);

}  // namespace engine::train
