#include <gtest/gtest.h>

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

TEST(Slices, PlantedFaults) {
  const std::string text = "aaaa bbbbbb c";
  const Slices right = cut(text, {5, 4});
  EXPECT_NE(right, cut(text, {6, 4}));
  EXPECT_NE(right, cut(text, {5, 3}));
  std::string whole;
  for (const std::string& slice : right) whole += slice;
  EXPECT_EQ(whole, text);
}

}  // namespace
