#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unicode/utf8.h>

#include <string>

#include "checks/data/tokenizer_folder.h"
#include "engine/base/rng.h"
#include "engine/data/utf8.h"

namespace {

using engine::data::character_at;
using engine::data::count_characters;
using engine::data::first_invalid_utf8;

// ICU's decoder as the other opinion.
std::optional<std::size_t> icu_first_invalid(const std::string& text) {
  std::int32_t at = 0;
  const auto size = static_cast<std::int32_t>(text.size());
  while (at < size) {
    const std::int32_t begin = at;
    UChar32 code = 0;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wconversion"  // within ICU's macro
    U8_NEXT(text.data(), at, size, code);
#pragma GCC diagnostic pop
    if (code < 0) return begin;
  }
  return std::nullopt;
}

TEST(Utf8, EveryShortByteStringAgreesWithIcu) {
  for (int a = 0; a < 256; ++a) {
    for (int b = 0; b < 256; ++b) {
      for (const char* tail : {"", "\x80", "\xBF\x80", "\x80\x80\xBF", "a", "\xC3"}) {
        const std::string text = std::string{static_cast<char>(a), static_cast<char>(b)} + tail;
        ASSERT_EQ(first_invalid_utf8(text), icu_first_invalid(text)) << a << ' ' << b << tail;
      }
    }
  }
}

TEST(Utf8, RandomBytesAgreeWithIcu) {
  const engine::base::CounterRng rng(1, "utf8");
  for (int i = 0; i < 20'000; ++i) {
    std::string text;
    // Mostly lead and continuation bytes, so that some of it is well-formed.
    for (int j = 0; j < 6; ++j) {
      const auto bits = rng.bits(static_cast<std::uint64_t>(8 * i + j));
      text.push_back(static_cast<char>(bits % 3 == 0 ? 0x80 + bits / 3 % 64 : bits / 3 % 256));
    }
    ASSERT_EQ(first_invalid_utf8(text), icu_first_invalid(text));
  }
}

TEST(Utf8, CharactersOfAllLengths) {
  const std::string text = "a\xC3\xA9\xE4\xBD\xA0\xF0\x9F\x98\x80";
  EXPECT_EQ(count_characters(text), 4);
  EXPECT_EQ(character_at(text, 0).code, U'a');
  EXPECT_EQ(character_at(text, 1).code, U'\u00E9');
  EXPECT_EQ(character_at(text, 3).code, U'\u4F60');
  EXPECT_EQ(character_at(text, 6).code, U'\U0001F600');
  EXPECT_EQ(character_at(text, 6).bytes, 4u);
}

TEST(Utf8, ErrorNamesPlaceAndByte) {
  EXPECT_THAT(checks::refusal([] { engine::data::require_utf8("ab\xFFz", "FILE"); }),
              testing::HasSubstr("FILE: byte 2 is 0xff"));
}

TEST(Utf8, PlantedFaults) {
  // What a decoder that looks at lead bytes and counts alone lets through.
  for (const char* wrong : {"\xC0\x80", "\xE0\x80\x80", "\xF0\x80\x80\x80", "\xED\xA0\x80",
                            "\xF4\x90\x80\x80", "\xF8\x80\x80\x80", "\x80", "\xE4\xBD", "\xC3"}) {
    EXPECT_EQ(first_invalid_utf8(wrong), 0u) << wrong;
  }
}

}  // namespace
