#include "engine/data/line_reader.h"

#include <algorithm>
#include <cstring>

#include "engine/base/error.h"

namespace engine::data {

namespace {

constexpr std::size_t kChunkBytes = 1 << 20;

}  // namespace

LineReader::LineReader(const std::filesystem::path& path, std::size_t most_bytes)
    : file_(path), most_bytes_(most_bytes) {}

// Appends a chunk; false at the end.
bool LineReader::fill() {
  const std::uint64_t left = file_.size() - read_;
  if (left == 0) return false;
  buffer_.erase(0, start_);
  start_ = 0;
  const std::size_t count = std::min<std::uint64_t>(kChunkBytes, left);
  const std::size_t before = buffer_.size();
  buffer_.resize(before + count);
  const std::span<char> chunk(buffer_.data() + before, count);
  file_.read(read_, std::as_writable_bytes(chunk));
  hash_.update(std::as_bytes(std::span<const char>(chunk)));
  read_ += count;
  return true;
}

std::optional<LineReader::Line> LineReader::next() {
  std::size_t searched = start_;
  std::size_t end = std::string::npos;
  while ((end = buffer_.find('\n', searched)) == std::string::npos) {
    const std::size_t held = buffer_.size() - start_;
    if (held > most_bytes_) break;
    if (!fill()) break;
    searched = held;  // what was held begins the buffer now
  }
  if (end == std::string::npos) end = buffer_.size();
  if (start_ == buffer_.size()) return std::nullopt;
  Line line{++number_, read_ - (buffer_.size() - start_),
            std::string_view(buffer_).substr(start_, end - start_)};
  if (line.text.size() > most_bytes_) {
    throw base::Error("{}: line {} at byte {} has more than {} bytes", file_.path().string(),
                      line.number, line.offset, most_bytes_);
  }
  start_ = std::min(end + 1, buffer_.size());
  return line;
}

std::string LineReader::sha256() { return hash_.hex(); }

}  // namespace engine::data
