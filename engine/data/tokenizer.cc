#include "engine/data/tokenizer.h"

#include "engine/base/error.h"
#include "engine/base/sha256.h"
#include "engine/data/bpe.h"
#include "engine/data/slices.h"
#include "engine/data/utf8.h"
#include "engine/store/file.h"

namespace engine::data {

using base::Error;

namespace {

// The released tiktoken.model has 2.8 MB.
constexpr std::uint64_t kMostBytes = 64'000'000;

}  // namespace

struct Tokenizer::Files {
  std::filesystem::path ranks_path;
  std::filesystem::path config_path;
  std::string ranks;
  std::string config;

  explicit Files(const std::filesystem::path& folder)
      : ranks_path(folder / "tiktoken.model"),
        config_path(folder / "tokenizer_config.json"),
        ranks(store::read_text(ranks_path, kMostBytes)),
        config(store::read_text(config_path, kMostBytes)) {}
};

Tokenizer::Tokenizer(const std::filesystem::path& folder, std::int64_t vocabulary)
    : Tokenizer(folder, vocabulary, Files(folder)) {}

Tokenizer::Tokenizer(const std::filesystem::path& folder, std::int64_t vocabulary,
                     const Files& files)
    : folder_(folder),
      ranks_(files.ranks, files.ranks_path.string()),
      special_(files.config, files.config_path.string(), ranks_.size()),
      pretokenizer_(kReleasedPattern),
      ranks_sha256_(base::sha256_hex(files.ranks)),
      config_sha256_(base::sha256_hex(files.config)) {
  if (special_.end() != vocabulary) {
    throw Error("{}: {} ranks and {} reserved ids make {}, but config.json has vocab_size {}",
                files.ranks_path.string(), ranks_.size(), SpecialTokens::kCount, special_.end(),
                vocabulary);
  }
}

void Tokenizer::append(std::string_view segment, std::vector<std::int32_t>& ids) const {
  for_each_slice(segment, {}, [&](std::string_view slice) {
    pretokenizer_.split(slice, [&](std::string_view piece) { encode_piece(ranks_, piece, ids); });
  });
}

std::vector<std::int32_t> Tokenizer::encode(std::string_view text, std::string_view where) const {
  require_utf8(text, where);
  std::vector<std::int32_t> ids;
  append(text, ids);
  return ids;
}

std::vector<std::int32_t> Tokenizer::encode_markup(std::string_view text,
                                                   std::string_view where) const {
  require_utf8(text, where);
  std::vector<std::int32_t> ids;
  std::size_t at = 0;
  while (const auto found = special_.next(text, at)) {
    append(text.substr(at, found->begin - at), ids);
    ids.push_back(found->id);
    at = found->end;
  }
  append(text.substr(at), ids);
  return ids;
}

std::string Tokenizer::decode(std::span<const std::int32_t> ids) const {
  std::string text;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const std::int32_t id = ids[i];
    if (id < 0 || id >= vocabulary()) {
      throw Error("id {} is {}: the vocabulary is 0 ... {}", i, id, vocabulary() - 1);
    }
    text += id < ranks_.size() ? ranks_.bytes(id) : std::string_view(special_.name(id));
  }
  return text;
}

}  // namespace engine::data
