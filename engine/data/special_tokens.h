#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace engine::data {

// The ids behind the ranks: exactly 256 of them. tokenizer_config.json names some in
// added_tokens_decoder; every other slot is <|reserved_token_N|>, N the id itself. The tempting
// wrong versions count N from the first reserved id, or reserve 256 + 2.
class SpecialTokens {
 public:
  static constexpr std::int32_t kCount = 256;

  // Errors    Error naming `where` and the entry: an id outside [first, first + 256), a name that is
  //           empty or stands there twice, or a reserved name with another id than its own
  SpecialTokens(std::string_view config_text, const std::string& where, std::int32_t first);

  // A copy's index would point into this one's names.
  SpecialTokens(const SpecialTokens&) = delete;
  SpecialTokens& operator=(const SpecialTokens&) = delete;

  std::int32_t first() const { return first_; }
  std::int32_t end() const { return first_ + kCount; }
  const std::string& name(std::int32_t id) const { return names_[id - first_]; }
  // -1 if there is none.
  std::int32_t find(std::string_view name) const;

  // The first name in text.substr(from); of two that begin at one place the longer.
  struct Found {
    std::size_t begin = 0;
    std::size_t end = 0;
    std::int32_t id = 0;
  };
  std::optional<Found> next(std::string_view text, std::size_t from) const;

 private:
  std::int32_t first_;
  std::vector<std::string> names_;
  std::unordered_map<std::string_view, std::int32_t> ids_;  // of the names in names_
  std::vector<std::size_t> lengths_;                        // that names have, falling
  bool begins_[256] = {};                                   // [byte] whether a name begins with it
};

}  // namespace engine::data
