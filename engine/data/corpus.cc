#include "engine/data/corpus.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <map>
#include <span>
#include <string_view>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/sha256.h"
#include "engine/data/line_reader.h"
#include "engine/data/strict_json.h"
#include "engine/data/utf8.h"
#include "engine/store/at_path.h"
#include "engine/store/durable.h"
#include "engine/store/file.h"

namespace engine::data {
namespace {

namespace fs = std::filesystem;
using base::Error;
using Json = nlohmann::ordered_json;

constexpr std::uint64_t kMostManifestBytes = 64'000'000;
// A text's entry, its row in the manifest and in two maps, with what the allocator adds.
constexpr std::uint64_t kEntryBytes = 2000;
constexpr std::array<const char*, 4> kFields = {"file", "date", "revision", "source"};

// Names become names of tasks, and those of messages and reports.
void require_name(const std::string& name, const std::string& where) {
  const bool plain =
      std::ranges::none_of(name, [](unsigned char c) { return c < 0x20 || c == 0x7f || c == '/'; });
  if (!plain || name.empty() || name == "." || name == "..") {
    throw Error("{}: {} is no name of a file", where, shown(name));
  }
}

struct Listed {
  fs::path path;
  CorpusText text;
  std::int64_t line = 0;
};

Listed parse_entry(const LineReader::Line& line, const std::string& where,
                   const fs::path& list_folder) {
  require_utf8(line.text, where);
  const nlohmann::json json = parse_strictly(line.text, where);
  std::array<std::string, kFields.size()> values;
  for (std::size_t i = 0; i < kFields.size(); ++i) {
    values[i] = string_member(json, kFields[i], where);
    if (values[i].empty()) throw Error("{}: {} is empty", where, kFields[i]);
  }
  for (const auto& [key, value] : json.items()) {
    if (std::ranges::find(kFields, key) == kFields.end()) {
      throw Error("{}: {} is no field of an entry", where, shown(key));
    }
  }
  Listed listed{list_folder / values[0], {}, line.number};
  listed.text.name = listed.path.filename().string();
  listed.text.date = values[1];
  listed.text.revision = values[2];
  listed.text.source = values[3];
  require_name(listed.text.name, where);
  require_day(listed.text.date, where);
  return listed;
}

// A byte order mark and ASCII blanks are nothing that a loss could be of.
void require_words(std::string_view bytes, const std::string& where) {
  const std::string_view text = bytes.substr(bytes.starts_with("\xEF\xBB\xBF") ? 3 : 0);
  if (text.find_first_not_of(" \t\n\v\f\r") != std::string_view::npos) return;
  throw Error("{}: is empty: all of its {} bytes are blank", where, bytes.size());
}

// Of one opening: what was charged, or compared with a manifest, is what is read.
std::string read_whole(const store::File& file) {
  std::string bytes(file.size(), '\0');
  file.read(0, std::as_writable_bytes(std::span(bytes)));
  return bytes;
}

// A text's bytes, charged to `held`, and in `text` what they are.
std::string read_listed(const fs::path& path, CorpusText& text, base::Charge& held) {
  const store::File file(path);
  held.grow(file.size());
  std::string bytes = read_whole(file);
  require_utf8(bytes, path.string());
  require_words(bytes, path.string());
  text.bytes = bytes.size();
  text.sha256 = base::sha256_hex(bytes);
  return bytes;
}

// Synced with its folder. A DurableFile would take NAME.lazylora-tmp for its own, and another text may have
// that name.
void write_new(const fs::path& path, const std::string& bytes) {
  store::stop_if_wished();
  std::FILE* file = std::fopen(path.c_str(), "wbx");
  bool whole = file != nullptr && std::fwrite(bytes.data(), 1, bytes.size(), file) == bytes.size();
  if (file != nullptr && std::fclose(file) != 0) whole = false;
  if (!whole) throw Error("{}: cannot be written: {}", path.string(), std::strerror(errno));
}

// Refuses what was there already, under this name or with these bytes.
class Seen {
 public:
  explicit Seen(std::string file) : file_(std::move(file)) {}

