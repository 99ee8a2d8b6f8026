#define PCRE2_CODE_UNIT_WIDTH 8
#include "engine/data/pretokenizer.h"

#include <pcre2.h>

#include <cstdint>
#include <limits>

#include "engine/base/error.h"

namespace engine::data {

using base::Error;

namespace {

// The White_Space of Unicode since 6.3, as the inside of a class.
constexpr const char* kWhiteSpace =
    "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}"
    "\\x{205f}\\x{3000}";

class Translation {
 public:
  explicit Translation(std::string_view pattern) : pattern_(pattern) {}

  std::string whole() {
    std::string out;
    while (at_ < pattern_.size()) {
      if (pattern_[at_] == '[') {
        out += character_class();
      } else if (pattern_[at_] == '\\') {
        const std::string one = escape();
        if (one == "\\s" || one == "\\S") {
          out += fmt::format("[{}{}]", one == "\\S" ? "^" : "", kWhiteSpace);
        } else {
          out += one;
        }
      } else {
        out += pattern_[at_++];
      }
    }
    return out;
  }

 private:
  [[noreturn]] void refuse(const char* what) const {
    throw Error("pattern {}: byte {}: {}", pattern_, at_, what);
  }

  bool ahead(std::string_view text) const { return pattern_.substr(at_).starts_with(text); }

  // \x or \p{Name}. A name of one or two letters is a general category, a longer one a script.
  std::string escape() {
    if (at_ + 1 >= pattern_.size()) refuse("nothing behind the backslash");
    const char kind = pattern_[at_ + 1];
    if (kind != 'p' && kind != 'P') {
      at_ += 2;
      return std::string(pattern_.substr(at_ - 2, 2));
    }
    const std::size_t end = pattern_.find('}', at_);
    if (!pattern_.substr(at_ + 2).starts_with('{') || end == std::string_view::npos) {
      refuse("a property without braces");
    }
    const std::string_view name = pattern_.substr(at_ + 3, end - at_ - 3);
    at_ = end + 1;
    return fmt::format("\\{}{{{}{}}}", kind, name.size() > 2 ? "sc:" : "", name);
  }

  // What stands between the brackets of a class, up to ] or &&.
  std::string items() {
    std::string out;
    while (at_ < pattern_.size() && pattern_[at_] != ']' && !ahead("&&")) {
      if (pattern_[at_] == '[') refuse("a class within a class");
      if (pattern_[at_] != '\\') {
        out += pattern_[at_++];
        continue;
      }
      const std::string one = escape();
      if (one == "\\S") refuse("\\S within a class");
      out += one == "\\s" ? kWhiteSpace : one;
    }
    if (at_ >= pattern_.size()) refuse("a class without an end");
    return out;
  }

  std::string character_class() {
    ++at_;
    const std::string all = items();
    if (!ahead("&&")) {
      ++at_;
      return '[' + all + ']';
    }
    if (all.starts_with('^') || !ahead("&&[^")) refuse("an intersection other than [A&&[^B]]");
    at_ += 4;
    const std::string none = items();
    if (!ahead("]]")) refuse("an intersection other than [A&&[^B]]");
    at_ += 2;
    return fmt::format("(?:(?![{}])[{}])", none, all);
  }

  std::string_view pattern_;
  std::size_t at_ = 0;
};

// PCRE2's own words.
std::string reason(int code) {
  PCRE2_UCHAR text[256];
  pcre2_get_error_message(code, text, sizeof(text));
  return reinterpret_cast<const char*>(text);
}

// Grown on demand. The released pattern takes some 170 bytes for a letter that it may have to give
// back, so 4 MB for the longest run that slices leave; the rest is for patterns of others.
constexpr std::size_t kFirstStackBytes = std::size_t{64} << 10;
constexpr std::size_t kMostStackBytes = std::size_t{64} << 20;

}  // namespace

const char* const kReleasedPattern =
    R"([\p{Han}]+)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*)"
    R"([\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+)"
    R"([\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

std::string pcre2_pattern(std::string_view pattern) { return Translation(pattern).whole(); }

struct Pretokenizer::State {
  pcre2_code* code = nullptr;
  pcre2_match_data* match = nullptr;
  pcre2_match_context* context = nullptr;
  pcre2_jit_stack* stack = nullptr;

  ~State() {
    pcre2_jit_stack_free(stack);
    pcre2_match_context_free(context);
    pcre2_match_data_free(match);
    pcre2_code_free(code);
  }
};

Pretokenizer::Pretokenizer(std::string_view pattern) : state_(std::make_unique<State>()) {
  const std::string ours = pcre2_pattern(pattern);
  int error = 0;
  std::size_t at = 0;
  State& state = *state_;
  state.code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(ours.data()), ours.size(),
                             PCRE2_UTF | PCRE2_UCP | PCRE2_ANCHORED, &error, &at, nullptr);
  if (state.code == nullptr) throw Error("pattern {}: byte {}: {}", ours, at, reason(error));
  // Anchored here and not when matching, where it would keep the JIT code from being used: a pattern
  // that skips a byte would lose it for good. Without JIT (a processor or a hardened kernel that refuses it) matching is slower, not other.
  pcre2_jit_compile(state.code, PCRE2_JIT_COMPLETE);
  state.match = pcre2_match_data_create_from_pattern(state.code, nullptr);
  state.context = pcre2_match_context_create(nullptr);
  state.stack = pcre2_jit_stack_create(kFirstStackBytes, kMostStackBytes, nullptr);
  if (state.match == nullptr || state.context == nullptr || state.stack == nullptr) {
    throw Error("PCRE2: no memory for a match");
  }
  pcre2_jit_stack_assign(state.context, nullptr, state.stack);
  constexpr std::uint32_t kNoLimit = std::numeric_limits<std::uint32_t>::max();
  pcre2_set_match_limit(state.context, kNoLimit);
  pcre2_set_depth_limit(state.context, kNoLimit);
  pcre2_set_heap_limit(state.context, kMostStackBytes >> 10);
}

Pretokenizer::~Pretokenizer() = default;
Pretokenizer::Pretokenizer(Pretokenizer&&) noexcept = default;

void Pretokenizer::split(std::string_view text,
                         const std::function<void(std::string_view)>& piece) const {
  const std::size_t* const range = pcre2_get_ovector_pointer(state_->match);
  for (std::size_t at = 0; at < text.size();) {
    const int found =
        pcre2_match(state_->code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), at,
                    PCRE2_NO_UTF_CHECK, state_->match, state_->context);
    if (found == PCRE2_ERROR_NOMATCH || (found >= 0 && range[1] == at)) {
      throw Error("the pattern matches nothing at byte {} of {}", at, text.size());
    }
    if (found < 0) throw Error("byte {} of {}: {}", at, text.size(), reason(found));
    piece(text.substr(at, range[1] - at));
    at = range[1];
  }
}

}  // namespace engine::data
