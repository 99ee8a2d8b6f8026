#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "checks/data/pieces_by_icu.h"
#include "checks/data/tokenizer_folder.h"
#include "engine/data/ids.h"
#include "engine/data/tokenizer.h"

namespace {

using checks::refusal;
using checks::TokenizerFolder;
using engine::data::SpecialTokens;
using engine::data::Tokenizer;
using testing::AllOf;
using testing::HasSubstr;
using Ids = std::vector<std::int32_t>;

const std::string kReleasedNames = engine::model::tokenizer_config_json(163840);

TEST(SpecialTokens, I2_AReservedNameContainsItsOwnId) {
  const SpecialTokens special(kReleasedNames, "FILE", 163584);
  EXPECT_EQ(special.find("<|reserved_token_163600|>"), 163600);
  EXPECT_EQ(special.name(163600), "<|reserved_token_163600|>");
  EXPECT_EQ(special.find("<|reserved_token_16|>"), -1) << "counted from the first reserved id";
  EXPECT_EQ(special.find("<|reserved_token_163586|>"), -1) << "that slot has a name";
  EXPECT_EQ(special.find("[BOS]"), 163584);
  EXPECT_EQ(special.find("<|end_of_msg|>"), 163586);
  EXPECT_EQ(special.find("[PAD]"), 163839);

  TokenizerFolder folder;
  const std::int32_t id = folder.first_reserved() + 16;
  const std::string name = fmt::format("<|reserved_token_{}|>", id);
  const Tokenizer tokenizer = folder.open();
  EXPECT_EQ(tokenizer.encode_markup(name, "text"), Ids{id});
  EXPECT_GT(tokenizer.encode(name, "text").size(), 4u) << "ordinary text is letters";
  EXPECT_EQ(tokenizer.decode(tokenizer.encode(name, "text")), name);
}

TEST(SpecialTokens, I6_Exactly256AndNoIdBehindThem) {
  const SpecialTokens special(kReleasedNames, "FILE", 163584);
  EXPECT_EQ(special.end(), 163840);
  EXPECT_EQ(special.find("<|reserved_token_163839|>"), -1) << "[PAD]";
  for (const int id : {163840, 163841}) {
    EXPECT_EQ(special.find(fmt::format("<|reserved_token_{}|>", id)), -1);
    std::string config = kReleasedNames;
    config.replace(config.find("\"163839\""), 8, fmt::format("\"{}\"", id));
    EXPECT_THAT(refusal([&] { SpecialTokens(config, "FILE", 163584); }),
                AllOf(HasSubstr(std::to_string(id)), HasSubstr("163584 ... 163839")));
    EXPECT_THAT(refusal([&] { engine::data::parse_ids(fmt::format("5 {}", id), 163840, "data"); }),
                AllOf(HasSubstr("data: id 1"), HasSubstr("0 ... 163839")));
  }
  // Ranks and reserved ids must be the vocabulary that config.json states.
  TokenizerFolder folder(512);
  for (const int vocabulary : {510, 511, 513, 514}) {
    EXPECT_THAT(refusal([&] { Tokenizer(folder.path(), vocabulary); }),
                AllOf(HasSubstr("256 ranks and 256 reserved ids make 512"),
                      HasSubstr(fmt::format("vocab_size {}", vocabulary))));
  }
  const Tokenizer tokenizer = folder.open();
  EXPECT_EQ(tokenizer.decode(Ids{511}), "[PAD]");
  for (const std::int32_t id : {512, 513, -1}) {
    EXPECT_THAT(refusal([&] {
                  tokenizer.decode(Ids{65, id});
                }),
                AllOf(HasSubstr("id 1 is"), HasSubstr("0 ... 511")));
  }
}

TEST(SpecialTokens, WrongNamesAreRefused) {
  const auto why = [](const std::string& decoder) {
    return refusal([&] {
      SpecialTokens(fmt::format(R"({{"added_tokens_decoder": {}}})", decoder), "FILE", 1000);
    });
  };
  EXPECT_EQ(why("{}"), "");
  EXPECT_EQ(why(R"({"1000": {"content": "x"}, "1255": {"content": "y"}})"), "");
  EXPECT_THAT(why(R"({"999": {"content": "x"}})"), AllOf(HasSubstr("999"), HasSubstr("1000")));
  EXPECT_THAT(why(R"({"1256": {"content": "x"}})"), HasSubstr("1000 ... 1255"));
  for (const char* key : {"", "01000", "+1000", "1e3", "1000.0", "-1", "99999999999999"}) {
    EXPECT_THAT(why(fmt::format(R"({{"{}": {{"content": "x"}}}})", key)), HasSubstr("FILE")) << key;
  }
  EXPECT_THAT(why(R"({"1000": {"content": ""}})"), HasSubstr("empty"));
  EXPECT_THAT(why(R"({"1000": {"content": 5}})"), HasSubstr("not a string"));
  EXPECT_THAT(why(R"({"1000": {}})"), HasSubstr("content"));
  EXPECT_THAT(why(R"({"1000": "x"})"), HasSubstr("not an object"));
  EXPECT_THAT(why(R"({"1000": {"content": "x"}, "1001": {"content": "x"}})"),
              AllOf(HasSubstr("1000"), HasSubstr("1001"), HasSubstr("both")));
  EXPECT_THAT(why(R"({"1000": {"content": "x"}, "1000": {"content": "y"}})"), HasSubstr("twice"));
  EXPECT_THAT(why(R"({"1000": {"content": "<|reserved_token_1001|>"}})"), HasSubstr("1000"));
  EXPECT_THAT(why("[]"), HasSubstr("not an object"));
  EXPECT_THAT(refusal([] { SpecialTokens("{}", "FILE", 1000); }),
              HasSubstr("added_tokens_decoder"));
  EXPECT_THAT(refusal([] { SpecialTokens("{", "FILE", 1000); }), HasSubstr("not valid JSON"));
  const std::string deep(100, '[');
  EXPECT_THAT(why(deep), HasSubstr("deeper"));
}

TEST(SpecialTokens, TheFirstNameAndOfTwoTheLonger) {
  const SpecialTokens special(
      R"({"added_tokens_decoder": {"0": {"content": "<a>"}, "1": {"content": "<a>b"}}})", "FILE",
      0);
  const auto found = special.next("x<a>b<a>", 0);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->id, 1);
  EXPECT_EQ(found->begin, 1u);
  EXPECT_EQ(found->end, 5u);
  EXPECT_EQ(special.next("x<a>b<a>", 5)->id, 0);
  EXPECT_FALSE(special.next("x<a b", 0));
}

