#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <optional>
#include <string>

#include "engine/base/budget.h"
#include "engine/base/error.h"
#include "engine/cli/common.h"
#include "engine/cli/data.h"
#include "engine/data/packed_set.h"
#include "engine/data/tokenizer.h"
#include "engine/model/config.h"

namespace engine::cli {

namespace {

// White square brackets, and double angle brackets: no text of a keyboard has them.
constexpr const char* kOpen = "\u27E6";
constexpr const char* kClose = "\u27E7";
constexpr const char* kControlOpen = "\u27EA";
constexpr const char* kControlClose = "\u27EB";

struct Arguments {
  std::string set, model;
  std::int64_t count = 1;
  std::int64_t from = 0;
  MachineOptions machine;
};

std::string words_of(std::span<const std::int32_t> ids) {
  std::string words;
  for (const std::int32_t id : ids) words += fmt::format("{}{}", words.empty() ? "" : " ", id);
  return words;
}

// A text may spell a control token's name, and those letters are none.
std::string text_of(const data::Tokenizer& tokenizer, std::span<const std::int32_t> ids) {
  const auto is_control = [&](std::int32_t id) { return id >= tokenizer.special().first(); };
  std::string text;
  while (!ids.empty()) {
    const bool control = is_control(ids.front());
    std::size_t count = 1;
    while (count < ids.size() && is_control(ids[count]) == control) ++count;
    text += (control ? kControlOpen : "") + tokenizer.decode(ids.first(count));
    if (control) text += kControlClose;
    ids = ids.subspan(count);
  }
  return text;
}

void show_sequence(const data::PackedSet& set, std::int64_t i, const data::Tokenizer* tokenizer) {
  const data::PackedSequence sequence = set.sequence(i);
  const std::span<const std::int32_t> ids(sequence.ids);
  say("== sequence {}: {} ids, {} documents, {} trained\n", i, sequence.size(),
      sequence.borders.size() - 1, sequence.trained_ids());
  for (std::size_t d = 0; d + 1 < sequence.borders.size(); ++d) {
    const std::int64_t end = sequence.borders[d + 1];
    say("-- document {}: ids {} ... {}\n", d, sequence.borders[d], end - 1);
    for (std::int64_t at = sequence.borders[d]; at < end;) {
      std::int64_t stop = at;
      while (stop < end && sequence.trained[stop] == sequence.trained[at]) ++stop;
      const bool trained = sequence.trained[at] != 0;
      const std::span<const std::int32_t> run = ids.subspan(at, stop - at);
      say("{}{}{}", trained ? kOpen : "", tokenizer ? text_of(*tokenizer, run) : words_of(run),
          trained ? kClose : "");
      if (tokenizer == nullptr && stop < end) say(" ");
      at = stop;
    }
    say("\n");
  }
}

void show(const Arguments& given) {
  base::RamBudget budget(ram_bytes(given.machine));
  reserve_process(budget);
  const data::PackedSet set(given.set, budget);
  const data::SetFacts& facts = set.facts();
  std::optional<data::Tokenizer> tokenizer;
  if (!given.model.empty()) {
    // The model's own vocabulary: with the set's, another model's files would seem to be wrong.
    tokenizer.emplace(given.model, model::load_config(given.model).vocabulary);
    set.require_made_with(tokenizer->folder() / "tiktoken.model", tokenizer->ranks_sha256());
    set.require_made_with(tokenizer->folder() / "tokenizer_config.json",
                          tokenizer->config_sha256());
  }
  if (given.from >= set.count()) {
    throw base::Error("{}: --from {}: there are {} sequences", given.set, given.from, set.count());
  }
  say("{}: {} sequences of at most {} ids, {} documents, {} ids, {} trained\n", given.set,
      set.count(), facts.length, facts.documents, facts.ids, facts.trained);
  say("what is trained stands in {} {}", kOpen, kClose);
  if (tokenizer) say(", control tokens in {} {}", kControlOpen, kControlClose);
  say("; manifest {}\n", set.digest());
  const std::int64_t end = given.from + std::min(given.count, set.count() - given.from);
  for (std::int64_t i = given.from; i < end; ++i) {
    show_sequence(set, i, tokenizer ? &*tokenizer : nullptr);
  }
}

}  // namespace

void add_data_show_command(CLI::App& data) {
  const auto given = std::make_shared<Arguments>();
  CLI::App* command = data.add_subcommand("show", "sequences of a set with the mask visible");
  command->footer(fmt::format(
      "What is trained stands in {} {}. With --model control tokens stand in {} {}; a name of one "
      "outside them is spelled by a text.",
      kOpen, kClose, kControlOpen, kControlClose));
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  command->add_option("SET", given->set, "folder of a set")->required();
  add_whole_number<std::int64_t>(*command, "N", given->count, 1, kMost, "so many sequences");
  add_whole_number<std::int64_t>(*command, "--from", given->from, 0, kMost, "the first of them");
  command
      ->add_option("--model", given->model,
                   "checkpoint folder: text is shown, not ids (must be the set's tokenizer)")
      ->check(refuse_empty);
  add_ram_option(*command, given->machine);
  command->callback([given] { show(*given); });
}

}  // namespace engine::cli
