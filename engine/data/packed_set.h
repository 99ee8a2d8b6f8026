#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "engine/base/budget.h"
#include "engine/data/batching.h"
#include "engine/store/file.h"

namespace engine::data {

// One sequence of a set: whole documents, one behind the other.
struct PackedSequence {
  std::vector<std::int32_t> ids;      // [T]
  std::vector<std::int64_t> borders;  // [documents + 1], 0 ... T
  std::vector<std::uint8_t> trained;  // [T] 1: its prediction is trained; 0 for a document's first

  std::int64_t size() const { return static_cast<std::int64_t>(ids.size()); }
  std::int64_t trained_ids() const;
};

// As training feeds it: of every document all ids but the last, predicting all but the first; what
// is not trained is -1. The last id of a document predicts nothing, so no label crosses a border.
Joined training_form(const PackedSequence& sequence);

// What manifest.json says of a set and a reader needs.
struct SetFacts {
  std::int64_t length = 0;  // most ids of a sequence
  std::int64_t vocabulary = 0;
  std::int64_t sequences = 0;
  std::int64_t documents = 0;
  std::int64_t ids = 0;
  std::int64_t trained = 0;
  std::string ranks_sha256;  // of the tokenizer's files
  std::string config_sha256;
  std::string sequences_sha256;
  std::string records_sha256;
};

// A set that `lazylora data build` wrote: its sequences one at a time from disk. Opening reads all
// of it once and believes nothing: both files are compared with the manifest's digests, counts with
// the manifest's, every id with the vocabulary, every border with its neighbours.
//
// Cost      memory for one sequence, and eight bytes a sequence from the budget
// Errors    Error naming file, sequence and the two values that disagree; one with "0 samples" if
//           there is no sequence, nothing trained, or less in all than one sequence has
class PackedSet {
 public:
  PackedSet(const std::filesystem::path& folder, base::RamBudget& budget);

  std::int64_t count() const { return facts_.sequences; }
  std::int64_t most_ids() const { return most_ids_; }  // of a sequence
  // Errors    Error as above: the file may have changed since
  PackedSequence sequence(std::int64_t i) const;

  const SetFacts& facts() const { return facts_; }
  // SHA-256 of manifest.json, which contains those of all other files.
  const std::string& digest() const { return digest_; }
  const std::filesystem::path& folder() const { return folder_; }
  // That the set was made with this file of a tokenizer, tiktoken.model or tokenizer_config.json.
  // Errors    Error naming set and file, and both digests
  void require_made_with(const std::filesystem::path& file, const std::string& sha256) const;
  // The digest of every document's record, in the order of the documents.
  // Errors    Error naming records.jsonl and the line
  void for_each_record(const std::function<void(const std::string& digest)>& record) const;

 private:
  std::filesystem::path folder_;
  std::string digest_;
  SetFacts facts_;
  std::int64_t most_ids_ = 0;
  store::File file_;                     // sequences.bin
  base::Buffer<std::uint64_t> offsets_;  // [sequences + 1]
};

// The bytes of one sequence in sequences.bin: u32 ids, u32 documents, u32 first place of every
// document, i32 ids, u8 trained.
std::string packed_bytes(const PackedSequence& sequence);

inline constexpr const char* kSetFormat = "lazylora data 1";

}  // namespace engine::data
