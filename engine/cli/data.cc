#include "engine/cli/data.h"

#include <fmt/format.h>

#include <limits>
#include <memory>
#include <string>

#include "engine/base/budget.h"
#include "engine/base/error.h"
#include "engine/cli/common.h"
#include "engine/data/build_set.h"
#include "engine/data/tokenizer.h"
#include "engine/data/utf8.h"
#include "engine/model/config.h"

namespace engine::cli {

namespace {

struct Arguments {
  std::string model, records, out;
  std::vector<std::string> not_in;
  std::string too_long = "refuse";
  std::string packing = "first-fit";
  std::int64_t count = 0;
  data::BuildSettings settings;
  MachineOptions machine;
};

constexpr std::int64_t kMostLength = std::int64_t{1} << 27;
constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

void build(const Arguments& given) {
  data::BuildSettings settings = given.settings;
  settings.records = given.records;
  settings.not_in.assign(given.not_in.begin(), given.not_in.end());
  if (given.count > 0) settings.count = given.count;
  if (given.too_long == "drop") settings.too_long = data::TooLong::kDrop;
  if (given.too_long == "truncate") settings.too_long = data::TooLong::kTruncate;
  if (given.packing == "in-order") settings.packing = data::Packing::kInOrder;
  data::require_utf8(settings.filters.required, "--require");
  base::RamBudget budget(ram_bytes(given.machine));
  reserve_process(budget);
  const data::Tokenizer tokenizer(given.model, model::load_config(given.model).vocabulary);
  const data::ChatForm chat(tokenizer, given.model);
  const data::BuildReport report = data::build_set(given.out, settings, tokenizer, chat, budget);
  say("{}\n", report.counts());
  if (report.truncated > 0) say("{} of these truncated\n", report.truncated);
  for (const auto& [name, category] : report.categories) {
    say("  {:<32} {:>8} left {:>8} selected\n", name.empty() ? "(no category)" : name,
        category.left, category.selected);
  }
  const auto room = static_cast<double>(report.sequences * settings.length);
  say("{}: {} sequences of at most {} ids, {:.1f}% full\n", given.out, report.sequences,
      settings.length, 100.0 * static_cast<double>(report.ids) / room);
  say("{} documents, {} ids, {} trained\nmanifest {}\n", report.selected, report.ids,
      report.trained, report.manifest_sha256);
}

void add_filters(CLI::App& command, data::Filters& filters) {
  const auto length = [&](const char* flag, std::int64_t& value, const char* what) {
    add_whole_number<std::int64_t>(command, flag, value, 0, kMost, what)->default_str("");
  };
  command.add_option("--categories", filters.categories, "only these, separated by commas")
      ->delimiter(',');
  length("--min-question", filters.question.least,
         "characters of instruction and context, at least (default: 1)");
  length("--max-question", filters.question.most, "and at most");
  length("--min-response", filters.response.least,
         "characters of the response, at least (default: 1)");
  length("--max-response", filters.response.most, "and at most");
  command
      .add_option("--require", filters.required,
                  "only records with at least one of these characters")
      ->check(refuse_empty);
  command.add_flag("--keep-duplicates", filters.keep_duplicates,
                   "equal records all stay (default: the first)");
}

void add_fields(CLI::App& command, data::FieldNames& names) {
  const auto field = [&](const char* flag, std::string& value) {
    command.add_option(flag, value, "what this field is called in the records")
        ->capture_default_str()
        ->check(refuse_empty);
  };
  field("--instruction-field", names.instruction);
  field("--context-field", names.context);
  field("--response-field", names.response);
  field("--category-field", names.category);
}

CLI::App* add_build(CLI::App& data, const char* name, const char* what,
                    const std::shared_ptr<Arguments>& given) {
  CLI::App* command = data.add_subcommand(name, what);
  data::BuildSettings& settings = given->settings;
  command->add_option("--model", given->model, "checkpoint folder with its tokenizer's files")
      ->required();
  command->add_option("--records", given->records, "JSON lines, one record each")->required();
  command->add_option("--out", given->out, "folder to write; must not exist or be empty")
      ->required();
  add_whole_number<std::int64_t>(*command, "--length", settings.length, 2, kMostLength,
                                 "most ids of a sequence")
      ->required()
      ->default_str("");
  add_whole_number<std::uint64_t>(*command, "--seed", settings.seed, 0,
                                  std::numeric_limits<std::uint64_t>::max(),
                                  "of selection and random order");
  add_whole_number<std::int64_t>(*command, "--count", given->count, 1,
                                 std::numeric_limits<std::int32_t>::max(),
                                 "so many records, from each category in proportion (default: all)")
      ->default_str("");
  command->add_flag("--shuffle", settings.shuffle,
                    "documents in random order (default: that of the file)");
  command
      ->add_option("--too-long", given->too_long,
                   "records of more than --length ids: refuse, drop or truncate")
      ->check(CLI::IsMember({"refuse", "drop", "truncate"}))
      ->capture_default_str();
  command->add_option("--packing", given->packing, "first-fit or in-order")
      ->check(CLI::IsMember({"first-fit", "in-order"}))
      ->capture_default_str();
  add_filters(*command, settings.filters);
  command->add_option("--not-in", given->not_in, "sets whose records are left out");
  add_fields(*command, settings.names);
  add_ram_option(*command, given->machine);
  command->callback([given] { build(*given); });
  return command;
}

}  // namespace

void add_data_command(CLI::App& app) {
  CLI::App* data = app.add_subcommand("data", "instruction records to packed, masked sequences");
  data->require_subcommand(1);
  add_build(*data, "build", "write a set", std::make_shared<Arguments>());
  add_build(*data, "held-out", "write a set of records that no given set has",
            std::make_shared<Arguments>())
      ->get_option("--not-in")
      ->required();
  add_data_corpus_command(*data);
  add_data_show_command(*data);
}

}  // namespace engine::cli
