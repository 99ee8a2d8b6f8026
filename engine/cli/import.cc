#include "engine/cli/import.h"

#include <fmt/ranges.h>

#include "engine/adapter/delta_proof.h"
#include "engine/adapter/export.h"
#include "engine/cli/adapter_modules.h"
#include "engine/cli/common.h"
#include "engine/store/at_path.h"
#include "engine/store/durable.h"

namespace engine::cli {
namespace {

namespace fs = std::filesystem;

struct ImportOptions {
  std::string source, model, out;
  bool foreign_adapter = false;
  MachineOptions machine;
};

void run(const ImportOptions& options) {
  apply_machine_options(options.machine);
  store::require_unused(options.out);
  const OpenModel open = open_model(options.model, options.machine, false);
  const AdapterModules modules(open.model->config(), open.model->shards());
  const adapter::Exported exported = adapter::open_exported(options.source, modules.base());
  adapter::NativeAdapter native = adapter::import_native(exported, modules.base().modules);
  const adapter::DeltaProof proof = adapter::prove_delta(exported, native, modules.base().modules);
  const fs::path beside = fs::path(exported.file).parent_path();
  if (store::is_there(beside / adapter::kKeysFile)) {
    native.more = adapter::check_expected_keys(beside, exported);
  } else {
    say(stderr, "warning: {}: content not verified: there is no {} beside it\n", exported.file,
        adapter::kKeysFile);
  }
  require_same_model(exported.file, native, *open.model, options.foreign_adapter);
  adapter::write_native_adapter(options.out, native.tensors, native);
  say("targets            {}\n", fmt::join(native.targets, ","));
  say("scale              alpha/r = {}/{}\n", native.alpha, native.rank);
  say("change             equal to that of {} in {} modules, {} values compared\n", exported.file,
      proof.modules, proof.values);
  say("written            {}\n", options.out);
}

}  // namespace

void add_import_command(CLI::App& app) {
  auto options = std::make_shared<ImportOptions>();
  CLI::App& command =
      *app.add_subcommand("import", "make an adapter file from a PEFT folder or a GGUF adapter");
  command
      .add_option("SRC", options->source,
                  "folder with adapter_config.json or adapter.gguf, or a GGUF file")
      ->required();
  command.add_option("--model", options->model, "checkpoint folder")->required();
  command.add_option("--out", options->out, "adapter file to write; must not be there")->required();
  command.add_flag("--foreign-adapter", options->foreign_adapter, kForeignAdapter);
  add_machine_options(command, options->machine);
  command.callback([options] { run(*options); });
}

}  // namespace engine::cli