TEST(Tokenizer, EveryTextComesBackByteByByte) {
  for (const std::int64_t vocabulary : {512, 8192}) {
    TokenizerFolder folder(vocabulary);
    const Tokenizer tokenizer = folder.open();
    for (const std::string& text : checks::odd_texts(7, 1500)) {
      ASSERT_EQ(tokenizer.decode(tokenizer.encode(text, "text")), text);
      ASSERT_EQ(tokenizer.decode(tokenizer.encode_markup(text, "text")), text);
    }
  }
}

TEST(Tokenizer, MarkupIsIdsBetweenSegments) {
  TokenizerFolder folder;
  const Tokenizer tokenizer = folder.open();
  const auto part = [&](const char* text) { return tokenizer.encode(text, "text"); };
  Ids want{folder.first_reserved() + 3};
  for (const auto& [text, id] : {std::pair{"message", 5}, {"the  ", 4}, {" the", 2}}) {
    for (const std::int32_t one : part(text)) want.push_back(one);
    want.push_back(folder.first_reserved() + id);
  }
  EXPECT_EQ(
      tokenizer.encode_markup("<|open|>message<|sep|>the  <|close|> the<|end_of_msg|>", "text"),
      want);
  EXPECT_EQ(tokenizer.encode_markup("[BOS][EOS]", "text"),
            (Ids{folder.first_reserved(), folder.first_reserved() + 1}));
  EXPECT_TRUE(tokenizer.encode("", "text").empty());
}

