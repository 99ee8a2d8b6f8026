#include "engine/cli/trace.h"

#include <fmt/format.h>

#include <memory>
#include <string>
#include <vector>

#include "engine/cli/common.h"
#include "engine/data/ids.h"
#include "engine/measure/routing_trace.h"
#include "engine/measure/trace_folder.h"
#include "engine/store/durable.h"
#include "engine/train/manifest.h"
#include "engine/train/run_adapter.h"

namespace engine::cli {
namespace {

struct TraceOptions {
  std::string model, adapter, out, tag;
  std::vector<std::string> ids;
  bool hdf5 = false;
  bool with_ids = false;
  bool strict = false;
  bool foreign_adapter = false;
  MachineOptions machine;
};

void run_trace(const TraceOptions& options) {
  store::require_unused(options.out);
  apply_machine_options(options.machine);
  const OpenModel open = open_model(options.model, options.machine, options.strict);
  const model::Config& config = open.model->config();
  measure::TraceOrigin origin;
  origin.tag = options.tag;
  origin.with_ids = options.with_ids;
  origin.config_sha256 = config.sha256;
  origin.headers_sha256 = train::headers_digest(open.model->shards());
  for (const std::string& file : options.ids) {
    origin.documents.push_back(data::read_ids(file, config.vocabulary, open.budget.get()));
    if (origin.documents.back().empty()) throw base::Error("{}: holds no token ids", file);
  }
  std::unique_ptr<model::AdapterSet> adapters;
  if (!options.adapter.empty()) {
    adapters = open_adapter(options.adapter, *open.model, options.foreign_adapter, *open.budget,
                            model::Gradients::kNone);
    origin.adapter_sha256 = base::sha256_hex_of_file(train::adapter_file(options.adapter));
  }
  const model::SweepResult result = measure::write_trace(*open.model, *open.budget, adapters.get(),
                                                         origin, options.out, options.hdf5);
  say("{}: {} tokens, {} layers, bytes read {}, peak RSS {}\n", options.out, result.nll.size(),
      config.layers - config.dense_layers, result.bytes_read,
      base::format_bytes(base::peak_rss_bytes()));
  report_pack(*open.model, options.machine);
}

void add_export_command(CLI::App& trace) {
  struct Arguments {
    std::string from, out;
    MachineOptions machine;
  };
  auto arguments = std::make_shared<Arguments>();
  CLI::App& command = *trace.add_subcommand(
      "export", "write a trace again without tag, ids and text: the digests of ids and text stay");
  command.add_option("TRACE", arguments->from, "trace folder, ours or LazyLoRA's")->required();
  command.add_option("OUT", arguments->out, "folder to write; must not exist")->required();
  add_ram_option(command, arguments->machine);
  command.callback([arguments] {
    base::RamBudget budget(ram_bytes(arguments->machine));
    reserve_process(budget);
    measure::export_trace(arguments->from, arguments->out, budget);
    say("{}\n", arguments->out);
  });
}

}  // namespace

void add_trace_command(CLI::App& app) {
  auto options = std::make_shared<TraceOptions>();
  CLI::App* command = app.add_subcommand(
      "trace", "record which experts every token chooses in every layer, and their weights");
  command->add_option("--model", options->model, "checkpoint folder");
  command->add_option("--ids", options->ids, "files of token ids, one text each");
  command->add_option("--out", options->out, "trace folder to write; must not exist")
      ->check(refuse_empty);
  command->add_option("--adapter", options->adapter, "adapter file, or a folder that holds one")
      ->check(refuse_empty);
  command->add_flag("--foreign-adapter", options->foreign_adapter, kForeignAdapter);
  command->add_option("--tag", options->tag, "a name, for the manifest");
  command->add_flag("--hdf5", options->hdf5, "write trace.h5 besides, weights in float32");
  command->add_flag("--with-ids", options->with_ids, "ids in the manifest, not digests alone");
  command->add_flag("--strict", options->strict, "refuse E8M0 scale bytes of 255");
  add_machine_options(*command, options->machine);
  add_pack_option(*command, options->machine);
  add_export_command(*command);
  command->callback([options, command] {
    if (!command->get_subcommands().empty()) return;
    for (const char* name : {"--model", "--ids", "--out"}) {
      if (command->count(name) == 0) throw CLI::RequiredError(name);
    }
    run_trace(*options);
  });
}

}  // namespace engine::cli
