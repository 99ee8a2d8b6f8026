#include "engine/cli/export.h"

#include <fmt/ranges.h>

#include <cstdio>

#include "engine/adapter/delta_proof.h"
#include "engine/adapter/export.h"
#include "engine/cli/adapter_modules.h"
#include "engine/cli/common.h"
#include "engine/cli/probe.h"
#include "engine/store/at_path.h"
#include "engine/store/durable.h"
#include "engine/train/run_adapter.h"

namespace engine::cli {
namespace {

using base::Error;
namespace fs = std::filesystem;

struct ExportOptions {
  std::string source, model, format, out, verify;
  std::string dtype = "f32";
  std::string peft_version, base_model;
  ProbeSettings probe;
  bool foreign_adapter = false;
  MachineOptions machine;
};

// An adapter file, a folder that holds one (a finished run, a checkpoint), or a run still going: its
// newest complete checkpoint. What a run says against its adapter is not shipped.
fs::path adapter_to_export(const fs::path& source) {
  if (store::is_folder(source / "checkpoints") &&
      !store::is_there(source / "adapter.safetensors")) {
    if (const auto found = train::find_newest(source); found.newest) {
      train::require_logged(*found.newest);
      return train::adapter_file(found.newest->folder);
    }
  }
  const fs::path file = train::adapter_file(source);
  train::require_logged(file);
  return file;
}

void report(const adapter::Exported& exported, const adapter::DeltaProof& proof) {
  say("tensors            {} ({}), keys SHA-256 {}\n", exported.keys, base::name_of(exported.dtype),
      exported.keys_sha256);
  say("scale              alpha/r = {}/{} = {}\n", exported.alpha, exported.rank, exported.scale);
  say("change             equal to the native one in {} modules, {} matrices of the model, {} "
      "values compared\n",
      proof.modules, proof.matrices, proof.values);
  if (exported.dtype == base::Dtype::kBf16) {
    say("rounding           {} native values are no bfloat16; largest relative change of a "
        "product {:.3g}{}{}\n",
        proof.rounded, proof.worst, proof.worst_module.empty() ? "" : " in ", proof.worst_module);
  }
}

void prove(const fs::path& folder, const adapter::NativeAdapter& native,
           const AdapterModules& modules,
           const std::function<void(const adapter::Exported&)>& then) {
  const adapter::Exported exported = adapter::open_exported(folder, modules.base());
  const adapter::DeltaProof proof = adapter::prove_delta(exported, native, modules.base().modules);
  adapter::check_expected_keys(fs::path(exported.file).parent_path(), exported);
  then(exported);
  report(exported, proof);
}

void run(const ExportOptions& options) {
  apply_machine_options(options.machine);
  if (!options.out.empty()) store::require_unused(options.out);
  const fs::path file = adapter_to_export(options.source);
  const OpenModel open = open_model(options.model, options.machine, false);
  const model::Config& config = open.model->config();
  const AdapterModules modules(config, open.model->shards());
  std::optional<base::Charge> held(std::in_place, *open.budget, "adapter to export",
                                   file_bytes(file));
  adapter::NativeAdapter native = adapter::read_native_adapter(file);
  require_same_model(file.string(), native, *open.model, options.foreign_adapter);
  // Refuses targets that there are not.
  const model::AdapterSet outline(config, {native.rank, native.alpha, native.targets});
  if (!options.verify.empty()) return prove(options.verify, native, modules, [](const auto&) {});

  adapter::ExportSettings settings;
  settings.format = *adapter::format_named(options.format);
  settings.dtype = options.dtype == "bf16" ? base::Dtype::kBf16 : base::Dtype::kF32;
  settings.peft_version = options.peft_version;
  settings.base_model = options.base_model.empty() ? options.model : options.base_model;
  const std::vector<adapter::Module> adapted = modules.of(native.targets);
  const adapter::ExportSize size = adapter::export_size(native, adapted, settings);
  const base::Charge table(*open.budget, "table of the exported tensors", size.table_bytes());
  say("{} from {}, {}\n", options.format, file.string(), base::format_bytes(size.bytes));
  std::fflush(stdout);
  require_space(options.out, size.bytes + size.table_bytes());

  store::TemporaryFolder folder(options.out);
  adapter::write_export(folder.path(), native, modules.base(), adapted, settings);
  prove(folder.path(), native, modules, [&](const adapter::Exported& exported) {
    native = {};  // from here on the file speaks
    held.reset();
    if (options.probe.tokens == 0) return;
    write_probe(folder.path(), exported, modules.base(), open, options.probe,
                scratch_folder(options.machine));
  });
  folder.commit();
  say("written            {}\n", options.out);
}

}  // namespace

void add_export_command(CLI::App& app) {
  auto options = std::make_shared<ExportOptions>();
  CLI::App& command = *app.add_subcommand(
      "export", "write an adapter for other programs, and prove that it is the same adapter");
  command
      .add_option("ADAPTER", options->source,
                  "adapter file, run folder, or checkpoint folder of a run")
      ->required();
  command.add_option("--model", options->model, "checkpoint folder")->required();
  command.add_flag("--foreign-adapter", options->foreign_adapter, kForeignAdapter);
  auto* verify = command
                     .add_option("--verify", options->verify,
                                 "write nothing: prove that this export is ADAPTER's")
                     ->check(refuse_empty);
  auto* out = command.add_option("--out", options->out, "folder to write; must not be there")
                  ->check(refuse_empty)
                  ->excludes(verify);
  auto* format = command
                     .add_option("--format", options->format,
                                 "peft (experts' adapter once), peft-per-expert, peft-fused, gguf")
                     ->check([](const std::string& name) {
                       return adapter::format_named(name)
                                  ? std::string()
                                  : name + " is none of peft, peft-per-expert, peft-fused, gguf";
                     })
                     ->needs(out);
  out->needs(format);
  command.add_option("--dtype", options->dtype, "f32 or bf16")
      ->check(CLI::IsMember({"f32", "bf16"}))
      ->capture_default_str()
      ->needs(out);
  command
      .add_option("--peft-version", options->peft_version,
                  "the PEFT it is for, X.Y.Z; decides the layout of peft-fused")
      ->check(refuse_empty)
      ->needs(out);
  command
      .add_option("--base-model", options->base_model,
                  "what adapter_config.json calls the model (default: --model as given)")
      ->check(refuse_empty)
      ->needs(out);
  add_whole_number<std::int64_t>(
      command, "--probe-tokens", options->probe.tokens, 0, 4096,
      "length of the probe prompt; 0: no probe, which saves two forward passes")
      ->needs(out);
  add_whole_number<std::uint64_t>(command, "--probe-seed", options->probe.seed, 0,
                                  std::numeric_limits<std::uint64_t>::max(),
                                  "of the probe's token ids")
      ->needs(out);
  add_machine_options(command, options->machine);
  command.callback([options, verify, out] {
    if (verify->count() + out->count() == 0) {
      throw CLI::RequiredError("--format and --out, or --verify");
    }
    if (options->format == "peft-fused" && options->peft_version.empty()) {
      throw CLI::RequiredError("--peft-version: it decides the layout of peft-fused, and it");
    }
    if (!options->peft_version.empty()) {
      if (options->format == "gguf") throw CLI::ExcludesError("--format gguf", "--peft-version");
      as_usage([&] { adapter::fused_input(options->peft_version); });
    }
    run(*options);
  });
}

}  // namespace engine::cli