  // `place`: in the file
  void require_new(const CorpusText& text, const std::string& place) {
    const auto refuse_second = [&](std::map<std::string, std::string>& seen,
                                   const std::string& what, const char* kind) {
      const auto [found, is_new] = seen.emplace(what, place);
      if (is_new) return;
      throw Error("{}: {}: {} has {} {}, as {} has", file_, place, text.name, kind, what,
                  found->second);
    };
    refuse_second(names_, text.name, "the name");
    refuse_second(digests_, text.sha256, "the bytes of SHA-256");
  }

 private:
  const std::string file_;
  std::map<std::string, std::string> names_, digests_;
};

Json row_of(const CorpusText& text) {
  return {{"file", text.name}, {"bytes", text.bytes},       {"sha256", text.sha256},
          {"date", text.date}, {"revision", text.revision}, {"source", text.source}};
}

std::string manifest_of(const Corpus& corpus) {
  Json texts = Json::array(), left_out = Json::array();
  for (const CorpusText& text : corpus.texts) texts.push_back(row_of(text));
  for (const CorpusText& text : corpus.left_out) {
    Json row = row_of(text);
    row["why"] = fmt::format("dated {}, not after {}", text.date, corpus.after);
    left_out.push_back(std::move(row));
  }
  const Json json = {{"format", kCorpusFormat},
                     {"after", corpus.after},
                     // The name alone: the folder is of one machine.
                     {"list", {{"name", corpus.list_name}, {"sha256", corpus.list_sha256}}},
                     {"texts", std::move(texts)},
                     {"left_out", std::move(left_out)}};
  return json.dump(2) + '\n';
}

std::vector<CorpusText> rows_of(const nlohmann::json& manifest, const char* key,
                                const std::string& where) {
  const nlohmann::json& rows = member(manifest, key, where);
  if (!rows.is_array()) throw Error("{}: {} is {}, not an array", where, key, shown(rows));
  std::vector<CorpusText> texts;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const std::string at = fmt::format("{}: {} {}", where, key, i);
    CorpusText text;
    text.name = string_member(rows[i], "file", at);
    text.bytes = static_cast<std::uint64_t>(count_member(rows[i], "bytes", at));
    text.sha256 = string_member(rows[i], "sha256", at);
    text.date = string_member(rows[i], "date", at);
    text.revision = string_member(rows[i], "revision", at);
    text.source = string_member(rows[i], "source", at);
    require_name(text.name, at);
    require_day(text.date, at);
    texts.push_back(std::move(text));
  }
  return texts;
}

fs::path manifest_path(const fs::path& folder) { return folder / "manifest.json"; }
fs::path text_path(const fs::path& folder, const std::string& name) {
  return folder / "texts" / name;
}

}  // namespace

void require_day(const std::string& day, const std::string& where) {
  const auto number = [&](std::size_t at, std::size_t digits) {
    int value = 0;
    for (std::size_t i = at; i < at + digits; ++i) {
      if (day[i] < '0' || day[i] > '9') return -1;
      value = value * 10 + (day[i] - '0');
    }
    return value;
  };
  const bool formed = day.size() == 10 && day[4] == '-' && day[7] == '-' && number(0, 4) >= 0 &&
                      number(5, 2) >= 0 && number(8, 2) >= 0;
  if (!formed) throw Error("{}: {} is no day as YYYY-MM-DD", where, shown(day));
  const std::chrono::year_month_day date{std::chrono::year(number(0, 4)),
                                         std::chrono::month(static_cast<unsigned>(number(5, 2))),
                                         std::chrono::day(static_cast<unsigned>(number(8, 2)))};
  if (!date.ok()) throw Error("{}: {} is a day that no calendar has", where, day);
}

