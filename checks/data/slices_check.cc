#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "engine/data/slices.h"

namespace {

using engine::data::for_each_slice;
using engine::data::SliceLimits;
using Slices = std::vector<std::string>;

Slices cut(const std::string& text, const SliceLimits& limits) {
  Slices slices;
  for_each_slice(text, limits, [&](std::string_view slice) { slices.emplace_back(slice); });
  return slices;
}

TEST(Slices, AreCutBehindSoManyCharactersNotBytes) {
  EXPECT_EQ(cut("", {4, 9}), Slices{});
  EXPECT_EQ(cut("abcd", {4, 9}), Slices{"abcd"});
  EXPECT_EQ(cut("abcde", {4, 9}), (Slices{"abcd", "e"}));
  EXPECT_EQ(cut("a\u00E9\u4F60\U0001F600e", {4, 9}), (Slices{"a\u00E9\u4F60\U0001F600", "e"}));
}

TEST(Slices, AreCutBehindSoMuchOfARun) {
  EXPECT_EQ(cut("abc", {99, 3}), Slices{"abc"});
  EXPECT_EQ(cut("abcd", {99, 3}), (Slices{"abc", "d"}));
  EXPECT_EQ(cut("abcdefg", {99, 3}), (Slices{"abc", "def", "g"}));
  EXPECT_EQ(cut("ab cd ef", {99, 3}), Slices{"ab cd ef"});
  EXPECT_EQ(cut("a    b", {99, 3}), (Slices{"a   ", " b"}));
  // Separators of information are spaces here, U+180E and the zero-width space are not.
  EXPECT_EQ(cut("a\x1C b \u3000\u0085c", {99, 4}), Slices{"a\x1C b \u3000\u0085c"});
  EXPECT_EQ(cut("\x1C\x1D\x1E\x1F", {99, 3}), (Slices{"\x1C\x1D\x1E", "\x1F"}));
  EXPECT_EQ(cut("a\u180Eb\u200Bc", {99, 3}), (Slices{"a\u180E"
                                                     "b",
                                                     "\u200B"
                                                     "c"}));
}

TEST(Slices, ARunBeginsAnewBehindTheOtherCut) {
  EXPECT_EQ(cut("abcdefg", {4, 3}), (Slices{"abc", "d", "efg"}));
  EXPECT_EQ(cut(" bcdefgh", {4, 3}), (Slices{" bcd", "efg", "h"}));
}

// The same in another way, and what somebody might have written instead.
struct Slicer {
  bool bytes = false;              // counted, not characters
  bool run_goes_on = false;        // across the other cut
  bool run_cut_resets = false;     // the count of characters as well
  bool ascii_spaces = false;       // the space alone
  bool separators_differ = false;  // U+001C ... U+001F as in the pattern's \s

  bool space(const std::string& c) const {
    static const std::set<std::string> others{"\t", "\n", "\u0085", "\u3000"};
    if (c == " ") return true;
    if (c >= "\x1C" && c <= "\x1F") return !separators_differ && !ascii_spaces;
    return !ascii_spaces && others.contains(c);
  }
  Slices operator()(const std::string& text, const SliceLimits& limits) const {
    std::vector<std::string> characters;
    for (const char byte : text) {
      if (!bytes && (byte & 0xC0) == 0x80) {
        characters.back() += byte;
      } else {
        characters.emplace_back(1, byte);
      }
    }
    Slices slices;
    std::int64_t length = 0, run = 0;
    for (std::size_t i = 0; i < characters.size(); ++i) {
      run = i > 0 && space(characters[i]) == space(characters[i - 1]) ? run + 1 : 1;
      const bool full = length == limits.characters;
      if (i == 0 || full || run > limits.run) {
        slices.emplace_back();
        if (!(full && run_goes_on && run <= limits.run)) run = 1;
        if (full || run_cut_resets || i == 0) length = 0;
      }
      slices.back() += characters[i];
      ++length;
    }
    return slices;
  }
};

TEST(Slices, PlantedFaults) {
  struct Row {
    std::string text;
    SliceLimits limits;
    Slices want;
  };
  const std::vector<Row> rows{
      {"a\u00E9\u4F60\U0001F600e", {4, 9}, {"a\u00E9\u4F60\U0001F600", "e"}},
      {"a    b", {99, 3}, {"a   ", " b"}},
      {"\x1C\x1D\x1E\x1F", {99, 3}, {"\x1C\x1D\x1E", "\x1F"}},
      {"a\x1C"
       "b \u3000\u0085c",
       {99, 2},
       {"a\x1C"
        "b \u3000",
        "\u0085c"}},
      {"abcdefg", {4, 3}, {"abc", "d", "efg"}},
      {" bcdefgh", {4, 3}, {" bcd", "efg", "h"}}};
  const auto right = [&](const auto& slicer) {
    return std::ranges::all_of(
        rows, [&](const Row& row) { return slicer(row.text, row.limits) == row.want; });
  };
  EXPECT_TRUE(right(cut));
  EXPECT_TRUE(right(Slicer{}));
  EXPECT_FALSE(right(Slicer{.bytes = true}));
  EXPECT_FALSE(right(Slicer{.run_goes_on = true}));
  EXPECT_FALSE(right(Slicer{.run_cut_resets = true}));
  EXPECT_FALSE(right(Slicer{.ascii_spaces = true}));
  EXPECT_FALSE(right(Slicer{.separators_differ = true}));
}

}  // namespace
