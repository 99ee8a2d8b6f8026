#include "engine/data/packed_set.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <numeric>

#include "engine/base/error.h"
#include "engine/base/sha256.h"
#include "engine/data/line_reader.h"
#include "engine/data/strict_json.h"
#include "engine/store/at_path.h"
#include "engine/store/file_digest.h"
#include "engine/store/folder_kind.h"

namespace engine::data {

namespace {

using base::Error;
using nlohmann::json;

constexpr std::uint64_t kMostManifestBytes = 64'000'000;
constexpr std::uint64_t kHeadBytes = 2 * sizeof(std::uint32_t);
// So that the bytes of a sequence can be held and its places are 32-bit.
constexpr std::int64_t kMostLength = std::int64_t{1} << 27;

struct Head {
  std::uint32_t ids = 0;
  std::uint32_t documents = 0;
  std::uint64_t bytes() const {
    return kHeadBytes + std::uint64_t{documents} * sizeof(std::uint32_t) +
           std::uint64_t{ids} * (sizeof(std::int32_t) + 1);
  }
};

template <class T>
void append(std::string& bytes, const T* values, std::size_t count) {
  bytes.append(reinterpret_cast<const char*>(values), count * sizeof(T));
}

SetFacts facts_of(const json& manifest, const std::string& where) {
  if (const std::string format = string_member(manifest, "format", where); format != kSetFormat) {
    throw Error("{}: format is \"{}\", not \"{}\"", where, format, kSetFormat);
  }
  SetFacts facts;
  const json& set = member(manifest, "set", where);
  facts.length = count_member(set, "length", where);
  facts.sequences = count_member(set, "sequences", where);
  facts.documents = count_member(set, "documents", where);
  facts.ids = count_member(set, "ids", where);
  facts.trained = count_member(set, "trained", where);
  const json& tokenizer = member(manifest, "tokenizer", where);
  facts.vocabulary = count_member(tokenizer, "vocabulary", where);
  facts.ranks_sha256 = string_member(tokenizer, "tiktoken_model_sha256", where);
  facts.config_sha256 = string_member(tokenizer, "tokenizer_config_sha256", where);
  const json& files = member(manifest, "files", where);
  facts.sequences_sha256 = string_member(member(files, "sequences.bin", where), "sha256", where);
  facts.records_sha256 = string_member(member(files, "records.jsonl", where), "sha256", where);
  if (facts.length < 2 || facts.length > kMostLength) {
    throw Error("{}: length is {}, not in 2 ... {}", where, facts.length, kMostLength);
  }
  return facts;
}

// Whatever else stands in the way of a set, it is one.
store::File open_sequences(const std::filesystem::path& folder) {
  if (!store::is_folder(folder)) {
    throw Error("{}: is no folder, and a data set is one (`lazylora data build` makes it)",
                folder.string());
  }
  store::require_kind(folder, store::FolderKind::kDataSet);
  std::string missing;
  for (const char* name : {"manifest.json", "sequences.bin", "records.jsonl"}) {
    if (store::is_there(folder / name)) continue;
    missing += fmt::format("{}{}", missing.empty() ? "" : " and no ", name);
  }
  if (!missing.empty()) {
    throw Error("{}: is no data set: it has no {} (`lazylora data build` makes one)",
                folder.string(), missing);
  }
  return store::File(folder / "sequences.bin");
}

void require_digest(const std::string& file, const std::string& sha256, const std::string& stated) {
  if (sha256 == stated) return;
  throw Error("{}: SHA-256 is {}, manifest.json says {}", file, sha256, stated);
}

// One sequence of the file at `offset`, believed in nothing.
class SequenceParser {
 public:
  SequenceParser(const store::File& file, const SetFacts& facts) : file_(file), facts_(facts) {}

