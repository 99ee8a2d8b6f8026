#pragma once

#include <cstdint>
#include <string>

namespace engine::model {

// The tokenizer files of a checkpoint that make-model writes: small, but as real as the weights.
//
// tiktoken.model has vocabulary - 256 ranks: the 256 bytes in their order, then byte pairs joined
// as often as there is room, learned from a text written for this project (the most frequent pair
// first, of equal ones the one with the lowest ranks); when every word of it is one token, the rest
// are the two-, three- and four-letter groups of a ... z in their order. tokenizer_config.json names the
// control tokens in the release's order.
//
// Accuracy  bits: a function of `vocabulary` alone
std::string vocabulary_file(std::int64_t vocabulary);
std::string tokenizer_config_json(std::int64_t vocabulary);

// English, Turkish and Chinese; engine/model/vocabulary_text.cc.
extern const char* const kVocabularyText;

}  // namespace engine::model
