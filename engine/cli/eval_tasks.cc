#include "engine/cli/eval_tasks.h"

#include <algorithm>
#include <filesystem>
#include <span>

#include "engine/base/error.h"
#include "engine/base/sha256.h"
#include "engine/data/corpus.h"
#include "engine/data/ids.h"
#include "engine/data/packed_set.h"
#include "engine/store/at_path.h"
#include "engine/store/file.h"
#include "engine/train/manifest.h"

namespace engine::cli {
namespace {

namespace fs = std::filesystem;

// A text, its ids and its units, which overlap: about this much a byte of text, in the worst case of
// a token a byte and chunks side by side.
constexpr std::uint64_t kBytesATextByte = 16;

std::string name_of(const std::string& kind, const std::string& file) {
  const fs::path path = fs::path(file).lexically_normal();
  return kind + ":" + (path.has_filename() ? path : path.parent_path()).filename().string();
}

std::string read_text(const std::string& file, base::Charge& held) {
  const store::File opened(file);
  held.grow(opened.size() * kBytesATextByte);
  std::string text(opened.size(), '\0');
  opened.read(0, std::as_writable_bytes(std::span(text)));
  return text;
}

measure::EvalTask of_set(const std::string& folder, const data::Tokenizer& tokenizer,
                         base::RamBudget& budget, base::Charge& held) {
  const data::PackedSet set(folder, budget);
  set.require_made_with(tokenizer.folder() / "tiktoken.model", tokenizer.ranks_sha256());
  set.require_made_with(tokenizer.folder() / "tokenizer_config.json", tokenizer.config_sha256());
  held.grow(static_cast<std::uint64_t>(set.facts().ids) * sizeof(std::int64_t));
  measure::EvalTask task;
  task.kind = "set";
  task.sha256 = set.digest();
  task.units = measure::set_units(set);
  if (task.units.empty()) {
    throw base::Error("{}: {} ids, none of an answer: nothing is scored", folder, set.facts().ids);
  }
  return task;
}

// All files together, chunk by chunk; the digest is that which a run on them has in its manifest.
measure::EvalTask of_ids(const std::vector<std::string>& files, const data::Tokenizer& tokenizer,
                         const measure::ChunkSettings& settings, const measure::ByteCount& bytes,
                         base::RamBudget& budget) {
  measure::EvalTask task;
  task.kind = task.name = "ids";
  std::vector<std::vector<std::int32_t>> sequences;
  for (const std::string& file : files) {
    sequences.push_back(data::read_ids(file, tokenizer.vocabulary(), &budget));
    for (measure::EvalUnit& unit : measure::chunk_units(sequences.back(), settings, bytes, file)) {
      task.units.push_back(std::move(unit));
    }
  }
  task.sha256 = train::data_digest(sequences);
  return task;
}

}  // namespace

std::vector<measure::EvalTask> open_tasks(const TaskFiles& files, const data::Tokenizer& tokenizer,
                                          const measure::ChunkSettings& settings,
                                          base::RamBudget& budget, base::Charge& held) {
  std::vector<measure::EvalTask> tasks;
  const auto add = [&](const std::string& kind, const std::string& file, measure::EvalTask task) {
    task.kind = kind;
    task.name = name_of(kind, file);
    if (std::ranges::find(tasks, task.name, &measure::EvalTask::name) != tasks.end()) {
      throw base::Error("{}: there is another {} already", file, task.name);
    }
    tasks.push_back(std::move(task));
  };
  const auto bytes = [&](std::int32_t id) {
    return static_cast<std::int64_t>(tokenizer.decode({&id, 1}).size());
  };
  const auto add_text = [&](const std::string& text, const std::string& file,
                            std::optional<measure::TextOrigin> origin) {
    measure::EvalTask task;
    task.sha256 = base::sha256_hex(text);
    task.units = measure::chunk_units(tokenizer.encode(text, file), settings, bytes, file);
    task.has_bytes = true;
    task.words = measure::count_words(text);
    task.origin = std::move(origin);
    add("text", file, std::move(task));
  };
  for (const std::string& file : files.texts) {
    if (!store::is_folder(file)) {
      add_text(read_text(file, held), file, {});
      continue;
    }
    const data::Corpus corpus = data::read_corpus(file);
    for (const data::CorpusText& text : corpus.texts) {
      held.grow(text.bytes * kBytesATextByte);
      add_text(data::read_corpus_text(file, text), text.name,
               measure::TextOrigin{corpus.manifest_sha256, corpus.after, text.date, text.revision,
                                   text.source});
    }
  }
  if (!files.ids.empty()) tasks.push_back(of_ids(files.ids, tokenizer, settings, bytes, budget));
  for (const std::string& folder : files.sets)
    add("set", folder, of_set(folder, tokenizer, budget, held));
  return tasks;
}

}  // namespace engine::cli