  // Where the next one begins.
  std::uint64_t parse(std::uint64_t offset, std::int64_t number, PackedSequence& out,
                      base::Sha256* hash) const {
    const auto refuse = [&](const std::string& what) {
      throw Error("{}: sequence {} at byte {}: {}", file_.path().string(), number, offset, what);
    };
    std::uint32_t words[2] = {};
    if (offset + kHeadBytes > file_.size()) refuse("the file ends within it");
    file_.read(offset, std::as_writable_bytes(std::span(words)));
    const Head head{words[0], words[1]};
    if (head.ids < 2 || head.ids > facts_.length) {
      refuse(fmt::format("{} ids, not 2 ... {}", head.ids, facts_.length));
    }
    if (head.documents < 1 || head.documents > head.ids / 2) {
      refuse(fmt::format("{} documents in {} ids", head.documents, head.ids));
    }
    if (offset + head.bytes() > file_.size()) {
      refuse(fmt::format("{} bytes, the file has {} left", head.bytes(), file_.size() - offset));
    }
    std::string bytes(head.bytes(), '\0');
    file_.read(offset, std::as_writable_bytes(std::span(bytes.data(), bytes.size())));
    if (std::memcmp(bytes.data(), words, kHeadBytes) != 0) refuse("it changed while it was read");
    if (hash != nullptr) hash->update(bytes);

    const char* at = bytes.data() + kHeadBytes;
    std::vector<std::uint32_t> starts(head.documents);
    std::memcpy(starts.data(), at, starts.size() * sizeof(std::uint32_t));
    at += starts.size() * sizeof(std::uint32_t);
    out.ids.resize(head.ids);
    std::memcpy(out.ids.data(), at, out.ids.size() * sizeof(std::int32_t));
    at += out.ids.size() * sizeof(std::int32_t);
    out.trained.assign(at, at + head.ids);
    out.borders.assign(starts.begin(), starts.end());
    out.borders.push_back(head.ids);
    if (out.borders.front() != 0) refuse(fmt::format("begins at id {}", out.borders.front()));
    for (std::size_t d = 0; d + 1 < out.borders.size(); ++d) {
      if (out.borders[d + 1] < out.borders[d] + 2) {
        refuse(fmt::format("document {} is {} ... {}: fewer than two ids", d, out.borders[d],
                           out.borders[d + 1]));
      }
      if (out.trained[out.borders[d]] != 0) {
        refuse(fmt::format("the first id of document {} is trained: nothing predicts it", d));
      }
    }
    for (std::size_t i = 0; i < out.ids.size(); ++i) {
      if (out.ids[i] < 0 || out.ids[i] >= facts_.vocabulary) {
        refuse(fmt::format("id {} is {}: the vocabulary is 0 ... {}", i, out.ids[i],
                           facts_.vocabulary - 1));
      }
      if (out.trained[i] > 1) refuse(fmt::format("mark {} is {}, not 0 or 1", i, out.trained[i]));
    }
    return offset + head.bytes();
  }

