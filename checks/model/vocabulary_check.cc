#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "engine/base/sha256.h"
#include "engine/data/pretokenizer.h"
#include "engine/data/ranks.h"
#include "engine/model/vocabulary.h"

namespace {

using engine::base::sha256_hex;
using engine::data::Ranks;
using engine::model::kVocabularyText;
using engine::model::tokenizer_config_json;
using engine::model::vocabulary_file;

// Whether every token behind the bytes is two tokens before it joined, in some way.
bool every_token_is_a_join(const Ranks& ranks) {
  for (std::int32_t rank = 256; rank < ranks.size(); ++rank) {
    const std::string_view token = ranks.bytes(rank);
    bool found = false;
    for (std::size_t cut = 1; cut < token.size(); ++cut) {
      const std::int32_t left = ranks.find(token.substr(0, cut));
      const std::int32_t right = ranks.find(token.substr(cut));
      found = found || (left >= 0 && right >= 0 && left < rank && right < rank);
    }
    if (!found) return false;
  }
  return true;
}

TEST(Vocabulary, KeepsItsBytes) {
  EXPECT_EQ(sha256_hex(vocabulary_file(512)),
            "e66088df4cdb28fbad3c55ac5a7ae741bc402e732ed948eb096a8ed6f852768f");
  EXPECT_EQ(sha256_hex(vocabulary_file(8192)),
            "0b3b7b69ed911f5dd83eea7be9f105afe0f7a6419f005ce34367d8a317874900");
}

TEST(Vocabulary, IsAVocabularyOfTheWantedSize) {
  for (const std::int64_t vocabulary : {512, 1000, 4096}) {
    const Ranks ranks(vocabulary_file(vocabulary), "FILE");
    EXPECT_EQ(ranks.size(), vocabulary - 256);
    for (int byte = 0; byte < 256; ++byte) {
      EXPECT_EQ(ranks.bytes(byte), std::string(1, static_cast<char>(byte)));
    }
    EXPECT_TRUE(every_token_is_a_join(ranks));
  }
  // The release's size takes groups of four letters.
  EXPECT_EQ(std::ranges::count(vocabulary_file(163'840), '\n'), 163'840 - 256);
  const std::string few = vocabulary_file(1000);
  EXPECT_TRUE(vocabulary_file(4096).starts_with(few)) << "a larger one begins with a smaller one";
}

// The joins are those that the released pattern lets happen: every word of the text with the space
// before it has become one token.
TEST(Vocabulary, HasLearnedItsText) {
  const Ranks ranks(vocabulary_file(4096), "FILE");
  const engine::data::Pretokenizer released(engine::data::kReleasedPattern);
  int words = 0;
  released.split(kVocabularyText, [&](std::string_view piece) {
    if (piece.size() < 2 || piece[0] != ' ' || piece[1] < 'A') return;
    ++words;
    EXPECT_GE(ranks.find(piece), 0) << piece;
  });
  EXPECT_GT(words, 1000);
}

TEST(Vocabulary, ControlTokensAreTheReleases) {
  const auto config = nlohmann::json::parse(tokenizer_config_json(163840));
  const auto name = [&](const char* id) {
    return config.at("added_tokens_decoder").at(id).at("content").get<std::string>();
  };
  EXPECT_EQ(name("163584"), "[BOS]");
  EXPECT_EQ(name("163585"), "[EOS]");
  EXPECT_EQ(name("163586"), "<|end_of_msg|>");
  EXPECT_EQ(name("163587"), "<|open|>");
  EXPECT_EQ(name("163588"), "<|close|>");
  EXPECT_EQ(name("163589"), "<|sep|>");
  EXPECT_EQ(name("163838"), "[UNK]");
  EXPECT_EQ(name("163839"), "[PAD]");
}

TEST(Vocabulary, PlantedFaults) {
  // A token that no joins lead to would be text that nothing else is made of.
  EXPECT_FALSE(every_token_is_a_join(Ranks(vocabulary_file(512) + "cXp4 256\n", "FILE")));
  EXPECT_TRUE(every_token_is_a_join(Ranks(vocabulary_file(512) + "cXo= 256\n", "FILE")));
}

}  // namespace
