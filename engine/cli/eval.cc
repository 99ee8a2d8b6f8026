#include "engine/cli/eval.h"

#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/sha256.h"
#include "engine/cli/common.h"
#include "engine/cli/eval_model.h"
#include "engine/cli/eval_run.h"
#include "engine/cli/eval_settings.h"
#include "engine/cli/eval_tasks.h"
#include "engine/cli/eval_time.h"
#include "engine/cli/train_content.h"
#include "engine/measure/eval_results.h"
#include "engine/store/at_path.h"
#include "engine/store/durable.h"
#include "engine/train/manifest.h"
#include "engine/train/run_adapter.h"

namespace engine::cli {
namespace {

struct EvalOptions {
  std::string model, run, adapter, out, preregistration, digests, cache;
  TimeProofFiles proofs;
  TaskFiles files;
  EvalSettingOptions settings;
  std::int64_t batch_tokens = 4096;
  bool gradient = false, foreign_adapter = false, strict = false, training_data = false;
  MachineOptions machine;
};

measure::ChunkSettings chunks_of(const measure::EvalSettings& settings,
                                 const data::Tokenizer& tokenizer) {
  measure::ChunkSettings chunks{settings.chunk, settings.stride};
  if (settings.bos == "none") return chunks;
  chunks.bos = settings.bos == "first" ? measure::Bos::kFirst : measure::Bos::kEach;
  chunks.bos_id = tokenizer.special().find("[BOS]");
  if (chunks.bos_id < 0) {
    throw base::Error("--bos {}: the tokenizer of {} has no [BOS]", settings.bos,
                      tokenizer.folder().string());
  }
  return chunks;
}

measure::RegistrationFacts registration_of(const EvalOptions& options, const RunFolder* run) {
  measure::RegistrationFacts facts;
  if (run != nullptr) {
    facts.has_run = true;
    facts.run_sha256 = run->preregistration_sha256;
    facts.run_start_unix_ns = run->first_start_unix_ns;
  }
  if (options.preregistration.empty()) return facts;
  facts.given = true;
  try {
    facts.there = store::is_there(options.preregistration);
    if (store::is_file(options.preregistration)) {
      facts.file_sha256 = base::sha256_hex_of_file(options.preregistration);
    }
    facts.registered = measure::read_preregistration(options.preregistration);
  } catch (const base::Error& wrong) {
    facts.unreadable = wrong.what();
  }
  return facts;
}

// What is known of the registration before anything is computed, and the settings that hold. An objection is said
// at once, for the numbers, which the report has all the same, may take hours.
measure::EvalSettings judge_registration(const EvalOptions& options, const RunFolder* run,
                                         measure::Evaluation& evaluation) {
  evaluation.registration = registration_of(options, run);
  const auto& registered = evaluation.registration.registered;
  measure::EvalSettings settings = settings_of(options.settings);
  if (registered && registered->settings) {
    settings = *registered->settings;
    require_registered(options.settings, settings, options.preregistration);
  } else if (registered) {
    say(stderr,
        "note: {} was registered without chunk, stride, bos, seed and resamples: those of this "
        "evaluation were chosen after it\n",
        registered->name);
  }
  evaluation.verdict.time_proof = prove_time(options.proofs, evaluation.registration);
  if (registered && run != nullptr && !run->start_is_timed) {
    evaluation.verdict.time_proof +=
        "; the run's start is the word of manifest.json alone: timings.jsonl has no line of it";
  }
  for (const std::string& why : measure::objections(evaluation.registration)) {
    say(stderr, "warning: this evaluation will be refused: {}\n", why);
  }
  return settings;
}

// The weights against --digests, before hours of computing; into the report where a registration is to be judged.
void verify_weights(const EvalOptions& options, const OpenModel& open,
                    measure::Evaluation& evaluation) {
  const auto& registered = evaluation.registration.registered;
  const bool judged = registered && registered->settings;
  if (options.digests.empty() && !judged) return;
  const std::string verified =
      verify_content(options.digests, options.cache, options.machine.pack, open,
                     [](const std::string& text) { say(stderr, "note: {}\n", text); });
  if (judged) evaluation.weights = words_of_weights(verified, registered->model);
}

// Both models over one task, one line of results on the way.
measure::TaskResult evaluate(const measure::EvalTask& task, const OpenModel& open,
                             const model::AdapterSet* adapters, std::int64_t batch_tokens,
                             std::uint64_t seed) {
  const measure::EvalSweeps sweeps{batch_tokens};
  measure::PairedScores scores;
  if (adapters == nullptr) {
    scores.base = measure::score_units(*open.model, *open.budget, nullptr, task, sweeps);
  } else {
    scores = measure::score_pair(*open.model, *open.budget, *adapters, task, sweeps);
  }
  return measure::make_result(task, std::move(scores), seed);
}

// The gradient of the mean loss of the task's first units, into the adapters. How many depends on no
// option, for it is a result.
std::string first_gradient(const measure::EvalTask& task, const OpenModel& open,
                           model::AdapterSet& adapters) {
  const std::size_t count = measure::units_of_a_sweep(task.units, {});
  const model::Batch batch = measure::batch_of(std::span(task.units).first(count));
  open.model->require_budget(batch.documents, &adapters, true);
  adapters.clear_gradients();
  open.model->forward_backward(batch, adapters);
  return fmt::format("mean loss of units 0 ... {} of {}", count - 1, task.name);
}

// Loss, bits per byte, tokens and bytes side by side, to the last digit: loss * tokens / (bytes *
// ln 2) is the bits per byte.
void print_score(const measure::TaskResult& task, const char* who,
                 const measure::TaskScore& score) {
  say("  {:<8} loss {} perplexity {:.4f} top1 {:.4f} tokens {}", who, score.loss(),
      score.perplexity(), score.top1(), score.tokens);
  if (task.has_bytes) say(" bytes {} bits_per_byte {}", score.bytes, score.bits_per_byte());
  say("\n");
}

void print_result(const measure::TaskResult& task) {
  say("{}: {} units\n", task.name, task.base_units.size());
  print_score(task, "base", task.base);
  if (task.adapter_units.empty()) return;
  print_score(task, "adapter", task.adapter);
  for (const measure::Difference& d : task.differences) {
    say("  {} adapter minus base {}", d.metric, d.value);
    if (d.interval) say(", 95 % {} ... {}", d.interval->low, d.interval->high);
    say("\n");
  }
  if (task.routing.empty()) return;
  const measure::Overlap all = measure::over_layers(task.routing);
  say("  routing  jaccard {} unchanged {}\n", *all.jaccard(), *all.equal());
}

void write_out(store::TemporaryFolder& folder, const measure::Evaluation& evaluation) {
  store::write_file_durably(folder.path() / "results.json", measure::evaluation_json(evaluation));
  store::write_file_durably(folder.path() / "units.jsonl", measure::unit_lines(evaluation));
  folder.commit();
}

void run_eval(const EvalOptions& options) {
  if (!options.out.empty()) store::require_unused(options.out);
  require_readable(options.proofs);
  apply_machine_options(options.machine);
  std::optional<RunFolder> run;
  if (!options.run.empty()) run = read_run(options.run);
  const std::string model_folder = options.model.empty() && run ? run->model_folder : options.model;
  const OpenModel open = open_model(model_folder, options.machine, options.strict);
  const data::Tokenizer tokenizer(model_folder, open.model->config().vocabulary);

  measure::Evaluation evaluation;
  const measure::EvalSettings settings =
      judge_registration(options, run ? &*run : nullptr, evaluation);
  const measure::RegisteredModel here =
      model_of(open.model->config(), open.model->shards(), options.digests);
  if (const auto& registered = evaluation.registration.registered) {
    require_registered(here, *registered, options.preregistration, model_folder);
  }
  evaluation.chunks = chunks_of(settings, tokenizer);
  evaluation.seed = static_cast<std::uint64_t>(settings.seed);
  evaluation.tokenizer_sha256 = here.tokenizer_sha256;
  evaluation.config_sha256 = here.config_sha256;
  evaluation.headers_sha256 = here.headers_sha256;
  evaluation.experts = open.model->config().experts;
  evaluation.chosen = open.model->config().chosen;
  base::Charge held(*open.budget, "texts, sets and their ids");
  TaskFiles files = options.files;
  if (options.training_data) add_training_data(*run, files);
  const std::vector<measure::EvalTask> tasks =
      open_tasks(files, tokenizer, evaluation.chunks, *open.budget, held);

  if (options.training_data) require_trained_on(*run, tasks);

  std::unique_ptr<model::AdapterSet> adapters;
  const std::filesystem::path adapter = run ? run->adapter.string() : options.adapter;
  if (!adapter.empty()) {
    adapters = open_adapter(adapter, *open.model, options.foreign_adapter, *open.budget,
                            options.gradient ? model::Gradients::kHeld : model::Gradients::kNone);
    evaluation.adapter_sha256 = base::sha256_hex_of_file(train::adapter_file(adapter));
  }
  if (run) evaluation.run = run->facts;
  // Made now: a place that takes no folder is to be known before anything is computed.
  std::optional<store::TemporaryFolder> folder;
  if (!options.out.empty()) folder.emplace(options.out);
  verify_weights(options, open, evaluation);
  for (const measure::EvalTask& task : tasks) {
    evaluation.tasks.push_back(
        evaluate(task, open, adapters.get(), options.batch_tokens, evaluation.seed));
    print_result(evaluation.tasks.back());
  }
  if (adapters) {
    if (options.gradient) {
      evaluation.gradient_of = first_gradient(tasks.front(), open, *adapters);
    }
    evaluation.layers = measure::layer_norms(*adapters, open.model->config().layers);
  }
  report_pack(*open.model, options.machine);
  const std::string time = std::move(evaluation.verdict.time_proof);
  evaluation.verdict = measure::judge(evaluation.registration, evaluation.tasks);
  evaluation.verdict.time_proof = time;
  if (folder) write_out(*folder, evaluation);
  say("{}\n", evaluation.verdict.title);
  for (const std::string& why : evaluation.verdict.why) say("  {}\n", why);
  if (!evaluation.weights.empty()) say("  weights: {}\n", evaluation.weights);
  if (evaluation.verdict.outcome == measure::Outcome::kRefused) {
    throw base::Error("the preregistration does not hold for this run{}",
                      options.out.empty() ? "" : "; " + options.out + " says so");
  }
}

}  // namespace

void add_eval_command(CLI::App& app) {
  auto options = std::make_shared<EvalOptions>();
  CLI::App& command = *app.add_subcommand(
      "eval", "loss of base and adapter on texts and held-out sets, compared unit by unit");
  auto* model = command
                    .add_option("--model", options->model,
                                "checkpoint folder (default: that of the run's first start)")
                    ->check(refuse_empty);
  auto* run = command.add_option("--run", options->run, "run folder: its adapter, its log")
                  ->check(refuse_empty);
  command.add_option("--adapter", options->adapter, "adapter file, or a folder that holds one")
      ->check(refuse_empty)
      ->excludes(run)
      ->needs(model);
  auto* foreign = command.add_flag("--foreign-adapter", options->foreign_adapter, kForeignAdapter);
  command
      .add_option("--text", options->files.texts,
                  "plain texts, UTF-8, or folders of `lazylora data corpus`")
      ->check(refuse_empty);
  auto* ids = command.add_option("--ids", options->files.ids, "files of token ids, one task")
                  ->check(refuse_empty);
  command
      .add_flag("--training-data", options->training_data,
                "what the run was trained on, its ids or its set, as a task; refused if it changed")
      ->needs(run)
      ->excludes(ids);
  command.add_option("--set", options->files.sets, "sets of `lazylora data`: answers alone count")
      ->check(refuse_empty);
  add_eval_settings(command, options->settings);
  add_whole_number<std::int64_t>(command, "--batch-tokens", options->batch_tokens, 1, 1'000'000,
                                 "ids fed in one sweep; no result depends on it");
  command.add_flag("--gradient", options->gradient,
                   "one backward sweep more: norm of the gradient, layer by layer");
  auto* registration =
      command
          .add_option("--preregistration", options->preregistration,
                      "the registration that the run began with; decides the verdict")
          ->check(refuse_empty)
          ->excludes(foreign);  // it is about the model that the run was trained on
  add_time_proof_options(command, registration, options->proofs);
  auto* digests =
      command
          .add_option("--digests", options->digests,
                      "verify every tensor's bytes against this manifest before anything "
                      "is computed")
          ->check(refuse_empty);
  command
      .add_option("--cache", options->cache,
                  "remember a verification that held in this file (see lazylora shards)")
      ->needs(digests)
      ->check(refuse_empty);
  command.add_option("--out", options->out, "folder for results.json and units.jsonl")
      ->check(refuse_empty);
  command.add_flag("--strict", options->strict, "refuse E8M0 scale bytes of 255");
  add_machine_options(command, options->machine);
  add_pack_option(command, options->machine);
  command.callback([options] {
    as_usage([&] {
      if (options->model.empty() && options->run.empty()) {
        throw base::Error("--model or --run is required");
      }
      const TaskFiles& files = options->files;
      if (files.texts.empty() && files.ids.empty() && files.sets.empty() &&
          !options->training_data) {
        throw base::Error("--text, --ids, --training-data or --set is required");
      }
      settings_of(options->settings);
    });
    run_eval(*options);
  });
}

}  // namespace engine::cli
