#include <gmock/gmock.h>

#include "engine/data/utf8_stream.h"

namespace {

using engine::data::Utf8Stream;

constexpr const char* kText = "a\xC4\x9F\xE6\xBC\xA2\xF0\x9F\x90\x8C b";  // one to four bytes

// Cut anywhere, what came out is whole and is all that could be.
TEST(Utf8Stream, EveryCutOfAText) {
  const std::string text = kText;
  const std::string borders[] = {"a", "a\xC4\x9F", "a\xC4\x9F\xE6\xBC\xA2"};
  for (std::size_t first = 0; first <= text.size(); ++first) {
    for (std::size_t second = first; second <= text.size(); ++second) {
      Utf8Stream stream;
      std::string out = stream.push(text.substr(0, first));
      EXPECT_TRUE(text.starts_with(out));
      out += stream.push(text.substr(first, second - first));
      out += stream.push(text.substr(second));
      EXPECT_EQ(out, text) << first << " " << second;
      EXPECT_EQ(stream.finish(), "");
    }
  }
  for (const std::string& border : borders) {
    Utf8Stream stream;
    EXPECT_EQ(stream.push(text.substr(0, border.size() + 1)), border);  // and holds one byte
  }
}

TEST(Utf8Stream, WhatCannotBecomeWholeIsNotHeld) {
  const std::string bad = "\xEF\xBF\xBD";
  for (const std::string& bytes :
       {std::string("\x80"), std::string("\xFF"), std::string("\xC0"), std::string("\xF5")}) {
    EXPECT_EQ(Utf8Stream().push(bytes + "x"), bad + "x");
    EXPECT_EQ(Utf8Stream().push(bytes), bad);
  }
  // Overlong, a surrogate, beyond U+10FFFF: known with the second byte.
  for (const std::string& bytes :
       {std::string("\xE0\x80"), std::string("\xED\xA0"), std::string("\xF4\x90")}) {
    EXPECT_EQ(Utf8Stream().push(bytes), bad + bad);
  }
  Utf8Stream stream;
  EXPECT_EQ(stream.push("\xE6\xBC"), "");
  EXPECT_EQ(stream.push("x"), bad + bad + "x");
  EXPECT_EQ(stream.push("\xF0\x9F\x90"), "");
  EXPECT_EQ(stream.finish(), bad + bad + bad);
  EXPECT_EQ(stream.finish(), "");
}

}  // namespace
