#include "engine/cli/common.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>

#include "engine/adapter/native.h"
#include "engine/base/float_mode.h"
#include "engine/base/parallel.h"
#include "engine/ops/kernels.h"

namespace engine::cli {
namespace {

using base::Error;

// What a process still grows by after the model is open: thread stacks, library heaps, pages of
// code that were not touched yet.
constexpr std::uint64_t kGrowthBytes = 24'000'000;

}  // namespace

std::string refuse_empty(const std::string& value) { return value.empty() ? "is empty" : ""; }

void add_machine_options(CLI::App& command, MachineOptions& options) {
  command.add_option("--threads", options.threads, "threads to compute with (0: all processors)")
      ->check(CLI::NonNegativeNumber);
  command
      .add_option("--ram", options.ram,
                  "memory budget: B, KB ... GB, KiB ... GiB (default: half of what there is)")
      ->check(refuse_empty);
  command.add_option("--isa", options.instruction_set,
                     "instruction set: scalar, avx2 or avx512 (default: the widest; same results)");
  command
      .add_option("--scratch", options.scratch,
                  "folder for activations on disk (default: $TMPDIR, else /tmp)")
      ->check(refuse_empty);
}

void apply_machine_options(const MachineOptions& options) {
  if (!base::float_mode_is_canonical()) {
    throw Error(
        "floating-point mode (MXCSR) is {:#06x} at start, {:#06x} is wanted: something "
        "loaded into this process flushes subnormals or changed the rounding",
        base::float_mode(), base::kCanonicalMxcsr);
  }
  if (options.threads > 0) base::set_threads(options.threads);
  if (!options.instruction_set.empty() && !ops::choose_instruction_set(options.instruction_set)) {
    throw Error("--isa {}: this processor runs {}", options.instruction_set,
                fmt::join(ops::instruction_sets(), ", "));
  }
}

std::uint64_t ram_bytes(const MachineOptions& options) {
  return options.ram.empty() ? base::default_ram_bytes() : base::parse_bytes(options.ram);
}

std::filesystem::path scratch_folder(const MachineOptions& options) {
  if (!options.scratch.empty()) return options.scratch;
  const char* temporary = std::getenv("TMPDIR");
  return temporary != nullptr ? temporary : "/tmp";
}

OpenModel open_model(const std::filesystem::path& folder, const MachineOptions& options,
                     bool strict) {
  OpenModel open;
  open.budget = std::make_unique<base::RamBudget>(ram_bytes(options));
  open.model = std::make_unique<model::Model>(folder, *open.budget,
                                              model::ModelOptions{scratch_folder(options), strict});
  open.budget->reserve("program, libraries, tensor index", base::rss_bytes() + kGrowthBytes);
  return open;
}

std::unique_ptr<model::AdapterSet> open_adapter(const std::filesystem::path& path,
                                                const model::Config& config,
                                                base::RamBudget& budget) {
  const std::filesystem::path file =
      std::filesystem::is_directory(path) ? path / "adapter.safetensors" : path;
  const adapter::NativeAdapter read = adapter::read_native_adapter(file);
  auto set = std::make_unique<model::AdapterSet>(
      config, model::AdapterSettings{read.rank, read.alpha, read.targets}, budget);
  for (const model::AdapterTensor& tensor : set->tensors()) {
    const adapter::NativeTensor* found = read.find(tensor.name);
    if (found == nullptr) throw Error("{}: there is no tensor {}", file.string(), tensor.name);
    if (found->shape != std::vector<std::int64_t>{tensor.rows, tensor.cols}) {
      throw Error("{}: tensor {} has shape [{}], the model wants [{},{}]", file.string(),
                  tensor.name, fmt::join(found->shape, ","), tensor.rows, tensor.cols);
    }
    std::copy(found->values.begin(), found->values.end(), tensor.values.begin());
  }
  if (read.tensors.size() != set->tensors().size()) {
    throw Error("{}: {} tensors, the model has places for {} of its targets", file.string(),
                read.tensors.size(), set->tensors().size());
  }
  return set;
}

}  // namespace engine::cli
