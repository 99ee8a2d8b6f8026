#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/sha256.h"
#include "engine/store/file.h"

namespace engine::data {

// The lines of a file, one after another: memory for one line and one chunk, whatever the file.
class LineReader {
 public:
  struct Line {
    std::int64_t number = 0;   // from 1
    std::uint64_t offset = 0;  // of its first byte
    std::string_view text;     // without the newline; valid until the next call
  };

  explicit LineReader(const std::filesystem::path& path, std::size_t most_bytes = kMostBytes);

  // Nothing at the end.
  // Errors    Error naming file, line and offset: a line of more than `most_bytes`
  std::optional<Line> next();

  // Of all bytes, once the end was reached.
  std::string sha256();
  std::uint64_t bytes() const { return file_.size(); }

  static constexpr std::size_t kMostBytes = 16'000'000;

 private:
  bool fill();

  store::File file_;
  std::size_t most_bytes_;
  base::Sha256 hash_;
  std::string buffer_;  // bytes read and not yet given out begin at start_
  std::size_t start_ = 0;
  std::uint64_t read_ = 0;  // bytes of the file read so far
  std::int64_t number_ = 0;
};

}  // namespace engine::data
