#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace engine::data {

// The pattern that cuts a text into pieces before byte pairs are joined; no token crosses a piece.
//
// It is written in the dialect of tiktoken's Rust library. PCRE2 reads the same characters and
// means something else in three places, without a word; pcre2_pattern() says what is meant:
//   [A&&[^B]]   intersection. PCRE2 reads a class of A, & and [^B followed by a ]
//   \p{Han}     characters of that script. PCRE2 takes those that are used with it as well, so
//               that the ideographic full stop would belong to the words before it
//   \s, \S      White_Space. PCRE2 adds U+180E, no space since Unicode 6.3
extern const char* const kReleasedPattern;

// Errors    Error naming the pattern's byte: a class form that has no such translation
std::string pcre2_pattern(std::string_view pattern);

// Threads   one call at a time for one object
class Pretokenizer {
 public:
  // Errors    Error with PCRE2's reason and place if the pattern does not compile
  explicit Pretokenizer(std::string_view pattern);
  ~Pretokenizer();
  Pretokenizer(Pretokenizer&&) noexcept;

  // The pieces of a well-formed text in order; together they are the text.
  //
  // Cost      PCRE2's JIT code with a stack of its own: the usual 32 KiB are used up by a run of
  //           letters that is tried as a whole and given back letter by letter
  // Errors    Error naming the byte from which the pattern matches nothing, or PCRE2's reason
  void split(std::string_view text, const std::function<void(std::string_view)>& piece) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace engine::data