// Ten times what is read at a time, in one run.
TEST(Tokenizer, MillionsOfEqualLetters) {
  TokenizerFolder folder;
  const Tokenizer tokenizer = folder.open();
  for (const char* letter : {"a", "A", " ", "\u4F60"}) {
    std::string text;
    for (int i = 0; i < 1'000'000; ++i) text += letter;
    EXPECT_EQ(tokenizer.decode(tokenizer.encode(text, "text")), text);
  }
}

// What the join of "aa" alone makes of a text that is cut before these characters.
Ids joined_pairs(const std::string& text, const std::set<std::size_t>& cuts) {
  Ids ids;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const bool pair = text.compare(at, 2, "aa") == 0 && !cuts.contains(at + 1);
    ids.push_back(pair ? 256 : text[at]);
    at += pair ? 1 : 0;
  }
  return ids;
}

// The cuts behind 25,000 characters of a run and behind 400,000 of a text are part of the ids. They
// divide a pair here, and so does a limit that divides theirs, somewhere before.
TEST(Tokenizer, LongTextsAreCutBeforeMatching) {
  TokenizerFolder folder(512);
  folder.write("tiktoken.model", checks::ranks_text(512) + "YWE= 256\n");
  folder.write("tokenizer_config.json", engine::model::tokenizer_config_json(513));
  const Tokenizer tokenizer(folder.path(), 513);
  const std::string letters(25'001 + 25'000, 'a');
  EXPECT_TRUE(tokenizer.encode(letters, "text") == joined_pairs(letters, {25'000, 50'000}));
  std::string run(30'001, 'a');
  run[0] = 'b';
  const Ids of_run = tokenizer.encode(run, "text");
  EXPECT_TRUE(of_run == joined_pairs(run, {25'000}));
  for (const std::size_t other : {2'500, 5'000, 24'999, 25'001}) {
    EXPECT_FALSE(of_run == joined_pairs(run, {other})) << other;
  }
  std::string words;
  while (words.size() < 401'000) words += "aa ";
  const Ids of_words = tokenizer.encode(words, "text");
  EXPECT_TRUE(of_words == joined_pairs(words, {400'000}));
  for (const std::size_t other : {40'000, 399'999, 400'001}) {
    EXPECT_FALSE(of_words == joined_pairs(words, {other})) << other;
  }
}

TEST(Tokenizer, InvalidUtf8IsNamedWithItsOffset) {
  TokenizerFolder folder;
  const Tokenizer tokenizer = folder.open();
  EXPECT_THAT(refusal([&] { tokenizer.encode("abc\xC3(", "FILE"); }),
              AllOf(HasSubstr("FILE"), HasSubstr("byte 3 is 0xc3")));
  EXPECT_THAT(refusal([&] { tokenizer.encode_markup("<|sep|>\xFF", "FILE"); }),
              HasSubstr("byte 7 is 0xff"));
}

TEST(Tokenizer, MissingFilesAreNamedAndNothingStandsInForThem) {
  for (const char* name : {"tiktoken.model", "tokenizer_config.json"}) {
    TokenizerFolder folder;
    std::filesystem::remove(folder.path() / name);
    EXPECT_THAT(refusal([&] { folder.open(); }), HasSubstr(name));
  }
}

TEST(Tokenizer, PlantedFaults) {
  TokenizerFolder folder;
  const Tokenizer right = folder.open();
  // Without one of the joins it has learned, and with two of them exchanged.
  std::string ranks = folder.read("tiktoken.model");
  const auto line_of = [&](int rank) {
    const std::size_t end = ranks.find(fmt::format(" {}\n", rank));
    return ranks.substr(ranks.rfind('\n', end) + 1, end - ranks.rfind('\n', end) - 1);
  };
  const std::string the = line_of(right.encode(" the", "text").at(0));
  TokenizerFolder other;
  other.edit("tiktoken.model", "\n" + the + ' ',
             "\n////////////////////" + std::string(4, '/') + ' ');
  const Tokenizer without = other.open();
  EXPECT_NE(without.encode(" the the", "text"), right.encode(" the the", "text"));
  EXPECT_EQ(without.encode("b", "text"), right.encode("b", "text"));
}

}  // namespace
