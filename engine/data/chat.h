#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>
#include <vector>

#include "engine/data/tokenizer.h"

namespace engine::data {

// One question and its answer as ids.
struct Exchange {
  std::vector<std::int32_t> ids;
  // [id] 1: trained to be predicted. The answer's text and what closes it, up to <|end_of_msg|>;
  // not the question, nor the marks that open the answer, nor the empty thinking.
  std::vector<std::uint8_t> trained;
};

// The chat form of Kimi K3:
//
//   <|open|>message role="user"<|sep|>QUESTION<|close|>message<|sep|><|end_of_msg|>
//   <|open|>message role="assistant"<|sep|><|open|>think<|sep|><|close|>think<|sep|>
//   <|open|>response<|sep|>ANSWER<|close|>response<|sep|><|close|>message<|sep|><|end_of_msg|>
//
// (without the line breaks). Segments are encoded one by one and only the marks become control
// ids: a question that spells <|end_of_msg|> asks about it and ends nothing.
//
// Source    docs/model.md section 13
class ChatForm {
 public:
  // The form is chosen by the checkpoint's config.json and must be that of its tokenizer.
  // Errors    Error naming the file and both sides: a model_type that has another form, marks that
  //           are not at their ids (K2 has <|im_end|> where K3 has <|end_of_msg|>), an eos_token_id
  //           without that of <|end_of_msg|>
  ChatForm(const Tokenizer& tokenizer, const std::filesystem::path& folder);

  // Errors    Error naming `where`: text that is not UTF-8
  Exchange exchange(std::string_view question, std::string_view answer,
                    std::string_view where) const;

 private:
  const Tokenizer* tokenizer_;
  std::int32_t end_of_message_, open_, close_, separator_;
};

}  // namespace engine::data
