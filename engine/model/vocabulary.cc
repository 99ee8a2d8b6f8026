#include "engine/model/vocabulary.h"

#include <algorithm>
#include <cassert>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace engine::model {

namespace {

constexpr std::int64_t kReserved = 256;

std::string base64(std::string_view bytes) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    const std::size_t n = std::min<std::size_t>(3, bytes.size() - i);
    std::uint32_t bits = 0;
    for (std::size_t j = 0; j < 3; ++j) {
      bits = bits << 8 | (j < n ? static_cast<unsigned char>(bytes[i + j]) : 0u);
    }
    for (std::size_t j = 0; j < 4; ++j) {
      text += j <= n ? kDigits[bits >> (18 - 6 * j) & 63] : '=';
    }
  }
  return text;
}

enum class Kind { kLetter, kHan, kDigit, kOther };

// Of the character that begins with this byte; the text has letters of one and two bytes, and Han.
Kind kind_of(unsigned char byte) {
  if (byte >= 0xE4 && byte <= 0xE9) return Kind::kHan;
  if (byte >= 0xC2 && byte <= 0xDF) return Kind::kLetter;
  if ((byte | 0x20) >= 'a' && (byte | 0x20) <= 'z') return Kind::kLetter;
  return byte >= '0' && byte <= '9' ? Kind::kDigit : Kind::kOther;
}

// Words with the space before them, runs of Han; a join across their borders could never be used,
// because the pattern of the release cuts there. Nothing is to be learned from the rest.
std::map<std::string, std::int64_t> words_of(std::string_view text) {
  std::map<std::string, std::int64_t> words;
  for (std::size_t at = 0; at < text.size();) {
    std::size_t begin = at;
    if (text[at] == ' ' && at + 1 < text.size()) ++at;
    const Kind kind = kind_of(static_cast<unsigned char>(text[at]));
    if (kind != Kind::kLetter) begin = at;
    const auto goes_on = [&] {
      const auto byte = static_cast<unsigned char>(text[at]);
      return (byte & 0xC0) == 0x80 || (kind != Kind::kOther && kind_of(byte) == kind);
    };
    ++at;
    while (at < text.size() && goes_on()) ++at;
    if (kind == Kind::kLetter || kind == Kind::kHan) {
      ++words[std::string(text.substr(begin, at - begin))];
    }
  }
  return words;
}

class Learner {
 public:
  explicit Learner(std::size_t most) : most_(most) {
    for (int byte = 0; byte < 256; ++byte) add(std::string(1, static_cast<char>(byte)));
  }

  bool full() const { return tokens_.size() == most_; }
  const std::vector<std::string>& tokens() const { return tokens_; }

  // The id of these bytes, which are a new token if they were none.
  int add(const std::string& bytes) {
    const auto [at, is_new] = ids_.emplace(bytes, static_cast<int>(tokens_.size()));
    if (is_new) tokens_.push_back(bytes);
    return at->second;
  }

  void learn(std::string_view text) {
    struct Word {
      std::vector<int> ids;
      std::int64_t count = 0;
    };
    std::vector<Word> words;
    for (const auto& [word, count] : words_of(text)) {
      words.push_back({{}, count});
      for (const char c : word) words.back().ids.push_back(static_cast<unsigned char>(c));
    }
    // Pairs of the words as they stand; a join changes those of the words it happens in.
    std::map<std::pair<int, int>, std::int64_t> counts;
    const auto count = [&](const Word& word, std::int64_t times) {
      for (std::size_t i = 0; i + 1 < word.ids.size(); ++i) {
        const auto at = counts.try_emplace({word.ids[i], word.ids[i + 1]}).first;
        at->second += times;
        if (at->second == 0) counts.erase(at);
      }
    };
    for (const Word& word : words) count(word, word.count);
    while (!full() && !counts.empty()) {
      // The map is in order of the ranks: the first of the most frequent stays.
      auto best = counts.begin();
      for (auto pair = counts.begin(); pair != counts.end(); ++pair) {
        if (pair->second > best->second) best = pair;
      }
      const auto [left, right] = best->first;
      const int joined = add(tokens_[left] + tokens_[right]);
      const int both[] = {left, right};
      for (Word& word : words) {
        if (std::search(word.ids.begin(), word.ids.end(), both, both + 2) == word.ids.end())
          continue;
        count(word, -word.count);
        join(word.ids, left, right, joined);
        count(word, word.count);
      }
    }
  }

 private:
  static void join(std::vector<int>& ids, int left, int right, int joined) {
    std::size_t kept = 0;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const bool pair = i + 1 < ids.size() && ids[i] == left && ids[i + 1] == right;
      ids[kept++] = pair ? joined : ids[i];
      if (pair) ++i;
    }
    ids.resize(kept);
  }

  std::size_t most_;
  std::vector<std::string> tokens_;
  std::unordered_map<std::string, int> ids_;
};

void fill_with_groups(Learner& learner) {
  int groups = 26;
  for (int length = 2; length <= 4; ++length) {
    groups *= 26;
    for (int i = 0; i < groups && !learner.full(); ++i) {
      std::string group;
      for (int j = 0, rest = i; j < length; ++j, rest /= 26) {
        group.insert(group.begin(), static_cast<char>('a' + rest % 26));
      }
      learner.add(group);
    }
  }
}

}  // namespace

std::string vocabulary_file(std::int64_t vocabulary) {
  assert(vocabulary >= 256 + kReserved);
  Learner learner(static_cast<std::size_t>(vocabulary - kReserved));
  learner.learn(kVocabularyText);
  fill_with_groups(learner);
  assert(learner.full());
  std::string text;
  for (std::size_t rank = 0; rank < learner.tokens().size(); ++rank) {
    text += base64(learner.tokens()[rank]) + ' ' + std::to_string(rank) + '\n';
  }
  return text;
}

std::string tokenizer_config_json(std::int64_t vocabulary) {
  using Json = nlohmann::ordered_json;
  const std::int64_t first = vocabulary - kReserved;
  // The media tokens of the release, 18 ... 21, stay unnamed: nothing here makes them.
  const std::pair<std::int64_t, const char*> names[] = {
      {0, "[BOS]"},     {1, "[EOS]"},   {2, "<|end_of_msg|>"}, {3, "<|open|>"},
      {4, "<|close|>"}, {5, "<|sep|>"}, {254, "[UNK]"},        {255, "[PAD]"}};
  Json added = Json::object();
  for (const auto& [place, name] : names) {
    added[std::to_string(first + place)] = {{"content", name},      {"lstrip", false},
                                            {"normalized", false},  {"rstrip", false},
                                            {"single_word", false}, {"special", true}};
  }
  const Json whole = {{"added_tokens_decoder", std::move(added)},
                      {"bos_token", "[BOS]"},
                      {"eos_token", "[EOS]"},
                      {"unk_token", "[UNK]"},
                      {"pad_token", "[PAD]"},
                      {"clean_up_tokenization_spaces", false},
                      {"tokenizer_class", "TikTokenTokenizer"}};
  return whole.dump(2) + '\n';
}

}  // namespace engine::model
