#include "engine/cli/train.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <limits>
#include <memory>
#include <string>
#include <type_traits>
#include <unordered_set>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/parallel.h"
#include "engine/base/sha256.h"
#include "engine/cli/common.h"
#include "engine/cli/eval_model.h"
#include "engine/cli/progress.h"
#include "engine/cli/stop_signals.h"
#include "engine/cli/train_content.h"
#include "engine/cli/version.h"
#include "engine/data/ids.h"
#include "engine/data/packed_set.h"
#include "engine/data/utf8.h"
#include "engine/measure/preregistration.h"
#include "engine/ops/kernels.h"
#include "engine/store/at_path.h"
#include "engine/store/disk_probe.h"
#include "engine/train/trainer.h"

namespace engine::cli {
namespace {

struct TrainArguments {
  std::string model;
  std::vector<std::string> ids;
  std::string data, held_out;
  std::string out;
  std::string name;
  bool resume = false;
  std::vector<std::string> overrides;
  std::string digests, cache;
  std::string preregistration;
  MachineOptions machine;
  train::Settings settings;
};

constexpr std::int64_t kSmallBatch = 1'000'000;  // tokens

// A name is part of file and log lines.
std::string refuse_unless_plain(const std::string& name) {
  for (const char c : name) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '.' || c == '_' || c == '-';
    if (!plain) return fmt::format("\"{}\": letters, digits and . _ - only", name);
  }
  return "";
}

train::SettingTexts split_overrides(const std::vector<std::string>& overrides) {
  train::SettingTexts texts;
  for (const std::string& text : overrides) {
    const std::size_t equals = text.find('=');
    if (equals == std::string::npos) throw base::Error("--override {}: not NAME=VALUE", text);
    const std::string name = text.substr(0, equals);
    for (const auto& [other, value] : texts) {
      if (other == name) throw base::Error("--override {}: {} is overridden twice", text, name);
    }
    texts.emplace_back(name, text.substr(equals + 1));
  }
  return texts;
}

std::vector<std::string> command_line(const CLI::App& command) {
  std::vector<std::string> arguments{"train"};
  for (const CLI::Option* option : command.get_options()) {
    if (option->count() == 0) continue;
    arguments.push_back(option->get_name());
    if (option->get_items_expected_max() == 0) continue;  // a flag, whose value is not said
    for (const std::string& value : option->results()) arguments.push_back(value);
  }
  return arguments;
}

train::Start start_of(const TrainArguments& given, std::vector<std::string> arguments) {
  train::Start start;
  start.arguments = std::move(arguments);
  start.model_folder = store::absolute_path(given.model).string();
  for (const std::string& file : given.ids) {
    start.ids_files.push_back(store::absolute_path(file).string());
  }
  start.working_folder = store::working_folder().string();
  if (!given.data.empty()) start.set_folder = store::absolute_path(given.data).string();
  if (!given.held_out.empty()) {
    start.held_out_folder = store::absolute_path(given.held_out).string();
  }
  start.program = "lazylora " LAZYLORA_VERSION;
  start.git_commit = LAZYLORA_GIT_COMMIT;
  start.instruction_set = ops::kernels().instruction_set;
  start.threads = base::threads();
  start.ram_bytes = ram_bytes(given.machine);
  start.ram_source = given.machine.ram.empty()
                         ? "half of the smallest of physical memory and cgroup limits"
                         : "--ram " + given.machine.ram;
  return start;
}

// What is wrong whatever the files are; overrides are applied, because they must hold by the time
// the model is opened (strict).
train::SettingTexts settle_usage(TrainArguments& given) {
  train::SettingTexts overrides;
  const std::string working = store::working_folder().string();
  if (data::first_invalid_utf8(working)) {
    throw base::Error("{}: the working folder's name is no UTF-8, and the manifest, JSON, has it",
                      working);
  }
  as_usage([&] {
    overrides = split_overrides(given.overrides);
    for (const auto& [name, text] : overrides) train::set(given.settings, name, text);
    train::require_valid(given.settings);
    if (given.ids.empty() == given.data.empty()) {
      throw base::Error("either --ids FILE... or --data SET: {} given",
                        given.ids.empty() ? "neither is" : "both are");
    }
    if (!given.data.empty() && given.settings.mask_first != 0) {
      throw base::Error("--mask-first {} with --data: what is trained of a set stands in the set",
                        given.settings.mask_first);
    }
    if (given.held_out.empty() != (given.settings.eval_every == 0)) {
      throw base::Error("--eval-every {} {} --eval-data: one says when, the other what",
                        given.settings.eval_every, given.held_out.empty() ? "without" : "with");
    }
  });
  return overrides;
}

// A set of this model's ids: the right number of them, and of its own tokenizer if it has one.
std::shared_ptr<const data::PackedSet> open_set(const std::string& folder, const OpenModel& open,
                                                const std::string& model_folder) {
  const auto set = std::make_shared<const data::PackedSet>(folder, *open.budget);
  const data::SetFacts& facts = set->facts();
  if (facts.vocabulary != open.model->config().vocabulary) {
    throw base::Error("{}: ids of a vocabulary of {}, the model has {}", folder, facts.vocabulary,
                      open.model->config().vocabulary);
  }
  for (const char* name : {"tiktoken.model", "tokenizer_config.json"}) {
    const std::filesystem::path file = std::filesystem::path(model_folder) / name;
    if (store::is_there(file)) set->require_made_with(file, base::sha256_hex_of_file(file));
  }
  return set;
}

// The loss of what is trained would pass for that of other text.
void require_other_text(const data::PackedSet& set, const data::PackedSet& held_out,
                        base::RamBudget& budget) {
  constexpr std::uint64_t kDigestBytes = 160;  // a node and its text of 64 characters
  base::Charge held(budget, "digests of held-out records");
  std::unordered_set<std::string> records;
  held_out.for_each_record([&](const std::string& digest) {
    held.grow(kDigestBytes);
    records.insert(digest);
  });
  const std::size_t all = records.size();
  set.for_each_record([&](const std::string& digest) { records.erase(digest); });
  if (records.size() == all) return;
  throw base::Error(
      "--eval-data {}: {} of its {} records are in --data {}; `lazylora data held-out` makes a set "
      "of others",
      held_out.folder().string(), all - records.size(), all, set.folder().string());
}

train::Job job_of(const TrainArguments& given, const OpenModel& open,
                  const train::SettingTexts& overrides, std::vector<std::string> arguments) {
  const model::Model& model = *open.model;
  train::Job job;
  job.run = given.out;
  job.resume = given.resume;
  job.name = given.name;
  job.settings = given.settings;
  job.overrides = overrides;
  for (const std::string& file : given.ids) {
    job.sequence_names.push_back(file);
    job.sequences.push_back(data::read_ids(file, model.config().vocabulary, open.budget.get()));
  }
  if (!given.data.empty()) job.set = open_set(given.data, open, given.model);
  if (!given.held_out.empty()) job.held_out = open_set(given.held_out, open, given.model);
  // A run that began so may go on.
  if (job.set && job.held_out && !given.resume) {
    require_other_text(*job.set, *job.held_out, *open.budget);
  }
  job.identity.config_sha256 = model.config().sha256;
  job.identity.headers_sha256 = train::headers_digest(model.shards());
  if (!given.preregistration.empty()) {
    const auto registered = measure::read_preregistration(given.preregistration);
    require_registered(model_of(model.config(), model.shards(), given.digests), registered,
                       given.preregistration, given.model);
    job.identity.preregistration_sha256 = base::sha256_hex_of_file(given.preregistration);
  }
  job.start = start_of(given, std::move(arguments));
  return job;
}

// Adapters, gradients and two moments are still to be taken when the plan is made. Returns the folder
// for all of them, if memory cannot hold them beside the largest step.
std::filesystem::path require_budget(train::OpenRun& run, const OpenModel& open,
                                     const std::filesystem::path& scratch) {
  const model::Model& model = *open.model;
  const model::AdapterSet outline(model.config(), run.job.settings.adapter);
  const model::Plan one = model.plan(std::array<std::int64_t, 2>{0, 1}, &outline, true);
  const auto limit = static_cast<std::int64_t>(std::min<std::uint64_t>(
      open.budget->limit_bytes(), std::numeric_limits<std::int64_t>::max()));
  // Up to a million tokens the plan is made in no time, and says more.
  const std::int64_t most = std::max(limit / (one.residual_bytes + one.bank_bytes), kSmallBatch);
  std::int64_t least = 0;
  train::require_memory(run, *open.budget, most, [&](ops::Documents documents) {
    const model::Plan plan = model.plan(documents, &outline, true);
    least = std::max(least, plan.least_bytes());
    // What cannot hold with them on disk, cannot hold.
    model.require_budget(documents, &outline, true, outline.memory_bytes(true));
  });
  const auto in_memory = static_cast<std::uint64_t>(least + outline.memory_bytes(false));
  const bool on_disk = in_memory > open.budget->free_bytes();
  if (run.job.held_out) {
    run.held_out_together = train::sequences_a_sweep(
        data::feed_of(run.job.held_out, false), [&](const model::Batch& batch) {
          model.require_budget(batch.documents, &outline, false, outline.memory_bytes(on_disk));
        });
  }
  return on_disk ? scratch : std::filesystem::path();
}

// What a run that may begin begins with.
void announce(const train::OpenRun& run, const std::string& out, ProgressLine& progress) {
  progress.note(fmt::format("run {} in {}", run.run_id, out));
  for (const std::string& notice : run.notices) progress.note(notice);
  if (run.from) progress.note(fmt::format("going on behind {}", run.from->folder.string()));
  if (run.from && run.from->state.step == run.job.settings.schedule.total) {
    progress.note(fmt::format("all {} steps are done; --override steps=N asks for more",
                              run.job.settings.schedule.total));
  }
  for (const train::SettingChange& change : run.changes) {
    progress.note(fmt::format("{}: {} becomes {}", change.name, change.saved, change.now));
  }
}

train::Observer observe(ProgressLine& progress) {
  return {
      [&](const train::Movement& movement) { progress.move(movement); },
      [&](const train::StepReport& report) { progress.finish_step(report); },
      [&](std::int64_t step, const train::Evaluation& evaluation, double seconds) {
        progress.finish_evaluation(step, evaluation, seconds);
      },
      [&](std::int64_t step, const std::filesystem::path& folder, double seconds) {
        progress.finish_checkpoint(step, folder.string(), seconds);
      },
      [&](const std::string& notice) { progress.note(notice); },
  };
}

void run_train(TrainArguments given, std::vector<std::string> arguments) {
  const train::SettingTexts overrides = settle_usage(given);
  apply_machine_options(given.machine);
  train::require_place(given.out, given.resume);
  const OpenModel open = open_model(given.model, given.machine, given.settings.strict);
  model::Model& model = *open.model;
  train::OpenRun run = train::open_run(job_of(given, open, overrides, std::move(arguments)));
  if (run.job.set) {
    open.budget->reserve("sequences of a step",
                         static_cast<std::uint64_t>(run.job.settings.sequences *
                                                    run.job.set->most_ids() * data::kBytesAnId));
  }
  const std::filesystem::path scratch = scratch_folder(given.machine);
  const std::filesystem::path on_disk = require_budget(run, open, scratch);

  const train::Settings settings = run.job.settings;
  ProgressLine progress(stderr, settings, model.config().layers);
  run.job.start.digests_sha256 =
      verify_content(given.digests, given.cache, given.machine.pack, open,
                     [&](const std::string& text) { progress.note(text); });
  if (!run.from) run.job.scales = scan_scales(model.shards(), settings.strict, progress);
  model::AdapterSet adapters(model.config(), settings.adapter, *open.budget, on_disk);
  const train::SweepFunctions sweep{
      [&](const model::Batch& batch, model::AdapterSet& set, const model::SweepHooks& hooks) {
        return model.forward_backward(batch, set, hooks);
      },
      [&](train::Timing& timing) {
        timing.bytes_read = model.shards().bytes_read();
        timing.reads_retried = model.shards().reads_retried();
      },
      [&](const model::Batch& batch, const model::AdapterSet& set, const model::SweepHooks& hooks) {
        return model.forward(batch, &set, hooks);
      },
  };
  train::Trainer trainer(std::move(run), adapters, *open.budget, sweep, observe(progress));
  announce(trainer.opened(), given.out, progress);
  if (!on_disk.empty()) {
    progress.note(
        fmt::format("adapters, gradients and moments are on disk, in {}", on_disk.string()));
  }
  if (const std::string_view what = store::memory_file_system(scratch); !what.empty()) {
    progress.note(
        fmt::format("{} is {}: what a step puts there takes memory that --ram does not count "
                    "(--scratch FOLDER)",
                    scratch.string(), what));
  }
  const StopSignals signals(
      "\nlazylora: stopping behind what is at hand; steps that are not saved yet are saved then; "
      "once more ends it at once\n");
  if (!trainer.run(StopSignals::asked)) {
    say("stopped as asked; the same command with --resume goes on, to the same bytes\n");
    return;
  }
  say("adapter {}/adapter.safetensors\nlog {}/log.jsonl\nreads {}\npeak RSS {}\n", given.out,
      given.out, how_read(model, given.machine), base::format_bytes(base::peak_rss_bytes()));
}

}  // namespace