Corpus build_corpus(const fs::path& out, const CorpusSettings& settings, base::RamBudget& budget) {
  require_day(settings.after, "--after");
  store::require_unused(out);
  const std::string list = settings.list.string();
  Corpus corpus;
  corpus.after = settings.after;
  corpus.list_name = settings.list.filename().string();
  store::TemporaryFolder folder(out);
  store::create_folders(folder.path() / "texts");
  base::Charge entries(budget, "the entries of a corpus");
  LineReader lines(settings.list);
  Seen seen(list);
  while (const auto line = lines.next()) {
    entries.grow(kEntryBytes + 4 * line->text.size());
    Listed listed = parse_entry(*line, fmt::format("{}: line {}", list, line->number),
                                settings.list.parent_path());
    base::Charge held(budget, "a text of a corpus");
    const std::string bytes = read_listed(listed.path, listed.text, held);
    seen.require_new(listed.text, fmt::format("line {}", listed.line));
    // Days of one length in digits, highest first, are in the order of their letters.
    if (listed.text.date > corpus.after) {
      write_new(text_path(folder.path(), listed.text.name), bytes);
      corpus.texts.push_back(std::move(listed.text));
    } else {
      corpus.left_out.push_back(std::move(listed.text));
    }
  }
  if (corpus.texts.empty()) {
    throw Error("{}: of {} texts none is dated after {}", list, corpus.left_out.size(),
                corpus.after);
  }
  corpus.list_sha256 = lines.sha256();
  const std::string manifest = manifest_of(corpus);
  corpus.manifest_sha256 = base::sha256_hex(manifest);
  store::write_file_durably(manifest_path(folder.path()), manifest);
  folder.commit();
  return corpus;
}

bool is_corpus(const fs::path& folder) { return store::is_folder(folder / "texts"); }

Corpus read_corpus(const fs::path& folder) {
  const std::string where = manifest_path(folder).string();
  const std::string text = store::read_text(where, kMostManifestBytes);
  const nlohmann::json manifest = parse_strictly(text, where);
  if (const std::string format = string_member(manifest, "format", where);
      format != kCorpusFormat) {
    throw Error("{}: format is {}, not \"{}\"", where, shown(format), kCorpusFormat);
  }
  Corpus corpus;
  corpus.after = string_member(manifest, "after", where);
  require_day(corpus.after, where);
  const nlohmann::json& list = member(manifest, "list", where);
  corpus.list_name = string_member(list, "name", where);
  corpus.list_sha256 = string_member(list, "sha256", where);
  corpus.texts = rows_of(manifest, "texts", where);
  corpus.left_out = rows_of(manifest, "left_out", where);
  if (corpus.texts.empty()) {
    throw Error("{}: 0 texts, {} left out: there is nothing to read", where,
                corpus.left_out.size());
  }
  // What the folder promises is asked of the manifest as well: it may have been edited.
  for (const CorpusText& kept : corpus.texts) {
    if (kept.date <= corpus.after) {
      throw Error("{}: {} is dated {}, not after {}", where, kept.name, kept.date, corpus.after);
    }
  }
  Seen seen(where);
  for (const auto& [key, texts] :
       {std::pair("texts", &corpus.texts), std::pair("left_out", &corpus.left_out)}) {
    for (std::size_t i = 0; i < texts->size(); ++i) {
      seen.require_new((*texts)[i], fmt::format("{} {}", key, i));
    }
  }
  corpus.manifest_sha256 = base::sha256_hex(text);
  return corpus;
}

std::string read_corpus_text(const fs::path& folder, const CorpusText& text) {
  const fs::path path = text_path(folder, text.name);
  const store::File file(path);
  if (file.size() != text.bytes) {
    throw Error("{}: has {} bytes, the manifest says {}", path.string(), file.size(), text.bytes);
  }
  std::string bytes = read_whole(file);
  if (const std::string digest = base::sha256_hex(bytes); digest != text.sha256) {
    throw Error("{}: has SHA-256 {}, the manifest says {}", path.string(), digest, text.sha256);
  }
  require_words(bytes, path.string());
  return bytes;
}

}  // namespace engine::data
