#include "engine/cli/train.h"

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/parallel.h"
#include "engine/cli/common.h"
#include "engine/cli/progress.h"
#include "engine/cli/version.h"
#include "engine/data/ids.h"
#include "engine/ops/kernels.h"
#include "engine/store/scale_scan.h"
#include "engine/train/trainer.h"

namespace engine::cli {
namespace {

struct TrainArguments {
  std::string model;
  std::vector<std::string> ids;
  std::string out;
  std::string name;
  bool resume = false;
  std::vector<std::string> overrides;
  MachineOptions machine;
  train::Settings settings;
};

// A name is part of file and log lines.
void require_plain(const std::string& name) {
  for (const char c : name) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '.' || c == '_' || c == '-';
    if (!plain) throw base::Error("--name \"{}\": letters, digits and . _ - only", name);
  }
}

train::SettingTexts split_overrides(const std::vector<std::string>& overrides) {
  train::SettingTexts texts;
  for (const std::string& text : overrides) {
    const std::size_t equals = text.find('=');
    if (equals == std::string::npos) throw base::Error("--override {}: not NAME=VALUE", text);
    texts.emplace_back(text.substr(0, equals), text.substr(equals + 1));
  }
  return texts;
}

std::vector<std::string> command_line(const CLI::App& command) {
  std::vector<std::string> arguments{"train"};
  for (const CLI::Option* option : command.get_options()) {
    if (option->count() == 0) continue;
    arguments.push_back(option->get_name());
    if (option->get_type_size() == 0) continue;  // a flag
    for (const std::string& value : option->results()) arguments.push_back(value);
  }
  return arguments;
}

train::Start start_of(const TrainArguments& given, std::vector<std::string> arguments) {
  train::Start start;
  start.arguments = std::move(arguments);
  start.model_folder = std::filesystem::absolute(given.model).string();
  for (const std::string& file : given.ids) {
    start.ids_files.push_back(std::filesystem::absolute(file).string());
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

// Every scale byte of the model, before the first day of work: an overflowing group is refused now,
// and the groups under 255 stand in the manifest and in the first line of the log.
store::ScaleScan scan(const store::ShardReader& shards, bool strict, ProgressLine& progress) {
  std::vector<store::Finding> findings;
  const store::ScaleScan scales = store::scan_scales(shards, strict, findings);
  store::throw_first_error(findings);
  if (scales.nan_groups > 0) {
    progress.note(fmt::format("scale byte 255: {} of {} groups, {} with non-zero codes, taken as 0",
                              scales.nan_groups, scales.groups, scales.nan_groups_with_codes));
  }
  return scales;
}

void run_train(TrainArguments given, std::vector<std::string> arguments) {
  require_plain(given.name);
  apply_machine_options(given.machine);
  const train::SettingTexts overrides = split_overrides(given.overrides);
  // The model is opened before the run is: --override strict=... must hold by then.
  for (const auto& [name, text] : overrides) train::set(given.settings, name, text);
  const OpenModel open = open_model(given.model, given.machine, given.settings.strict);
  model::Model& model = *open.model;

  train::Job job;
  job.run = given.out;
  job.resume = given.resume;
  job.name = given.name;
  job.settings = given.settings;
  job.overrides = overrides;
  for (const std::string& file : given.ids) {
    job.sequence_names.push_back(file);
    job.sequences.push_back(data::read_ids(file, model.config().vocabulary));
  }
  job.identity.config_sha256 = model.config().sha256;
  job.identity.weights_sha256 = train::weights_digest(model.shards());
  job.start = start_of(given, std::move(arguments));
  train::OpenRun run = train::open_run(std::move(job));

  const train::Settings settings = run.job.settings;
  const std::int64_t first = run.from ? run.from->state.step + 1 : 1;
  ProgressLine progress(stderr, settings.schedule.total, first, model.config().layers);
  progress.note(fmt::format("run {} in {}", run.run_id, given.out));
  for (const std::string& notice : run.notices) progress.note(notice);
  if (run.from) progress.note(fmt::format("going on behind {}", run.from->folder.string()));
  for (const train::SettingChange& change : run.changes) {
    progress.note(fmt::format("{}: {} becomes {}", change.name, change.saved, change.now));
  }

  if (!run.from) run.job.scales = scan(model.shards(), settings.strict, progress);
  // Adapters, gradients and two moments are still to be taken when the plan is made.
  const model::AdapterSet outline(model.config(), settings.adapter);
  const std::int64_t adapter_bytes =
      4 * outline.parameters() * static_cast<std::int64_t>(sizeof(float));
  train::require_memory(run, [&](const model::Batch& batch) {
    model.require_budget(batch, &outline, true, adapter_bytes);
  });
  model::AdapterSet adapters(model.config(), settings.adapter, *open.budget);
  const train::SweepFunctions sweep{
      [&](const model::Batch& batch, model::AdapterSet& set, const model::SweepHooks& hooks) {
        return model.forward_backward(batch, set, hooks);
      },
      [&](train::Timing& timing) {
        timing.bytes_read = model.shards().bytes_read();
        timing.reads_retried = model.shards().reads_retried();
      },
  };
  const train::Observer observer{
      [&](std::int64_t step, std::string_view direction, std::int64_t layer) {
        progress.move(step, direction, layer);
      },
      [&](const train::StepReport& report) {
        progress.finish_step(
            report.step, fmt::format("loss {:.6f}  lr {:.3g}  norm {:.3g}  {} tokens", report.loss,
                                     report.learning_rate, report.grad_norm, report.trained));
      },
      [&](std::int64_t step, const std::filesystem::path& folder) {
        progress.note(fmt::format("step {} saved in {}", step, folder.string()));
      },
  };
  train::Trainer(std::move(run), adapters, *open.budget, sweep, observer).run();
  fmt::print("adapter {}/adapter.safetensors\nlog {}/log.jsonl\npeak RSS {}\n", given.out,
             given.out, base::format_bytes(base::peak_rss_bytes()));
}

}  // namespace

void add_train_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("train", "train adapters on a model read from disk");
  const auto given = std::make_shared<TrainArguments>();
  command->add_option("--model", given->model, "checkpoint folder")->required();
  command->add_option("--ids", given->ids, "files of token ids, one sequence each")->required();
  command->add_option("--out", given->out, "run folder")->required()->check(refuse_empty);
  train::visit_settings(given->settings, [&](const char* name, auto& member, const char* what) {
    const std::string flag = fmt::format("--{}", name);
    if constexpr (std::is_same_v<decltype(member), bool&>) {
      command->add_flag(flag, member, what);
    } else {
      CLI::Option* option = command->add_option(flag, member, what)->capture_default_str();
      if constexpr (std::is_same_v<decltype(member), std::vector<std::string>&>) {
        option->delimiter(',');
      }
    }
  });
  command->get_option("--steps")->required();
  command->add_flag("--resume", given->resume, "go on with the run in --out");
  command->add_option("--override", given->overrides,
                      "NAME=VALUE: change a setting of the run on resume");
  command->add_option("--name", given->name, "part of the run's id");
  add_machine_options(*command, given->machine);
  command->callback([given, command] { run_train(*given, command_line(*command)); });
}

}  // namespace engine::cli
