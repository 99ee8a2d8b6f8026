#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace checks {

// What the released pattern says, written out as a program on ICU's properties: no regular
// expression, no PCRE2, no common table. One fault at a time can be planted.
enum class PieceFault {
  kNone,
  kScriptExtensions,  // Han: the characters used with it too
  kMongolianIsSpace,  // U+180E
  kNoHan,             // Han letters are letters like others
  kFourDigits,
  kPrefixIsPossessive,  // the character before a word is not given back
  kNoContractions,
  kContractionsOfAscii,    // 's, but not the long s
  kNoBackingOff,           // upper-case letters are not given back to the lower-case class
  kAlternativesExchanged,  // the second and the third
  kSpacesKeepTheLast,      // \s+(?!\S) is missing
};

std::vector<std::string> pieces_by_icu(std::string_view text, PieceFault fault = PieceFault::kNone);

// Texts of a few dozen characters from every corner: Han, mixed scripts, digits, apostrophes,
// marks, runs of spaces, emoji; a function of the seed. All characters are assigned since Unicode
// 13, which all libraries here know.
std::vector<std::string> odd_texts(std::uint64_t seed, int count);

// Of each block of Unicode its assigned characters, of the long ideographic ones every 61st.
std::vector<std::string> one_of_each_character();

}  // namespace checks
