#include "checks/data/pieces_by_icu.h"

#include <unicode/uchar.h>
#include <unicode/unistr.h>
#include <unicode/uscript.h>
#include <unicode/utf8.h>

#include <algorithm>
#include <cstdint>
#include <functional>

#include "engine/base/rng.h"

namespace checks {

namespace {

struct Char {
  UChar32 code = 0;
  std::size_t begin = 0;
};

class Matcher {
 public:
  Matcher(std::string_view text, PieceFault fault) : fault_(fault), bytes_(text.size()) {
    const auto wide = icu::UnicodeString::fromUTF8({text.data(), static_cast<int>(text.size())});
    std::size_t begin = 0;
    for (std::int32_t at = 0; at < wide.length(); at = wide.moveIndex32(at, 1)) {
      chars_.push_back({wide.char32At(at), begin});
      begin += U8_LENGTH(chars_.back().code);
    }
  }

  std::size_t size() const { return chars_.size(); }
  std::size_t byte(std::size_t i) const { return i < size() ? chars_[i].begin : bytes_; }

  // The end of the piece that begins at i.
  std::size_t piece(std::size_t i) const {
    using Alternative = std::size_t (Matcher::*)(std::size_t) const;
    std::vector<Alternative> all = {&Matcher::han,    &Matcher::lower,      &Matcher::upper,
                                    &Matcher::digits, &Matcher::symbols,    &Matcher::lines,
                                    &Matcher::spaces, &Matcher::last_spaces};
    if (fault_ == PieceFault::kAlternativesExchanged) std::swap(all[1], all[2]);
    for (const Alternative alternative : all) {
      if (const std::size_t end = (this->*alternative)(i); end > i) return end;
    }
    return i;
  }

 private:
  using Test = bool (Matcher::*)(UChar32) const;
  bool is(std::size_t i, Test test) const { return i < size() && (this->*test)(chars_[i].code); }
  std::size_t run(std::size_t i, Test test) const {
    while (is(i, test)) ++i;
    return i;
  }

  static bool within(UChar32 c, std::uint32_t mask) { return (U_MASK(u_charType(c)) & mask) != 0; }
  bool is_han(UChar32 c) const {
    if (fault_ == PieceFault::kNoHan) return false;
    if (fault_ == PieceFault::kScriptExtensions) return uscript_hasScript(c, USCRIPT_HAN);
    UErrorCode error = U_ZERO_ERROR;
    return uscript_getScript(c, &error) == USCRIPT_HAN;
  }
  bool is_letter(UChar32 c) const { return within(c, U_GC_L_MASK); }
  bool is_digit(UChar32 c) const { return within(c, U_GC_N_MASK); }
  bool is_space(UChar32 c) const {
    return u_hasBinaryProperty(c, UCHAR_WHITE_SPACE) ||
           (fault_ == PieceFault::kMongolianIsSpace && c == 0x180E);
  }
  bool is_break(UChar32 c) const { return c == '\r' || c == '\n'; }
  bool is_upper(UChar32 c) const {
    return !is_han(c) &&
           within(c, U_GC_LU_MASK | U_GC_LT_MASK | U_GC_LM_MASK | U_GC_LO_MASK | U_GC_M_MASK);
  }
  bool is_lower(UChar32 c) const {
    return !is_han(c) && within(c, U_GC_LL_MASK | U_GC_LM_MASK | U_GC_LO_MASK | U_GC_M_MASK);
  }
  bool is_symbol(UChar32 c) const { return !is_space(c) && !is_letter(c) && !is_digit(c); }
  bool is_prefix(UChar32 c) const { return !is_break(c) && !is_letter(c) && !is_digit(c); }