void add_train_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("train", "train adapters on a model read from disk");
  const auto given = std::make_shared<TrainArguments>();
  command->add_option("--model", given->model, "checkpoint folder")->required();
  command->add_option("--ids", given->ids, "files of token ids, one sequence each, in this order")
      ->check(refuse_empty);
  command
      ->add_option("--data", given->data,
                   "instead: a set of `lazylora data build`, shuffled anew every epoch")
      ->check(refuse_empty);
  command
      ->add_option("--eval-data", given->held_out,
                   "a set whose loss is taken every --eval-every steps; no bit of the training "
                   "depends on it")
      ->check(refuse_empty);
  command->add_option("--out", given->out, "run folder")->required();
  // A flag a setting; its text is judged where a text of --override is.
  const train::SettingTexts defaults = train::texts_of(given->settings);
  train::visit_settings(given->settings,
                        [&, next = std::size_t{0}](const char* name, auto& member,
                                                   const train::Range&, const char* what) mutable {
                          const std::string flag = fmt::format("--{}", name);
                          const std::string& text = defaults[next++].second;
                          if constexpr (std::is_same_v<decltype(member), bool&>) {
                            command->add_flag(flag, member, what);
                          } else {
                            const auto take = [given, name](const std::string& value) {
                              try {
                                train::set(given->settings, name, value);
                              } catch (const base::Error& error) {
                                throw CLI::ValidationError(fmt::format("--{}", error.what()));
                              }
                            };
                            constexpr bool kWhole = std::is_same_v<decltype(member), std::int64_t&>;
                            constexpr bool kReal = std::is_same_v<decltype(member), double&>;
                            command->add_option_function<std::string>(flag, take, what)
                                ->type_name(kWhole  ? "N"
                                            : kReal ? "X"
                                                    : "NAMES")
                                ->default_str(text);
                          }
                        });
  command->get_option("--steps")->required()->default_str("");
  command->add_flag("--resume", given->resume, "go on with the run in --out");
  command->add_option("--override", given->overrides,
                      "NAME=VALUE: change a setting of the run on resume");
  command->add_option("--name", given->name, "part of the run's id")->check(refuse_unless_plain);
  auto* digests =
      command
          ->add_option("--digests", given->digests,
                       "verify every tensor's bytes against this manifest before the first step")
          ->check(refuse_empty);
  command
      ->add_option("--cache", given->cache,
                   "remember a verification that held in this file (see lazylora shards)")
      ->needs(digests)
      ->check(refuse_empty);
  command
      ->add_option(
          "--preregistration", given->preregistration,
          "what this run is to answer (lazylora preregister), of this model; its digest is "
          "recorded")
      ->check(refuse_empty);
  add_machine_options(*command, given->machine);
  add_pack_option(*command, given->machine);
  command->callback([given, command] { run_train(*given, command_line(*command)); });
}

}  // namespace engine::cli
