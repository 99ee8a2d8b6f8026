#include "engine/cli/common.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <system_error>

#include "engine/adapter/native.h"
#include "engine/base/float_mode.h"
#include "engine/base/parallel.h"
#include "engine/cli/growth.h"
#include "engine/data/utf8.h"
#include "engine/ops/kernels.h"
#include "engine/store/at_path.h"
#include "engine/train/manifest.h"
#include "engine/train/run_adapter.h"

namespace engine::cli {
namespace {

using base::Error;

// A thread's stack down to the deepest kernel, which keeps two thirds of this on it.
constexpr std::uint64_t kStackBytes = std::uint64_t{1} << 20;
// More than any machine this runs on has; far more would not start.
constexpr int kMostThreads = 1024;

}  // namespace

void as_usage(const std::function<void()>& check) {
  try {
    check();
  } catch (const Error& error) {
    throw CLI::ValidationError(error.what());
  }
}

std::string refuse_empty(const std::string& value) { return value.empty() ? "is empty" : ""; }

void refuse_empty_required(CLI::App& command) {
  for (CLI::Option* option : command.get_options()) {
    if (option->get_required()) option->check(refuse_empty);
  }
  for (CLI::App* below : command.get_subcommands([](CLI::App*) { return true; })) {
    refuse_empty_required(*below);
  }
}

void refuse_unless_utf8(CLI::App& command) {
  const auto refuse = [](const std::string& value) -> std::string {
    const std::optional<std::size_t> at = data::first_invalid_utf8(value);
    if (!at) return "";
    return fmt::format(
        "\"{}\" is no UTF-8 from byte {} on, and is to be written down as JSON, which is", value,
        *at);
  };
  for (CLI::Option* option : command.get_options()) {
    if (option->get_items_expected_max() > 0) option->check(refuse);
  }
  for (CLI::App* below : command.get_subcommands([](CLI::App*) { return true; })) {
    refuse_unless_utf8(*below);
  }
}

void add_threads_option(CLI::App& command, MachineOptions& options) {
  add_whole_number(command, "--threads", options.threads, 0, kMostThreads,
                   "threads to compute with (0: all processors)");
}

void add_ram_option(CLI::App& command, MachineOptions& options) {
  command
      .add_option("--ram", options.ram,
                  "memory budget: B, KB ... GB, KiB ... GiB (default: half of what there is)")
      ->check(refuse_empty)
      ->check([](const std::string& text) -> std::string {
        try {
          base::parse_bytes(text);
        } catch (const Error& error) {
          return error.what();
        }
        return "";
      });
}

void add_pack_option(CLI::App& command, MachineOptions& options) {
  command
      .add_option("--pack", options.pack,
                  "folder that `lazylora pack` made of this checkpoint: what it has is read there")
      ->check(refuse_empty);
}

void add_machine_options(CLI::App& command, MachineOptions& options) {
  add_threads_option(command, options);
  add_ram_option(command, options);
  command
      .add_option("--isa", options.instruction_set,
                  "instruction set: scalar, avx2 or avx512 (default: the widest; same results)")
      ->check(CLI::IsMember({"scalar", "avx2", "avx512"}));
  command
      .add_option(
          "--scratch", options.scratch,
          "folder on a disk for activations, and for adapters that --ram does not hold (default: "
          "$TMPDIR, else /tmp)")
      ->check(refuse_empty);
  command
      .add_option("--reads", options.reads,
                  "auto, direct (around the page cache) or buffered; auto: direct for a checkpoint "
                  "that memory could not hold")
      ->check(CLI::IsMember({"auto", "direct", "buffered"}));
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

void reserve_process(base::RamBudget& budget) {
  const auto threads = static_cast<std::uint64_t>(base::threads());
  budget.reserve("program, libraries, tensor index",
                 base::rss_bytes() + kGrowthBytes + threads * kStackBytes);
}

OpenModel open_model(const std::filesystem::path& folder, const MachineOptions& options,
                     bool strict) {
  OpenModel open;
  open.budget = std::make_unique<base::RamBudget>(ram_bytes(options));
  model::ModelOptions how{scratch_folder(options), strict};
  if (options.reads == "direct") how.reads.direct = store::DirectReads::kAlways;
  if (options.reads == "buffered") how.reads.direct = store::DirectReads::kNever;
  how.reads.header_memory = header_memory(*open.budget);
  how.pack = options.pack;
  how.pack_lost = [](const std::string& why) {
    say(stderr, "warning: the packed copy is not read any more, the checkpoint is: {}\n", why);
  };
  open.model = std::make_unique<model::Model>(folder, *open.budget, how);
  reserve_process(*open.budget);
  return open;
}

std::string how_read(const model::Model& model, const MachineOptions& options) {
  const store::ShardReader& shards = model.shards();
  if (options.pack.empty()) return shards.how_read();
  return fmt::format("{}; {} of {} bytes from {}{}", shards.how_read(), shards.bytes_from_copy(),
                     shards.bytes_read(), options.pack,
                     shards.copy_is_lost() ? ", which was lost" : "");
}

void report_pack(const model::Model& model, const MachineOptions& options) {
  if (options.pack.empty()) return;
  say(stderr, "{:<18} {}\n", "reads", how_read(model, options));
}

void require_space(const std::filesystem::path& out, std::uint64_t bytes) {
  std::filesystem::path folder = store::absolute_path(out).parent_path();
  while (!store::is_there(folder) && folder.has_relative_path()) {
    folder = folder.parent_path();
  }
  std::error_code failed;
  const std::filesystem::space_info space = std::filesystem::space(folder, failed);
  if (!failed && space.available < bytes) {
    throw Error("{}: {} takes {}, {} are free", folder.string(), out.string(),
                base::format_bytes(bytes), base::format_bytes(space.available));
  }
}

void require_same_model(const std::string& file, const adapter::NativeMetadata& adapter,
                        const model::Model& model, bool foreign) {
  for (const auto& [key, now] :
       {std::pair("config_sha256", model.config().sha256),
        std::pair("headers_sha256", train::headers_digest(model.shards()))}) {
    const auto found = adapter.more.find(key);
    if (found == adapter.more.end()) {
      say(stderr, "warning: {}: says nothing of the checkpoint it is for (no {})\n", file, key);
      return;
    }
    if (found->second == now) continue;
    const std::string why =
        fmt::format("{}: is for another checkpoint: its {} is {}, here it is {}", file, key,
                    found->second, now);
    if (!foreign) throw Error("{} (--foreign-adapter takes it all the same)", why);
    say(stderr, "warning: {}\n", why);
    return;
  }
}

std::uint64_t file_bytes(const std::filesystem::path& file) {
  std::error_code unknown;
  const std::uintmax_t bytes = std::filesystem::file_size(file, unknown);
  return unknown ? 0 : bytes;
}

std::unique_ptr<model::AdapterSet> open_adapter(const std::filesystem::path& path,
                                                const model::Model& model, bool foreign,
                                                base::RamBudget& budget,
                                                model::Gradients gradients) {
  const std::filesystem::path file = train::adapter_file(path);
  train::require_logged(file);
  const adapter::NativeFile stored(file);
  const adapter::NativeOutline& read = stored.outline();
  require_same_model(file.string(), read, model, foreign);
  auto set = std::make_unique<model::AdapterSet>(
      model.config(), model::AdapterSettings{read.rank, read.alpha, read.targets}, budget,
      std::filesystem::path(), gradients);
  for (const model::AdapterTensor& tensor : set->tensors()) {
    const adapter::NativeTensor* found = read.find(tensor.name);
    if (found == nullptr) throw Error("{}: there is no tensor {}", file.string(), tensor.name);
    if (found->shape != std::vector<std::int64_t>{tensor.rows, tensor.cols}) {
      throw Error("{}: tensor {} has shape [{}], the model wants [{},{}]", file.string(),
                  tensor.name, fmt::join(found->shape, ","), tensor.rows, tensor.cols);
    }
    stored.read(*found, tensor.values);
  }
  if (read.tensors.size() != set->tensors().size()) {
    throw Error("{}: {} tensors, the model has places for {} of its targets", file.string(),
                read.tensors.size(), set->tensors().size());
  }
  return set;
}

}  // namespace engine::cli