  std::size_t contraction(std::size_t i) const {
    if (fault_ == PieceFault::kNoContractions || i >= size() || chars_[i].code != '\'') return i;
    const auto letter = [&](std::size_t at) -> UChar32 {
      if (at >= size()) return 0;
      if (fault_ == PieceFault::kContractionsOfAscii) return chars_[at].code | 0x20;
      return u_foldCase(chars_[at].code, U_FOLD_CASE_DEFAULT);
    };
    const UChar32 a = letter(i + 1), b = letter(i + 2);
    if (a == 's' || a == 't' || a == 'm' || a == 'd') return i + 2;
    if ((a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l')) return i + 3;
    return i;
  }

  // Upper* lower+ from i; i if there is no such thing.
  std::size_t upper_lower(std::size_t i) const {
    std::size_t middle = run(i, &Matcher::is_upper);
    while (!is(middle, &Matcher::is_lower)) {
      if (middle == i || fault_ == PieceFault::kNoBackingOff) return i;
      --middle;
    }
    return run(middle, &Matcher::is_lower);
  }
  // Upper+ lower*.
  std::size_t upper_only(std::size_t i) const {
    const std::size_t middle = run(i, &Matcher::is_upper);
    return middle == i ? i : run(middle, &Matcher::is_lower);
  }
  std::size_t word(std::size_t i, std::size_t (Matcher::*letters)(std::size_t) const) const {
    if (is(i, &Matcher::is_prefix)) {
      if (const std::size_t end = (this->*letters)(i + 1); end > i + 1) return contraction(end);
      if (fault_ == PieceFault::kPrefixIsPossessive) return i;
    }
    const std::size_t end = (this->*letters)(i);
    return end > i ? contraction(end) : i;
  }

  std::size_t han(std::size_t i) const { return run(i, &Matcher::is_han); }
  std::size_t lower(std::size_t i) const { return word(i, &Matcher::upper_lower); }
  std::size_t upper(std::size_t i) const { return word(i, &Matcher::upper_only); }
  std::size_t digits(std::size_t i) const {
    const std::size_t most = fault_ == PieceFault::kFourDigits ? 4 : 3;
    return std::min(run(i, &Matcher::is_digit), i + most);
  }
  std::size_t symbols(std::size_t i) const {
    const std::size_t begin = is(i, &Matcher::is_blank) ? i + 1 : i;
    const std::size_t end = run(begin, &Matcher::is_symbol);
    return end == begin ? i : run(end, &Matcher::is_break);
  }
  bool is_blank(UChar32 c) const { return c == ' '; }
  std::size_t lines(std::size_t i) const {
    std::size_t end = run(i, &Matcher::is_space);
    while (end > i && !is(end - 1, &Matcher::is_break)) --end;
    return end;
  }
  std::size_t spaces(std::size_t i) const {
    if (fault_ == PieceFault::kSpacesKeepTheLast) return i;
    const std::size_t end = run(i, &Matcher::is_space);
    return end == size() ? end : end > i + 1 ? end - 1 : i;
  }
  std::size_t last_spaces(std::size_t i) const { return run(i, &Matcher::is_space); }

  PieceFault fault_;
  std::size_t bytes_;
  std::vector<Char> chars_;
};

bool is_old_enough(UChar32 c) {
  UVersionInfo age;
  u_charAge(c, age);
  return age[0] > 0 && age[0] <= 13 && !U_IS_SURROGATE(c);
}

std::string as_text(UChar32 c) {
  std::string text;
  icu::UnicodeString(c).toUTF8String(text);
  return text;
}

}  // namespace

std::vector<std::string> pieces_by_icu(std::string_view text, PieceFault fault) {
  const Matcher matcher(text, fault);
  std::vector<std::string> pieces;
  for (std::size_t at = 0; at < matcher.size();) {
    const std::size_t end = std::max(matcher.piece(at), at + 1);
    const std::size_t begin = matcher.byte(at);
    pieces.emplace_back(text.substr(begin, matcher.byte(end) - begin));
    at = end;
  }
  return pieces;
}

std::vector<std::string> odd_texts(std::uint64_t seed, int count) {
  const engine::base::CounterRng rng(seed, "odd texts");
  std::uint64_t next = 0;
  const auto below = [&](std::size_t limit) { return rng.bits(next++) % limit; };
  const std::vector<std::string> corners = {"a",
                                            "b",
                                            "Z",
                                            "Q",
                                            "\u00E9",
                                            "\u0130",
                                            "\u0131",
                                            "\u01C5",
                                            "\u02B0",
                                            "\u05D0",
                                            "\u0301",
                                            "\u0903",
                                            "\u20DD",
                                            "\u4F60",
                                            "\u597D",
                                            "\u3005",
                                            "\u3007",
                                            "\u3021",
                                            "\u2F00",
                                            "\u3002",
                                            "\u300C",
                                            "\u30FC",
                                            "\u3042",
                                            "\uD55C",
                                            "\U00020000",
                                            "\U00016FF0",
                                            "0",
                                            "7",
                                            "\u0663",
                                            "\u00BD",
                                            "\u2167",
                                            "\u00B2",
                                            "'",
                                            "'s",
                                            "'S",
                                            "'ll",
                                            "'VE",
                                            "'\u017F",
                                            "\u2019",
                                            "'t",
                                            "'re",
                                            "'m",
                                            "'d",
                                            "'D",
                                            " ",
                                            "  ",
                                            "\n",
                                            "\r\n",
                                            "\r",
                                            "\t",
                                            "\u00A0",
                                            "\u3000",
                                            "\u2028",
                                            "\u0085",
                                            "\u180E",
                                            "\u200B",
                                            "\uFEFF",
                                            "\x1C",
                                            ".",
                                            ",",
                                            "!",
                                            "/",
                                            "-",
                                            "_",
                                            "<|",
                                            "|>",
                                            "\U0001F600",
                                            "\U0001F468\u200D\U0001F469",
                                            "\U0001F1F9\U0001F1F7",
                                            "the",
                                            "THE",
                                            "The",
                                            "don't"};
  std::vector<std::string> texts;
  for (int i = 0; i < count; ++i) {
    std::string text;
    const std::size_t parts = 1 + below(24);
    for (std::size_t j = 0; j < parts; ++j) {
      if (below(6) == 0) {
        UChar32 c = 0;
        do {
          c = static_cast<UChar32>(below(below(3) == 0 ? 0x1FFFF : 0x33FF));
        } while (!is_old_enough(c));
        text += as_text(c);
        continue;
      }
      const std::string& corner = corners[below(corners.size())];
      for (std::size_t n = below(5) == 0 ? 1 + below(9) : 1; n > 0; --n) text += corner;
    }
    texts.push_back(std::move(text));
  }
  return texts;
}

std::vector<std::string> one_of_each_character() {
  std::vector<std::string> all;
  for (UChar32 c = 0; c <= 0x3FFFF; ++c) {
    const bool dense = (c >= 0x3400 && c < 0xA000) || (c >= 0xAC00 && c < 0xF900) || c >= 0x20000;
    if ((dense && c % 61 != 0) || !is_old_enough(c)) continue;
    all.push_back(as_text(c));
  }
  return all;
}

}  // namespace checks
