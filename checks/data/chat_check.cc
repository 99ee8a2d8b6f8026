#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "checks/data/tokenizer_folder.h"
#include "engine/data/chat.h"

namespace {

using checks::refusal;
using checks::TokenizerFolder;
using engine::data::ChatForm;
using engine::data::Exchange;
using engine::data::Tokenizer;
using testing::AllOf;
using testing::HasSubstr;

std::string why_not(const TokenizerFolder& folder) {
  return refusal([&] {
    const Tokenizer tokenizer = folder.open();
    ChatForm(tokenizer, folder.path());
  });
}

TEST(Chat, IsTheFormOfTheRelease) {
  TokenizerFolder folder;
  const Tokenizer tokenizer = folder.open();
  const Exchange made = ChatForm(tokenizer, folder.path()).exchange("Why?", "Because.", "text");
  const std::string opening =
      R"(<|open|>message role="user"<|sep|>Why?<|close|>message<|sep|><|end_of_msg|>)"
      R"(<|open|>message role="assistant"<|sep|><|open|>think<|sep|><|close|>think<|sep|>)"
      R"(<|open|>response<|sep|>)";
  const std::string answer =
      "Because.<|close|>response<|sep|><|close|>message<|sep|><|end_of_msg|>";
  EXPECT_EQ(tokenizer.decode(made.ids), opening + answer);
  EXPECT_EQ(made.ids, tokenizer.encode_markup(opening + answer, "text"));
  std::vector<std::int32_t> trained;
  for (std::size_t i = 0; i < made.ids.size(); ++i) {
    if (made.trained[i]) trained.push_back(made.ids[i]);
  }
  EXPECT_EQ(trained, tokenizer.encode_markup(answer, "text"));
  EXPECT_EQ(made.trained.size(), made.ids.size());
}

// Marks that somebody typed, in question or answer, are letters.
TEST(Chat, TypedMarksAreText) {
  TokenizerFolder folder;
  const Tokenizer tokenizer = folder.open();
  const ChatForm form(tokenizer, folder.path());
  const auto controls = [&](const Exchange& made) {
    return std::count_if(made.ids.begin(), made.ids.end(),
                         [&](std::int32_t id) { return id >= folder.first_reserved(); });
  };
  const Exchange plain = form.exchange("a", "b", "text");
  const Exchange typed = form.exchange("<|end_of_msg|><|open|>", "[EOS]<|close|>", "text");
  EXPECT_EQ(controls(typed), controls(plain));
  EXPECT_EQ(controls(plain), 5 + 13) << "marks of question and answer";
  EXPECT_GT(typed.ids.size(), plain.ids.size());
}

TEST(Chat, I4_TheFormIsChosenByTheConfigAndAWrongPairIsRefused) {
  EXPECT_EQ(why_not(TokenizerFolder()), "");
  {
    TokenizerFolder folder;  // K2's tokenizer under K3's configuration
    folder.edit("tokenizer_config.json", "<|end_of_msg|>", "<|im_end|>");
    EXPECT_THAT(why_not(folder), AllOf(HasSubstr("tokenizer_config.json"), HasSubstr("id 7938"),
                                       HasSubstr("<|im_end|>"), HasSubstr("<|end_of_msg|>")));
  }
  {
    TokenizerFolder folder;  // K3's tokenizer under K2's configuration
    folder.edit("config.json", "kimi_k3", "kimi_k2");
    EXPECT_THAT(why_not(folder),
                AllOf(HasSubstr("config.json"), HasSubstr("kimi_k2"), HasSubstr("kimi_k3")));
  }
  {
    TokenizerFolder folder;  // messages would end with another id than generation does
    folder.edit("config.json", "\"eos_token_id\": 7938", "\"eos_token_id\": 7937");
    EXPECT_THAT(why_not(folder), AllOf(HasSubstr("eos_token_id is 7937"), HasSubstr("7938")));
  }
  {
    TokenizerFolder folder;
    folder.edit("config.json", "\"eos_token_id\": 7938", "\"eos_token_id\": [7937, 7938]");
    EXPECT_EQ(why_not(folder), "");
  }
  for (const char* mark : {"<|open|>", "<|close|>", "<|sep|>"}) {
    TokenizerFolder folder;
    folder.edit("tokenizer_config.json", mark, "<|other|>");
    EXPECT_THAT(why_not(folder), AllOf(HasSubstr(mark), HasSubstr("<|other|>")));
  }
}

TEST(Chat, PlantedFaults) {
  TokenizerFolder folder;
  const Tokenizer tokenizer = folder.open();
  const ChatForm form(tokenizer, folder.path());
  const Exchange right = form.exchange("Why?", "Because.", "text");
  // A form that trains everything, or the question, would show here.
  const auto trained = std::count(right.trained.begin(), right.trained.end(), 1);
  EXPECT_LT(trained, std::ssize(right.ids));
  EXPECT_EQ(right.trained.front(), 0);
  EXPECT_EQ(right.trained.back(), 1);
  // Encoding the whole string at once, without segments, joins across marks that are text.
  EXPECT_NE(tokenizer.encode(tokenizer.decode(right.ids), "text"), right.ids);
}

}  // namespace
