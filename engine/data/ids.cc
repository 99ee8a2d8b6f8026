#include "engine/data/ids.h"

#include <algorithm>
#include <optional>
#include <span>

#include "engine/base/decimal.h"
#include "engine/base/error.h"
#include "engine/store/file.h"

namespace engine::data {
namespace {

constexpr std::string_view kBetween = ", \t\r\n";
// Longer than any id that a vocabulary has, zeros in front included.
constexpr std::size_t kLongestWord = 40;
constexpr std::size_t kBlockBytes = 1 << 16;

// Text that comes in blocks; a word that a block's end cuts waits for the next block.
class IdParser {
 public:
  IdParser(std::int64_t vocabulary, const std::string& where)
      : vocabulary_(vocabulary), where_(where) {}

  void add(std::string_view block) {
    for (std::size_t at = 0; at < block.size();) {
      const std::size_t end = std::min(block.find_first_of(kBetween, at), block.size());
      // One byte more than is allowed is enough to refuse the word, however long it is.
      word_ += block.substr(at, std::min(end - at, kLongestWord + 1));
      if (word_.size() > kLongestWord) refuse("not an integer");
      if (end == block.size()) break;
      take_word();
      for (at = end; at < block.size() && kBetween.find(block[at]) != kBetween.npos; ++at) {
        if (block[at] == ',') take_comma(done_ + at);
      }
      begin_ = done_ + at;
    }
    done_ += block.size();
  }

  void finish() {
    take_word();
    if (after_comma_) {
      throw base::Error("{}: nothing behind the last comma, after {} ids", where_, ids_.size());
    }
  }

  std::vector<std::int32_t>& ids() { return ids_; }

 private:
  void take_word() {
    if (word_.empty()) return;
    const std::optional<std::int64_t> id = base::parse_decimal<std::int64_t>(word_);
    if (!id) refuse("not an integer");
    if (*id < 0 || *id >= vocabulary_) {
      throw base::Error("{}: id {} at byte {} is {}: the vocabulary is 0 ... {}", where_,
                        ids_.size(), begin_, *id, vocabulary_ - 1);
    }
    ids_.push_back(static_cast<std::int32_t>(*id));
    word_.clear();
    after_comma_ = false;
  }

  // Where an id was lost, what follows would be read as its neighbour's successor.
  void take_comma(std::size_t at) {
    if (after_comma_ || ids_.empty()) {
      throw base::Error("{}: no id before the comma at byte {}, after {} ids", where_, at,
                        ids_.size());
    }
    after_comma_ = true;
  }

  [[noreturn]] void refuse(const char* why) const {
    throw base::Error("{}: id {} at byte {} is \"{}\": {}", where_, ids_.size(), begin_,
                      word_.substr(0, kLongestWord), why);
  }

  std::int64_t vocabulary_;
  const std::string& where_;
  std::string word_;  // what there is of the id at hand
  bool after_comma_ = false;
  std::size_t begin_ = 0;  // where in the text it begins
  std::size_t done_ = 0;   // bytes of the blocks before
  std::vector<std::int32_t> ids_;
};

}  // namespace

std::vector<std::int32_t> parse_ids(std::string_view text, std::int64_t vocabulary,
                                    const std::string& where) {
  IdParser parser(vocabulary, where);
  parser.add(text);
  parser.finish();
  return std::move(parser.ids());
}

std::vector<std::int32_t> read_ids(const std::filesystem::path& path, std::int64_t vocabulary,
                                   base::RamBudget* budget) {
  const store::File file(path);
  const std::string where = path.string();
  IdParser parser(vocabulary, where);
  std::vector<char> block(std::min<std::uint64_t>(kBlockBytes, file.size()));
  for (std::uint64_t at = 0; at < file.size(); at += block.size()) {
    block.resize(std::min<std::uint64_t>(block.size(), file.size() - at));
    file.read(at, std::as_writable_bytes(std::span(block)));
    parser.add({block.data(), block.size()});
    const std::uint64_t bytes = parser.ids().size() * kBytesAnId;
    // What fits into one block is no reason: the plan of the whole work, which comes next, tells more.
    if (budget != nullptr && at > 0 && bytes > budget->free_bytes()) {
      throw base::Error(
          "memory budget: {} holds {} ids and more ({} of {} bytes read), which take {}, {} of {} "
          "are free; held now:\n{}",
          where, parser.ids().size(), at + block.size(), file.size(), base::format_bytes(bytes),
          base::format_bytes(budget->free_bytes()), base::format_bytes(budget->limit_bytes()),
          budget->table());
    }
  }
  parser.finish();
  std::vector<std::int32_t>& ids = parser.ids();
  ids.shrink_to_fit();
  if (budget != nullptr) budget->reserve("token ids", ids.size() * kBytesAnId);
  return std::move(ids);
}

}  // namespace engine::data
