#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace engine::data {

// The ordinary tokens of a byte-pair vocabulary: rank = id, 0 ... size-1. Every single byte is one
// of them, so every text has an encoding and no id stands for "unknown".
class Ranks {
 public:
  // A tiktoken file's text: one token a line, base64 of its bytes, a space, its rank in decimal.
  // Lines may come in any order; blank lines (nothing, spaces, tabs) are passed over.
  //
  // Errors    Error naming `where` and the line: no such line (a carriage return at its end
  //           included), bytes or rank that stand there twice, an empty token; a rank behind a gap,
  //           a byte that has no token
  Ranks(std::string_view text, const std::string& where);
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  std::int32_t size() const { return static_cast<std::int32_t>(tokens_.size()); }
  std::string_view bytes(std::int32_t rank) const { return tokens_[rank]; }
  // -1 if these bytes are no token.
  std::int32_t find(std::string_view bytes) const {
    if (bytes.size() > longest_) return -1;
    const auto found = ranks_.find(bytes);
    return found == ranks_.end() ? -1 : found->second;
  }

 private:
  std::string pool_;                      // all tokens' bytes; not moved once it is filled
  std::vector<std::string_view> tokens_;  // [rank], into pool_
  std::unordered_map<std::string_view, std::int32_t> ranks_;
  std::size_t longest_ = 0;
};

}  // namespace engine::data
