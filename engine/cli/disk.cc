#include "engine/cli/disk.h"

#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "engine/base/budget.h"
#include "engine/base/error.h"
#include "engine/cli/common.h"
#include "engine/store/disk_probe.h"

namespace engine::cli {
namespace {

// The six tensors of an expert of the released model.
constexpr std::uint64_t kExpertBytes = 17'547'264;
constexpr int kInFlight = 4;

struct DiskOptions {
  std::string folder;
  std::string bytes = "1GB";
  bool json = false;
  MachineOptions machine;
};

void print_text(const DiskOptions& options, std::uint64_t blocks, const store::DiskProbe& probe,
                const std::vector<std::string>& warnings) {
  say("{}: {}, {} whole blocks of {} bytes, an expert of the released model\n", options.folder,
      base::format_bytes(blocks * kExpertBytes), blocks, kExpertBytes);
  for (const store::ProbedReads& reads : probe.reads) {
    const std::string how =
        fmt::format("{}, {} in flight", reads.direct ? "direct" : "buffered", reads.in_flight);
    if (reads.not_measured.empty()) {
      say("{:<24} {:>7.0f} MB/s\n", how, reads.bytes_per_second() / 1e6);
    } else {
      say("{:<24} not measured: {}\n", how, reads.not_measured);
    }
  }
  for (const std::string& warning : warnings) say("warning: {}\n", warning);
}

void print_json(const DiskOptions& options, const store::DiskProbe& probe,
                const std::vector<std::string>& warnings) {
  nlohmann::ordered_json out;
  out["folder"] = options.folder;
  out["block_bytes"] = kExpertBytes;
  out["in_memory"] = probe.in_memory;
  for (const store::ProbedReads& reads : probe.reads) {
    nlohmann::ordered_json row;
    row["direct"] = reads.direct;
    row["in_flight"] = reads.in_flight;
    if (reads.not_measured.empty()) {
      row["bytes"] = reads.bytes;
      row["bytes_per_second"] = reads.bytes_per_second();
      row["cached"] = reads.cached ? nlohmann::ordered_json(*reads.cached) : nullptr;
    } else {
      row["not_measured"] = reads.not_measured;
    }
    out["reads"].push_back(std::move(row));
  }
  out["warnings"] = warnings;
  say_json(out.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + '\n');
}

void run(const DiskOptions& options) {
  std::uint64_t blocks = 0;
  as_usage([&] {
    const std::uint64_t bytes = base::parse_bytes(options.bytes);
    blocks = bytes / kExpertBytes;
    if (blocks > 0) return;
    throw base::Error("--bytes {}: is {} bytes, and less than a block of {} is not read",
                      options.bytes, bytes, kExpertBytes);
  });
  base::RamBudget budget(ram_bytes(options.machine));
  reserve_process(budget);
  const store::DiskProbe probe =
      store::probe_disk(options.folder, blocks * kExpertBytes, kExpertBytes, kInFlight, budget);
  const std::vector<std::string> warnings = store::doubts(probe);
  options.json ? print_json(options, probe, warnings)
               : print_text(options, blocks, probe, warnings);
}

}  // namespace

void add_disk_command(CLI::App& app) {
  auto options = std::make_shared<DiskOptions>();
  CLI::App& command = *app.add_subcommand(
      "disk",
      "measure how fast a folder's disk delivers experts, around the page cache and through it");
  command.add_option("DIR", options->folder, "folder on the disk in question")->required();
  command
      .add_option(
          "--bytes", options->bytes,
          "how much to write and read, in whole blocks; more than the disk's own cache holds")
      ->check(refuse_empty)
      ->capture_default_str();
  add_ram_option(command, options->machine);
  command.add_flag("--json", options->json, "print one JSON object");
  command.callback([options] { run(*options); });
}

}  // namespace engine::cli
