#include "engine/cli/pack.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "engine/cli/common.h"
#include "engine/cli/growth.h"
#include "engine/cli/pass_progress.h"
#include "engine/model/pack_order.h"
#include "engine/store/durable.h"
#include "engine/store/pack.h"

namespace engine::cli {
namespace {

struct PackOptions {
  std::string model, out;
  bool verify = false;
  MachineOptions machine;
};

// Of a tensor: its names in index and tables, its row as text and as JSON.
constexpr std::uint64_t kTableBytesATensor = 4096;
// The header, and what the index says of it.
constexpr std::uint64_t kFileBytesATensor = 1024;

std::uint64_t tensors_of(const std::vector<store::PackRun>& runs) {
  std::uint64_t tensors = 0;
  for (const store::PackRun& run : runs) tensors += run.size();
  return tensors;
}

// What tells a copy's files from others, wherever the folder stands.
std::string files_of(const std::filesystem::path& folder) {
  std::string text;
  for (const char* name : {store::kPackFile, store::kPackIndex}) {
    const std::filesystem::path path = folder / name;
    struct stat file {};
    if (::stat(path.c_str(), &file) != 0) {
      throw base::Error("{}: {}", path.string(), std::strerror(errno));
    }
    text += fmt::format("{}{} ({} bytes, inode {}, modified {}.{:09})", text.empty() ? "" : ", ",
                        name, file.st_size, file.st_ino, file.st_mtim.tv_sec, file.st_mtim.tv_nsec);
  }
  return text;
}

// What was remembered of a copy that differs goes; what differs is named first, and whatever comes of that.
void require_same(std::span<const store::Finding> findings, const std::filesystem::path& folder) {
  if (findings.empty()) return;
  for (const store::Finding& finding : findings) {
    say(stderr, "error: {}\n", store::describe(finding));
  }
  const std::filesystem::path verified = folder / store::kPackVerified;
  std::error_code failed;
  std::filesystem::remove(verified, failed);
  throw base::Error("{}: {} of its tensors {} not what {} says{}", folder.string(), findings.size(),
                    findings.size() == 1 ? "is" : "are", store::kPackIndex,
                    failed ? fmt::format("; {}, which says otherwise, cannot be removed: {}",
                                         verified.string(), failed.message())
                           : "");
}

void run(const PackOptions& options) {
  // The new folder; or, with --verify, the one that is there.
  if (!options.verify) store::require_unused(options.out);
  apply_machine_options(options.machine);
  const OpenModel open = open_model(options.model, options.machine, false);
  const store::ShardReader& shards = open.model->shards();
  const std::string& config = open.model->config().sha256;
  base::Buffer<std::byte> room = open.budget->take_room(
      "a piece of a tensor", static_cast<std::int64_t>(store::kPackRoomBytes));
  const std::vector<store::PackRun> runs = model::pack_order(shards, open.model->config());
  const base::Charge table(*open.budget, "table of the packed tensors",
                           tensors_of(runs) * kTableBytesATensor);
  const std::uint64_t bytes = store::packed_bytes(runs);
  // Both passes.
  PassProgress progress(2 * bytes);
  const auto count = [&](std::uint64_t more) { progress.add(more); };
  // What was just written is to come from the disk, not from the page cache.
  const store::ReadSettings direct{.direct = store::DirectReads::kAlways,
                                   .header_memory = header_memory(*open.budget)};
  // The files as they were before they were read: what is remembered is of that time.
  const auto verified = [&](const std::filesystem::path& folder, store::PackCheck what) {
    store::PackedCopy copy(folder, shards, config, direct);
    const std::vector<store::Finding> findings =
        store::verify_pack(copy, shards, what, room.span(), count);
    require_same(findings, folder);
    return copy;
  };
  if (options.verify) {
    store::remember_verified(options.out, verified(options.out, store::PackCheck::kBoth));
  } else {
    require_space(options.out, bytes + tensors_of(runs) * kFileBytesATensor);
    store::TemporaryFolder folder(options.out);
    store::write_pack(folder.path(), shards, config, runs, room.span(), count);
    const std::string compared = files_of(folder.path());
    verified(folder.path(), store::PackCheck::kCopy);
    folder.commit();
    // `verified` names the paths, and those are others now: the files must not be.
    const store::PackedCopy copy(options.out, shards, config);
    if (const std::string now = files_of(options.out); now != compared) {
      throw base::Error("{}: was compared with the checkpoint as {}, but is {} now", options.out,
                        compared, now);
    }
    store::remember_verified(options.out, copy);
  }
  say("{}: {} tensors, {} bytes, the same as in {}\n", options.out, tensors_of(runs), bytes,
      options.model);
}

}  // namespace

void add_pack_command(CLI::App& app) {
  auto options = std::make_shared<PackOptions>();
  CLI::App& command = *app.add_subcommand(
      "pack", "copy all but the routed experts to a faster disk, in the order of reading");
  command.add_option("MODEL", options->model, "checkpoint folder")->required();
  command.add_option("OUT", options->out, "folder to write; must not be there")->required();
  command.add_flag(
      "--verify", options->verify,
      "OUT is there: compare every byte of it with the checkpoint, and note in it that "
      "they agree");
  add_ram_option(command, options->machine);
  command.callback([options] { run(*options); });
}

}  // namespace engine::cli
