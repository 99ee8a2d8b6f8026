#include <fmt/format.h>

#include <memory>
#include <string>

#include "engine/base/budget.h"
#include "engine/cli/common.h"
#include "engine/cli/data.h"
#include "engine/data/corpus.h"

namespace engine::cli {

namespace {

struct Arguments {
  std::string list, after, out;
  MachineOptions machine;
};

void build(const Arguments& given) {
  as_usage([&] { data::require_day(given.after, "--after"); });
  base::RamBudget budget(ram_bytes(given.machine));
  reserve_process(budget);
  const data::Corpus corpus = data::build_corpus(given.out, {given.list, given.after}, budget);
  for (const data::CorpusText& text : corpus.texts) {
    say("{} {:<32} {:>12} bytes  revision {}\n", text.date, text.name, text.bytes, text.revision);
  }
  for (const data::CorpusText& text : corpus.left_out) {
    say("{} {:<32} left out: not after {}\n", text.date, text.name, corpus.after);
  }
  say("{}: {} texts, {} left out; manifest {}\n", given.out, corpus.texts.size(),
      corpus.left_out.size(), corpus.manifest_sha256);
}

}  // namespace

void add_data_corpus_command(CLI::App& data) {
  const auto given = std::make_shared<Arguments>();
  CLI::App* command =
      data.add_subcommand("corpus", "texts dated after a day, with digests and revisions");
  command
      ->add_option("--list", given->list,
                   "JSON lines {\"file\", \"date\", \"revision\", \"source\"}, files beside it")
      ->required();
  command
      ->add_option("--after", given->after,
                   "YYYY-MM-DD, the last day that is left out: when the model's data ended")
      ->required();
  command->add_option("--out", given->out, "folder to write; must not exist")->required();
  add_ram_option(*command, given->machine);
  command->callback([given] { build(*given); });
}

}  // namespace engine::cli
