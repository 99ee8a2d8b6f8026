#include "engine/cli/preregister.h"

#include <fmt/format.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "engine/base/budget.h"
#include "engine/base/error.h"
#include "engine/base/sha256.h"
#include "engine/cli/common.h"
#include "engine/cli/eval_model.h"
#include "engine/cli/eval_settings.h"
#include "engine/cli/growth.h"
#include "engine/data/corpus.h"
#include "engine/data/tokenizer.h"
#include "engine/measure/preregistration.h"
#include "engine/model/checkpoint_layout.h"
#include "engine/store/at_path.h"
#include "engine/store/durable.h"
#include "engine/store/folder_kind.h"
#include "engine/store/shard_reader.h"

namespace engine::cli {
namespace {

namespace fs = std::filesystem;

struct PreregisterOptions {
  std::string folder = "preregistration", model, digests;
  MachineOptions machine;
  std::vector<std::string> data;
  EvalSettingOptions settings;
  measure::Preregistration registered;
};

// Data under the names and digests that an evaluation gives them: a set has those of its manifest, a
// corpus those of each of its texts.
void add_data(const std::string& data, std::vector<measure::RegisteredData>& registered) {
  const std::filesystem::path path = std::filesystem::path(data).lexically_normal();
  if (data::is_corpus(path)) {
    for (const data::CorpusText& text : data::read_corpus(path).texts) {
      registered.push_back({text.name, text.sha256});
    }
    return;
  }
  const bool folder = store::is_folder(path);
  if (folder) store::require_kind(path, store::FolderKind::kDataSet);
  registered.push_back({(path.has_filename() ? path : path.parent_path()).filename().string(),
                        base::sha256_hex_of_file(folder ? path / "manifest.json" : path)});
}

measure::RegisteredModel model_at(const PreregisterOptions& options) {
  const base::RamBudget budget(ram_bytes(options.machine));
  const store::ShardReader shards(options.model, {.header_memory = header_memory(budget)});
  const model::Config config = model::load_config(options.model);
  store::throw_first_error(model::check_layout(config, shards));
  const data::Tokenizer whole(options.model, config.vocabulary);
  return model_of(config, shards, options.digests);
}

// A number is one claim's, whatever slug stands behind it.
void require_number_free(const fs::path& folder, const std::string& name) {
  if (!store::is_there(folder)) return;
  const std::string number = name.substr(0, 5);
  for (const fs::path& path : store::entries(folder)) {
    const std::string other = path.filename().string();
    if (other.starts_with(number) && !store::is_there(path)) {
      throw base::Error(
          "{}: is a link that leads nowhere, in the place of a registration: remove it",
          path.string());
    }
    if (!other.starts_with(number) || other.starts_with(name + ".")) continue;
    throw base::Error(
        "{}: has that number already, and {} may not: `make new-claim` prints the next free one",
        path.string(), name);
  }
}

// Whether this is what stands there, but for the time; another text is refused.
bool is_registered(const fs::path& json, measure::Preregistration registered) {
  if (!store::is_there(json)) return false;
  try {
    registered.registered_unix_ns = measure::read_preregistration(json).registered_unix_ns;
  } catch (const base::Error& wrong) {
    throw base::Error("{}; it is in the place of a registration: move it away", wrong.what());
  }
  const std::string there = base::sha256_hex_of_file(json);
  const std::string wanted = base::sha256_hex(measure::preregistration_json(registered));
  if (there == wanted) return true;
  throw base::Error(
      "{}: is there already, SHA-256 {}, and this text would have {}: what is registered is not "
      "changed; another question takes another number (`make new-claim`)",
      json.string(), there, wanted);
}

void run_preregister(measure::Preregistration registered, const PreregisterOptions& options) {
  for (const std::string& data : options.data) add_data(data, registered.data);
  registered.settings = settings_of(options.settings);
  registered.registered_unix_ns = std::chrono::duration_cast<std::chrono::nanoseconds>(
                                      std::chrono::system_clock::now().time_since_epoch())
                                      .count();
  registered.model = model_at(options);
  as_usage([&] { measure::require_valid(registered, "preregister"); });
  const fs::path json = fs::path(options.folder) / (registered.name + ".json");
  const fs::path page = fs::path(options.folder) / (registered.name + ".md");
  require_number_free(options.folder, registered.name);
  if (is_registered(json, registered)) {
    say("{}  {}\nis registered already with this text; nothing was changed\n",
        base::sha256_hex_of_file(json), json.string());
    return;
  }
  if (store::is_there(page)) {
    throw base::Error(
        "{}: is there, and {} is not: left by a registration that did not end; remove it",
        page.string(), json.filename().string());
  }
  store::create_folders(options.folder);
  const std::string text = measure::preregistration_json(registered);
  const std::string digest = base::sha256_hex(text);
  // The page first: killed between the two, there is no registration, and the next try says why.
  store::write_file_durably(page, measure::preregistration_page(registered, digest));
  store::write_file_durably(json, text);
  const auto readable = fs::perms::owner_read | fs::perms::group_read | fs::perms::others_read;
  for (const fs::path& path : {json, page}) store::set_permissions(path, readable);
  say("{}  {}\ngive it to `lazylora train --preregistration {}`\n", digest, json.string(),
      json.string());
}

}  // namespace

void add_preregister_command(CLI::App& app) {
  auto options = std::make_shared<PreregisterOptions>();
  measure::Preregistration& r = options->registered;
  CLI::App& command = *app.add_subcommand(
      "preregister", "write down what a run is to answer and what would refute it, before it runs");
  command.add_option("NAME", r.name, "NNNN-slug, see `make new-claim`")->required();
  command.add_option("--folder", options->folder, "where NAME.json and NAME.md go")
      ->check(refuse_empty)
      ->capture_default_str();
  command.add_option("--question", r.question, "the question")->required();
  command.add_option("--data", options->data, "texts, corpora and sets that it is answered on")
      ->required();
  command
      .add_option("--model", options->model,
                  "checkpoint folder that it is asked of: its tokenizer, config.json and headers")
      ->required();
  command
      .add_option("--digests", options->digests,
                  "manifest of `lazylora shards --write-digests`: its weights as well")
      ->check(refuse_empty);
  add_ram_option(command, options->machine);
  command.add_option("--task", r.task, "task that decides, e.g. text:FILE or set:FOLDER")
      ->required();
  command.add_option("--metric", r.metric, "loss, bits_per_byte or top1: adapter minus base")
      ->required();
  command.add_option("--direction", r.direction, "below or above")->required();
  command.add_option("--threshold", r.threshold, "that the difference is to lie below or above")
      ->required();
  add_whole_number<std::int64_t>(command, "--units", r.units, 2, 1'000'000'000,
                                 "the sample: at least so many chunks or answers")
      ->required()
      ->default_str("");
  add_eval_settings(command, options->settings);
  command.add_option("--stopping-rule", r.stopping_rule, "when the run ends")->required();
  command.add_option("--refuted-by", r.refuted_by, "what would refute it")->required();
  command.add_option("--expected", r.expected, "what you expect")->required();
  command.callback([options] { run_preregister(options->registered, *options); });
}

}  // namespace engine::cli
