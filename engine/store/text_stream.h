#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <string>

#include "engine/store/file.h"

namespace engine::store {

// The characters of a JSON file of strings (an index, a manifest), once and in order, for a parser that keeps
// none of them: memory for a chunk, and for the parser's copy of what stands between two quotation marks.
class TextStream {
 public:
  // Errors    those of File, and Error if it is larger than `limit_bytes` or empty, as read_text
  TextStream(const std::filesystem::path& path, std::uint64_t limit_bytes);

  class Iterator {
   public:
    using iterator_category = std::input_iterator_tag;
    using value_type = char;
    using difference_type = std::ptrdiff_t;
    using pointer = const char*;
    using reference = const char&;

    explicit Iterator(TextStream* stream) : stream_(stream) {}
    const char& operator*() const { return stream_->chunk_[stream_->at_]; }
    // Errors    those of File::read, and Error naming file and place: more than kMostBetween bytes since a
    //           quotation mark, or a NUL
    Iterator& operator++() {
      stream_->advance();
      return *this;
    }
    bool operator==(const Iterator& other) const { return ended() == other.ended(); }

   private:
    bool ended() const { return stream_ == nullptr || stream_->at_ == stream_->chunk_.size(); }
    TextStream* stream_;
  };
  Iterator begin() { return Iterator(this); }
  Iterator end() { return Iterator(nullptr); }

  static constexpr std::size_t kMostBetween = std::size_t{1} << 20;

 private:
  void fill();
  void advance();

  File file_;
  std::string chunk_;
  std::size_t at_ = 0;       // in the chunk
  std::uint64_t begin_ = 0;  // of the chunk in the file
  std::size_t between_ = 0;  // bytes since a quotation mark
  bool escaped_ = false;     // the one at hand, by a backslash
};

}  // namespace engine::store
