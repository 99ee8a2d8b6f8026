#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/data/pretokenizer.h"
#include "engine/data/ranks.h"
#include "engine/data/special_tokens.h"

namespace engine::data {

// The checkpoint's own tokenizer, from its tiktoken.model and tokenizer_config.json; there is no
// other one to fall back to.
//
//   text -> slices -> pieces -> byte pairs joined by rank -> ids
//
// Every id sequence of encode() decodes to the text it was made of, byte by byte.
// Threads   one call at a time for one object
class Tokenizer {
 public:
  // Errors    Error naming file and line or entry: a file that is missing or not as ranks.h and
  //           special_tokens.h want it; ranks and 256 reserved ids that do not make `vocabulary`,
  //           the vocab_size of the checkpoint's config.json
  Tokenizer(const std::filesystem::path& folder, std::int64_t vocabulary);

  // Ordinary text, whatever it says: a control token's name in it is the letters of that name.
  // Errors    Error naming `where` and the byte that is not UTF-8
  std::vector<std::int32_t> encode(std::string_view text, std::string_view where) const;

  // Markup: the names of control tokens become their ids, what stands between them is encoded
  // segment by segment.
  std::vector<std::int32_t> encode_markup(std::string_view text, std::string_view where) const;

  // The bytes of the ids, a control token's being its name. Ids that were cut between the bytes of
  // a character give what is no UTF-8.
  // Errors    Error naming the place of an id that is not in the vocabulary
  std::string decode(std::span<const std::int32_t> ids) const;

  std::int32_t vocabulary() const { return special_.end(); }
  const SpecialTokens& special() const { return special_; }
  const std::filesystem::path& folder() const { return folder_; }
  // Of the files as they were read.
  const std::string& ranks_sha256() const { return ranks_sha256_; }
  const std::string& config_sha256() const { return config_sha256_; }

 private:
  struct Files;
  Tokenizer(const std::filesystem::path& folder, std::int64_t vocabulary, const Files& files);
  void append(std::string_view segment, std::vector<std::int32_t>& ids) const;

  std::filesystem::path folder_;
  Ranks ranks_;
  SpecialTokens special_;
  Pretokenizer pretokenizer_;
  std::string ranks_sha256_;
  std::string config_sha256_;
};

}  // namespace engine::data
