#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "engine/base/budget.h"

namespace engine::data {

inline constexpr const char* kCorpusFormat = "lazylora corpus 1";

// A text and where it comes from, as its list says.
struct CorpusText {
  std::string name;  // of its file, without a folder
  std::uint64_t bytes = 0;
  std::string sha256;
  std::string date;      // YYYY-MM-DD: when it was published
  std::string revision;  // of the text at its source: a commit, a page's revision, a release
  std::string source;
};

// Texts that a model cannot have seen, because they are dated after its data ends.
struct Corpus {
  std::string after;  // the last day that is left out
  std::string list_name, list_sha256;
  std::vector<CorpusText> texts;     // dated after that, in the order of the list
  std::vector<CorpusText> left_out;  // dated on that day or before
  std::string manifest_sha256;
};

struct CorpusSettings {
  // JSON lines {"file", "date", "revision", "source"}, files relative to the list's folder. It is
  // believed: nothing here can know when a text was written.
  std::filesystem::path list;
  std::string after;
};

// Writes OUT/texts/NAME for every text that is kept, and OUT/manifest.json, which names those left
// out as well, with their digests. Nothing is rewritten: the bytes are the files'.
//
// The same bytes twice are an error and not dropped: a text that was there before the day is not
// younger under another name, and a text that counts twice makes an interval too narrow.
// Cost      memory of the largest text, charged
// Errors    Error naming file, line and value: an entry with a field too few or too many, a day that
//           is none, a file that is not there, is empty (of blanks alone, too) or not UTF-8 (with the
//           offset), two of one name or of the same bytes, nothing left; OUT is then not there
Corpus build_corpus(const std::filesystem::path& out, const CorpusSettings& settings,
                    base::RamBudget& budget);

// Whether a folder is meant as one, so that what is wrong with it is a matter of read_corpus.
bool is_corpus(const std::filesystem::path& folder);

// The manifest of a folder that build_corpus wrote.
// Errors    Error naming the file and the field, two texts of one name or of the same bytes, or no text
Corpus read_corpus(const std::filesystem::path& folder);

// One of its texts, whole; its `bytes` are the caller's to charge.
// Errors    Error naming the file: another size or digest than the manifest has, or blanks alone
std::string read_corpus_text(const std::filesystem::path& folder, const CorpusText& text);

// Errors    Error naming `where`: not YYYY-MM-DD, or a day that no calendar has
void require_day(const std::string& day, const std::string& where);

}  // namespace engine::data
