#include "engine/store/text_stream.h"

#include <algorithm>
#include <span>

#include "engine/base/error.h"

namespace engine::store {
namespace {

constexpr std::uint64_t kChunkBytes = std::uint64_t{1} << 20;

}  // namespace

TextStream::TextStream(const std::filesystem::path& path, std::uint64_t limit_bytes) : file_(path) {
  if (file_.size() == 0) throw base::Error("{}: is empty", path.string());
  if (file_.size() > limit_bytes) {
    throw base::Error("{}: has {} bytes, more than the {} expected at most", path.string(),
                      file_.size(), limit_bytes);
  }
  fill();
}

// The chunk behind the one at hand; an empty one at the end.
void TextStream::fill() {
  begin_ += chunk_.size();
  at_ = 0;
  chunk_.resize(std::min<std::uint64_t>(kChunkBytes, file_.size() - begin_));
  file_.read(begin_, std::as_writable_bytes(std::span(chunk_)));
  // The parser would take it for the end, and what is behind it for nothing.
  if (const std::size_t nul = chunk_.find('\0'); nul != std::string::npos) {
    throw base::Error("{}: at byte {}: not valid JSON: a NUL", file_.path().string(), begin_ + nul);
  }
}

void TextStream::advance() {
  const char passed = chunk_[at_];
  if (escaped_) {
    escaped_ = false;
  } else {
    escaped_ = passed == '\\';
    if (passed == '"') between_ = 0;
  }
  if (++between_ > kMostBetween) {
    throw base::Error("{}: at byte {}: more than {} bytes without a quotation mark",
                      file_.path().string(), begin_ + at_, kMostBetween);
  }
  if (++at_ == chunk_.size()) fill();
}

}  // namespace engine::store
