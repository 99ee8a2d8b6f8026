#include "engine/cli/shards.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>

#include "engine/base/budget.h"
#include "engine/base/error.h"
#include "engine/cli/common.h"
#include "engine/cli/growth.h"
#include "engine/cli/pass_progress.h"
#include "engine/model/checkpoint_layout.h"
#include "engine/store/digests.h"
#include "engine/store/durable.h"
#include "engine/store/scale_scan.h"

namespace engine::cli {
namespace {

using store::Finding;
using store::Severity;

struct ShardsOptions {
  std::string model, digests, write_digests, cache;
  bool scan = false;
  bool strict = false;
  bool json = false;
  MachineOptions machine;
};

struct Report {
  std::vector<Finding> findings;
  std::optional<model::Config> config;
  std::size_t files = 0;
  std::size_t tensors = 0;
  std::size_t text_tensors = 0;
  std::uint64_t file_bytes = 0;
  std::uint64_t tensor_bytes = 0;
  std::uint64_t expert_bytes = 0;
  std::optional<store::ScaleScan> scales;
  std::string content = "not verified";

  bool holds() const { return store::count(findings, Severity::kError) == 0; }
};

std::string_view name_of(Severity severity) {
  switch (severity) {
    case Severity::kError:
      return "error";
    case Severity::kWarning:
      return "warning";
    case Severity::kNote:
      return "note";
  }
  return "";
}

void measure(const store::ShardReader& reader, Report& report) {
  report.files = reader.files().size();
  report.tensors = reader.entries().size();
  for (const store::File& file : reader.files()) report.file_bytes += file.size();
  for (const store::TensorEntry& entry : reader.entries()) {
    report.tensor_bytes += entry.bytes;
    if (!entry.name.starts_with("language_model.")) continue;
    ++report.text_tensors;
    if (entry.name.find(".experts.") != std::string_view::npos) report.expert_bytes += entry.bytes;
  }
}

void append(Report& report, std::vector<Finding> more) {
  report.findings.insert(report.findings.end(), std::make_move_iterator(more.begin()),
                         std::make_move_iterator(more.end()));
}

void verify(const ShardsOptions& options, const store::ShardReader& reader, Report& report) {
  const std::string& config = report.config->sha256;
  const std::string key =
      options.cache.empty() ? "" : store::verification_key(options.digests, reader, config);
  if (!options.cache.empty() && store::verification_is_cached(options.cache, key)) {
    report.content = fmt::format(
        "verified before against {}; size, modification time and header of every file are as they "
        "were then ({})",
        options.digests, options.cache);
    return;
  }
  PassProgress progress(report.tensor_bytes);
  const auto differences = store::verify_digests(options.digests, reader, config,
                                                 [&](std::uint64_t bytes) { progress.add(bytes); });
  report.content = differences.empty() ? fmt::format("verified against {}", options.digests)
                                       : fmt::format("differs from {}", options.digests);
  if (differences.empty() && !options.cache.empty()) {
    store::write_file_durably(options.cache, std::string_view(key));
  }
  append(report, differences);
}

bool reads_contents(const ShardsOptions& options) {
  return options.scan || options.strict || !options.digests.empty() ||
         !options.write_digests.empty();
}

void read_contents(const ShardsOptions& options, const store::ShardReader& reader, Report& report) {
  // Asked before the reading, which can take hours.
  if (!options.write_digests.empty()) store::require_unused(options.write_digests);
  if (reads_contents(options)) {
    report.scales = store::scan_scales(reader, options.strict, report.findings);
  }
  if (!options.digests.empty()) verify(options, reader, report);
  if (!options.write_digests.empty()) {
    PassProgress progress(report.tensor_bytes);
    store::write_digests(options.write_digests, reader, report.config->sha256,
                         [&](std::uint64_t bytes) { progress.add(bytes); });
    if (options.digests.empty()) {
      report.content = fmt::format("not verified; digests of what is there written to {}",
                                   options.write_digests);
    }
  }
}

// Beside the table of tensors: a block of bytes that is hashed, or the codes and scales of one tensor, which
// are scanned together; and for every tensor a digest in hex, to be compared, and a mark.
std::uint64_t work_bytes(const ShardsOptions& options, const store::ShardReader& reader) {
  constexpr std::uint64_t kBlock = std::uint64_t{4} << 20, kDigest = sizeof(std::string) + 80;
  std::uint64_t most = kBlock;
  if (reads_contents(options)) {
    for (const store::TensorEntry& entry : reader.entries()) {
      if (!entry.name.ends_with(".weight_packed")) continue;
      most = std::max(most, entry.bytes + entry.bytes / 16);
    }
  }
  return most + reader.entries().size() * (options.digests.empty() ? 1 : 1 + kDigest);
}

Report inspect(const ShardsOptions& options) {
  Report report;
  base::RamBudget budget(ram_bytes(options.machine));
  const store::ShardReader reader(options.model, report.findings,
                                  {.header_memory = header_memory(budget)});
  reserve_process(budget);
  const base::Charge work(budget, "looking at tensors", work_bytes(options, reader));
  measure(reader, report);
  report.config = model::inspect_config(options.model, report.findings);
  if (report.config) {
    append(report, model::check_layout(*report.config, reader));
  } else if (report.tensors > 0) {
    report.findings.push_back({Severity::kNote, options.model, "", std::nullopt,
                               "names, shapes and dtypes of the tensors are not judged: the "
                               "configuration does not hold"});
  }
  // What does not even fit its own headers is not worth hours of reading.
  if (report.holds()) read_contents(options, reader, report);
  return report;
}

void print_text(const ShardsOptions& options, const Report& report) {
  for (const Finding& finding : report.findings) {
    say("{}: {}\n", name_of(finding.severity), store::describe(finding));
  }
  if (report.tensors > 0) {
    say("files     {}, {} bytes\n", report.files, report.file_bytes);
    say("tensors   {}, {} bytes; {} of the language model, {} others\n", report.tensors,
        report.tensor_bytes, report.text_tensors, report.tensors - report.text_tensors);
  }
  if (report.config) {
    const model::Config& config = *report.config;
    const auto mla = std::ranges::count(config.is_mla, true);
    say("layers    {}: {} KDA, {} MLA; {} dense, {} with experts\n", config.layers,
        config.layers - mla, mla, config.dense_layers, config.layers - config.dense_layers);
    say("experts   {} a layer, {} chosen a token; {} bytes of MXFP4\n", config.experts,
        config.chosen, report.expert_bytes);
  }
  if (report.scales) {
    say("scales    {} groups of 32, {} with scale byte 255, {} of these with non-zero codes\n",
        report.scales->groups, report.scales->nan_groups, report.scales->nan_groups_with_codes);
  }
  say("content   {}\n", report.content);
  say("{}: {}\n", options.model, report.holds() ? "holds" : "does not hold");
}

void print_json(const ShardsOptions& options, const Report& report) {
  using Json = nlohmann::ordered_json;
  Json out;
  out["model"] = options.model;
  out["holds"] = report.holds();
  out["content"] = report.content;
  out["files"] = report.files;
  out["file_bytes"] = report.file_bytes;
  out["tensors"] = report.tensors;
  out["text_tensors"] = report.text_tensors;
  out["tensor_bytes"] = report.tensor_bytes;
  out["expert_bytes"] = report.expert_bytes;
  if (report.config) {
    out["config_sha256"] = report.config->sha256;
    out["layers"] = report.config->layers;
    out["mla_layers"] = std::ranges::count(report.config->is_mla, true);
    out["dense_layers"] = report.config->dense_layers;
    out["experts"] = report.config->experts;
  }
  if (report.scales) {
    out["scale_groups"] = report.scales->groups;
    out["nan_groups"] = report.scales->nan_groups;
    out["nan_groups_with_codes"] = report.scales->nan_groups_with_codes;
  }
  out["findings"] = Json::array();
  for (const Finding& finding : report.findings) {
    Json row;
    row["severity"] = name_of(finding.severity);
    row["file"] = finding.file;
    if (!finding.tensor.empty()) row["tensor"] = finding.tensor;
    if (finding.offset) row["offset"] = *finding.offset;
    row["message"] = finding.message;
    out["findings"].push_back(std::move(row));
  }
  // Names from outside need not be UTF-8.
  say_json(out.dump(-1, ' ', false, Json::error_handler_t::replace) + '\n');
}

void run(const ShardsOptions& options) {
  apply_machine_options(options.machine);
  const Report report = inspect(options);
  if (options.json) {
    print_json(options, report);
  } else {
    print_text(options, report);
  }
  if (!report.holds()) {
    const std::size_t errors = store::count(report.findings, Severity::kError);
    throw base::Error("{}: {} error{}", options.model, errors, errors == 1 ? "" : "s");
  }
}

}  // namespace

void add_shards_command(CLI::App& app) {
  auto options = std::make_shared<ShardsOptions>();
  CLI::App& command = *app.add_subcommand(
      "shards", "check a checkpoint's headers, index, configuration and layout, and its bytes");
  command.add_option("MODEL", options->model, "checkpoint folder")->required();
  auto* digests = command.add_option("--digests", options->digests,
                                     "verify every tensor's bytes against this manifest");
  command
      .add_option(
          "--cache", options->cache,
          "remember a verification that held in this file, and read nothing again as long as "
          "size, modification time and header of every file stay as they were")
      ->needs(digests);
  command.add_option("--write-digests", options->write_digests,
                     "write a manifest of every tensor's SHA-256");
  command.add_flag("--scan", options->scan, "count scale bytes of 255 (digests imply it)");
  command.add_flag("--strict", options->strict, "refuse scale bytes of 255");
  command.add_flag("--json", options->json, "print one JSON object");
  add_machine_options(command, options->machine);
  command.callback([options] { run(*options); });
}

}  // namespace engine::cli
