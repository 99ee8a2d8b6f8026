#include "engine/cli/make_model.h"

#include <fmt/format.h>

#include <cstdint>
#include <cstdio>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "engine/base/budget.h"
#include "engine/cli/common.h"
#include "engine/model/synthesize.h"

namespace engine::cli {

namespace {

struct Arguments {
  std::string out;
  std::string shape = "tiny";
  std::uint64_t seed = 1;
  std::vector<std::int64_t> real_layers;
  MachineOptions machine;
};

void make_model(const Arguments& arguments) {
  model::CheckpointShape shape = model::checkpoint_shape(arguments.shape);
  if (!shape.sparse && !arguments.real_layers.empty()) {
    throw CLI::ValidationError(
        fmt::format("--real-layers: of {} all layers are real", arguments.shape));
  }
  shape.real_layers = arguments.real_layers;
  apply_machine_options(arguments.machine);
  base::RamBudget budget(ram_bytes(arguments.machine));
  reserve_process(budget);
  std::uint64_t bytes = 0;
  std::int64_t tensors = 0;
  int files = 0;
  model::synthesize(
      arguments.out, shape, arguments.seed, budget, [&](const model::WrittenFile& file) {
        say("{:<36} {:>14} bytes {:>7} tensors\n", file.name, file.bytes, file.tensors);
        std::fflush(stdout);
        bytes += file.bytes;
        tensors += file.tensors;
        ++files;
      });
  say("{}: {} files, {} bytes, {} tensors (shape {}, seed {})\n", arguments.out, files, bytes,
      tensors, arguments.shape, arguments.seed);
}

}  // namespace

void add_make_model_command(CLI::App& app) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand(
      "make-model", "write a random K3-shaped checkpoint in the released layout");
  command->add_option("OUT", arguments->out, "folder to write; must not exist or be empty")
      ->required();
  command
      ->add_option("--shape", arguments->shape,
                   "tiny, small, medium; full-sparse: all sizes of the release, 1.56 TB of which "
                   "all but 6 GB, and 16.5 GB a real layer, are holes")
      ->check(CLI::IsMember({"tiny", "small", "medium", "full-sparse"}))
      ->capture_default_str();
  command
      ->add_option("--real-layers", arguments->real_layers,
                   "layers of full-sparse that have all their weights, e.g. 1,3")
      ->delimiter(',')
      ->type_name("N,...");
  add_whole_number<std::uint64_t>(*command, "--seed", arguments->seed, 0,
                                  std::numeric_limits<std::uint64_t>::max(),
                                  "the same seed gives the same bytes");
  add_threads_option(*command, arguments->machine);
  add_ram_option(*command, arguments->machine);
  command->callback([arguments] { make_model(*arguments); });
}

}  // namespace engine::cli