 private:
  const store::File& file_;
  const SetFacts& facts_;
};

}  // namespace

std::int64_t PackedSequence::trained_ids() const {
  return std::accumulate(trained.begin(), trained.end(), std::int64_t{0});
}

Joined training_form(const PackedSequence& sequence) {
  Joined joined;
  for (std::size_t d = 0; d + 1 < sequence.borders.size(); ++d) {
    for (std::int64_t i = sequence.borders[d]; i + 1 < sequence.borders[d + 1]; ++i) {
      joined.tokens.push_back(sequence.ids[i]);
      joined.targets.push_back(sequence.trained[i + 1] != 0 ? sequence.ids[i + 1] : -1);
    }
    joined.borders.push_back(static_cast<std::int64_t>(joined.tokens.size()));
  }
  return joined;
}

std::string packed_bytes(const PackedSequence& sequence) {
  assert(sequence.borders.front() == 0 && sequence.borders.back() == sequence.size());
  std::string bytes;
  const std::vector<std::uint32_t> starts(sequence.borders.begin(), sequence.borders.end() - 1);
  const std::uint32_t head[2] = {static_cast<std::uint32_t>(sequence.size()),
                                 static_cast<std::uint32_t>(starts.size())};
  append(bytes, head, 2);
  append(bytes, starts.data(), starts.size());
  append(bytes, sequence.ids.data(), sequence.ids.size());
  append(bytes, sequence.trained.data(), sequence.trained.size());
  return bytes;
}

PackedSet::PackedSet(const std::filesystem::path& folder, base::RamBudget& budget)
    : folder_(folder), file_(open_sequences(folder)) {
  const std::string where = (folder / "manifest.json").string();
  const std::string text = store::read_text(where, kMostManifestBytes);
  digest_ = base::sha256_hex(text);
  facts_ = facts_of(parse_strictly(text, where), where);
  if (facts_.sequences == 0 || facts_.trained == 0) {
    throw Error("{}: 0 samples: {} sequences, {} trained ids", where, facts_.sequences,
                facts_.trained);
  }
  // The smallest sequence has 22 bytes: a count that the file cannot hold takes no memory.
  if (static_cast<std::uint64_t>(facts_.sequences) > file_.size() / 22) {
    throw Error("{}: {} sequences, but sequences.bin has {} bytes", where, facts_.sequences,
                file_.size());
  }
  offsets_ = budget.take<std::uint64_t>("places of sequences of a data set", facts_.sequences + 1);
  const SequenceParser parser(file_, facts_);
  base::Sha256 hash;
  PackedSequence one;
  SetFacts found;
  for (std::int64_t i = 0; i < facts_.sequences; ++i) {
    offsets_[i + 1] = parser.parse(offsets_[i], i, one, &hash);
    found.ids += one.size();
    most_ids_ = std::max(most_ids_, one.size());
    found.documents += std::ssize(one.borders) - 1;
    found.trained += one.trained_ids();
  }
  const std::string file = file_.path().string();
  if (offsets_[facts_.sequences] != file_.size()) {
    throw Error("{}: {} sequences end at byte {}, the file at {}", file, facts_.sequences,
                offsets_[facts_.sequences], file_.size());
  }
  require_digest(file, hash.hex(), facts_.sequences_sha256);
  const store::File records(folder / "records.jsonl");
  require_digest(records.path().string(), store::sha256_hex_of(records), facts_.records_sha256);
  const auto same = [&](const char* what, std::int64_t in_file, std::int64_t stated) {
    if (in_file == stated) return;
    throw Error("{}: {} {}, manifest.json says {}", file, in_file, what, stated);
  };
  same("ids", found.ids, facts_.ids);
  same("documents", found.documents, facts_.documents);
  same("trained ids", found.trained, facts_.trained);
  if (found.ids < facts_.length) {
    throw Error("{}: 0 samples: {} ids in {} documents, one sequence has {}", where, found.ids,
                found.documents, facts_.length);
  }
}

PackedSequence PackedSet::sequence(std::int64_t i) const {
  assert(i >= 0 && i < count());
  PackedSequence sequence;
  SequenceParser(file_, facts_).parse(offsets_[i], i, sequence, nullptr);
  return sequence;
}

void PackedSet::require_made_with(const std::filesystem::path& file,
                                  const std::string& sha256) const {
  const std::string name = file.filename().string();
  assert(name == "tiktoken.model" || name == "tokenizer_config.json");
  const std::string& stated = name == "tiktoken.model" ? facts_.ranks_sha256 : facts_.config_sha256;
  if (sha256 == stated) return;
  throw Error("{}: ids of another tokenizer: its {} had SHA-256 {}, {} has {}", folder_.string(),
              name, stated, file.string(), sha256);
}

void PackedSet::for_each_record(const std::function<void(const std::string&)>& record) const {
  const std::filesystem::path path = folder_ / "records.jsonl";
  LineReader lines(path);
  std::int64_t count = 0;
  while (const auto line = lines.next()) {
    const std::string where = fmt::format("{}: line {}", path.string(), line->number);
    record(string_member(parse_strictly(line->text, where), "record", where));
    ++count;
  }
  // Once more: it may have changed since it was opened.
  require_digest(path.string(), lines.sha256(), facts_.records_sha256);
  if (count != facts_.documents) {
    throw Error("{}: {} records, manifest.json says {} documents", path.string(), count,
                facts_.documents);
  }
}

}  // namespace engine::data
