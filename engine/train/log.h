#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

namespace engine::train {

// The longest line is that of a forward_end: a count a layer, of at most 10,000 layers, and the name of
// the run. Memory for a log is that of one line, whatever the file.
inline constexpr std::size_t kMostLineBytes = std::size_t{256} << 10;

// A place in log.jsonl, behind a whole line.
struct LogPosition {
  std::int64_t lines = 0;
  std::uint64_t bytes = 0;
  std::string head = std::string(64, '0');  // SHA-256 of the last line, no newline; zeros: none

  friend bool operator==(const LogPosition&, const LogPosition&) = default;
};

// A line whose place in the chain was found right, without its newline, and the place behind it.
using LogVisitor = std::function<void(std::string_view line, const LogPosition& behind)>;

// Follows the chain of a log from its first line up to `end`, without one to the file's end as it is
// now; shows every line to `each`.
// Errors    Error naming file, line, and the two digests that disagree, or the lengths; a line of more
//           than kMostLineBytes
LogPosition check_log(const std::filesystem::path& log, const LogPosition* end = nullptr,
                      const LogVisitor& each = {});

// That a log is no shorter than a checkpoint has seen it: the log is on the disk before the checkpoint.
// Errors    Error naming the log and both lengths
void require_length(const std::filesystem::path& log, const LogPosition& end);

// What a line says of a name: its string, and its whole number; "" and -1 if that is none, or not there.
std::string text_of(std::string_view line, const char* name);
std::int64_t number_of(std::string_view line, const char* name);

}  // namespace engine::train
