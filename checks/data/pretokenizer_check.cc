#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "checks/data/pieces_by_icu.h"
#include "checks/data/tokenizer_folder.h"
#include "engine/data/pretokenizer.h"

namespace {

using checks::PieceFault;
using checks::pieces_by_icu;
using checks::refusal;
using engine::data::kReleasedPattern;
using engine::data::pcre2_pattern;
using engine::data::Pretokenizer;
using testing::HasSubstr;
using Pieces = std::vector<std::string>;

Pieces split(const Pretokenizer& pretokenizer, const std::string& text) {
  Pieces pieces;
  pretokenizer.split(text, [&](std::string_view piece) { pieces.emplace_back(piece); });
  return pieces;
}

TEST(Pretokenizer, CutsByTheReleasedPattern) {
  const Pretokenizer released(kReleasedPattern);
  const auto is = [&](const char* text, const Pieces& want) {
    EXPECT_EQ(split(released, text), want);
  };
  is("", {});
  is("Hello world", {"Hello", " world"});
  is("\u4F60\u597D\u3002\u4E16\u754Cabc", {"\u4F60\u597D", "\u3002", "\u4E16\u754C", "abc"});
  is("it's HE'LL don't", {"it's", " HE'LL", " don't"});
  is("12345678", {"123", "456", "78"});
  is("a  b\n\n  c  ", {"a", " ", " b", "\n\n", " ", " c", "  "});
  is("camelCaseXMLFile", {"camel", "Case", "XMLFile"});
  is("\u0130stanbul'a (g\u00FCzel)!", {"\u0130stanbul", "'a", " (", "g\u00FCzel", ")!"});
}

TEST(Pretokenizer, AgreesWithAProgramOnIcu) {
  const Pretokenizer released(kReleasedPattern);
  for (const std::string& text : checks::odd_texts(1, 6000)) {
    ASSERT_EQ(split(released, text), pieces_by_icu(text)) << text;
  }
}

TEST(Pretokenizer, AgreesOnEveryCharacter) {
  const Pretokenizer released(kReleasedPattern);
  const auto all = checks::one_of_each_character();
  ASSERT_GT(all.size(), 40'000u);
  for (const std::string& c : all) {
    const std::string text = c + "a" + c + "\u4F60" + c + c + " " + c + "7" + c + "'s" + c;
    ASSERT_EQ(split(released, text), pieces_by_icu(text)) << c;
  }
}

// Each letter may have to be given back; the machine's stack of a few KiB would not hold them.
TEST(Pretokenizer, LongRunsOfLettersDoNotOverflow) {
  const Pretokenizer released(kReleasedPattern);
  for (const char* letter : {"a", "A", "\u00E9", "\u4F60", "\u05D0", " ", "!", "\u0301"}) {
    std::string text;
    for (int i = 0; i < 200'000; ++i) text += letter;
    EXPECT_EQ(split(released, text).size(), 1u) << letter;
  }
}

TEST(Pretokenizer, OtherDialectsAreTranslatedOrRefused) {
  EXPECT_EQ(pcre2_pattern(R"(\p{Han}+|[\p{L}&&[^\p{Han}x]]*\.)"),
            R"(\p{sc:Han}+|(?:(?![\p{sc:Han}x])[\p{L}])*\.)");
  EXPECT_THAT(pcre2_pattern(R"([^\s\p{L}])"), HasSubstr(R"([^\x{9}-\x{d}\x{20})"));
  EXPECT_THAT(pcre2_pattern(R"(\S+)"), HasSubstr(R"([^\x{9})"));
  for (const char* pattern : {R"([a&&b])", R"([^a&&[^b]])", R"([a&&[b]])", R"([a&&[^b]c])",
                              R"([a[b]])", R"([\S])", R"([a)", R"(\pL)", R"(\p{L)", "\\"}) {
    EXPECT_THAT(refusal([&] { pcre2_pattern(pattern); }), HasSubstr("byte")) << pattern;
  }
  EXPECT_THAT(refusal([] { Pretokenizer("a(b"); }), HasSubstr("byte"));
  EXPECT_THAT(refusal([] { Pretokenizer(R"(\p{Nonsense})"); }), HasSubstr("Nonsense"));
  EXPECT_THAT(refusal([] { split(Pretokenizer("[ab]+"), "abcab"); }), HasSubstr("byte 2 of 5"));
  EXPECT_THAT(refusal([] { split(Pretokenizer("b*"), "ab"); }), HasSubstr("byte 0 of 2"));
}

TEST(Pretokenizer, PlantedFaults) {
  const Pretokenizer released(kReleasedPattern);
  std::vector<std::string> texts = checks::odd_texts(1, 6000);
  const auto differing = [&](const auto& other) {
    int count = 0;
    for (const std::string& text : texts) count += split(released, text) != other(text);
    return count;
  };
  for (int fault = 1; fault <= static_cast<int>(PieceFault::kSpacesKeepTheLast); ++fault) {
    EXPECT_GT(differing([&](const std::string& text) {
                return pieces_by_icu(text, static_cast<PieceFault>(fault));
              }),
              0)
        << fault;
  }
  // An alternative of the pattern left out or changed.
  const auto with = [](const std::string& from, const std::string& to) {
    std::string pattern = kReleasedPattern;
    const std::size_t at = pattern.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return Pretokenizer(pattern.replace(at, from.size(), to));
  };
  for (const auto& [from, to] :
       std::vector<std::pair<std::string, std::string>>{{R"([\p{Han}]+|)", ""},
                                                        {R"(&&[^\p{Han}])", ""},
                                                        {R"(\p{Lm}\p{Lo}\p{M})", R"(\p{Lm}\p{Lo})"},
                                                        {R"({1,3})", "+"},
                                                        {R"(|\s+(?!\S))", ""},
                                                        {R"([\r\n]*)", ""},
                                                        {R"((?i:)", "(?:"}}) {
    const Pretokenizer other = with(from, to);
    EXPECT_GT(differing([&](const std::string& text) {
                Pieces pieces;
                refusal([&] { pieces = split(other, text); });  // a gap is an error
                return pieces;
              }),
              0)
        << from;
  }
}

}  // namespace
