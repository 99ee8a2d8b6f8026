#include "engine/cli/analyze.h"

#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/sha256.h"
#include "engine/cli/common.h"
#include "engine/measure/routing_report.h"
#include "engine/measure/trace_folder.h"
#include "engine/store/durable.h"

namespace engine::cli {
namespace {

struct AnalyzeOptions {
  std::string trace, against, out;
  std::int64_t experts = 0;
  std::vector<std::int64_t> capacities;
  bool json = false;
  MachineOptions machine;
};

// How a report calls a trace: its tag, else its own name; the way to it is of one machine.
std::string name_of(const measure::RoutingTrace& trace, const std::string& given) {
  if (trace.manifest() && !trace.manifest()->tag.empty()) return trace.manifest()->tag;
  const std::filesystem::path path = std::filesystem::path(given).lexically_normal();
  return (path.has_filename() ? path : path.parent_path()).filename().string();
}

void run_analyze(const AnalyzeOptions& options) {
  if (!options.out.empty()) store::require_unused(options.out);
  apply_machine_options(options.machine);
  base::RamBudget budget(ram_bytes(options.machine));
  reserve_process(budget);
  const measure::RoutingTrace trace(options.trace, options.experts);
  measure::AnalysisSubject subject{name_of(trace, options.trace),
                                   base::sha256_hex_of_file(trace.name()), "", ""};
  std::optional<measure::RoutingComparison> comparison;
  if (!options.against.empty()) {
    const measure::RoutingTrace against(options.against, options.experts);
    subject.against = name_of(against, options.against);
    subject.against_sha256 = base::sha256_hex_of_file(against.name());
    comparison = measure::compare(trace, against, budget);
  }
  const measure::RoutingAnalysis analysis = measure::analyze(
      trace,
      options.capacities.empty() ? measure::default_capacities(trace.shape()) : options.capacities,
      budget);
  const std::string json = measure::analysis_json(subject, analysis, comparison);
  const std::string page = measure::analysis_markdown(subject, analysis, comparison);
  if (options.json) {
    say_json(json);
  } else {
    say("{}", page);
  }
  if (options.out.empty()) return;
  store::TemporaryFolder folder(options.out);
  store::write_file_durably(folder.path() / "analysis.json", json);
  store::write_file_durably(folder.path() / "analysis.md", page);
  measure::write_tables(folder.path(), analysis);
  folder.commit();
}

}  // namespace

void add_analyze_command(CLI::App& app) {
  auto options = std::make_shared<AnalyzeOptions>();
  CLI::App* command =
      app.add_subcommand("analyze", "what a routing trace says: use, overlap, reuse of experts");
  command->add_option("TRACE", options->trace, "trace folder, or a trace.bin with --experts")
      ->required();
  command->add_option("--against", options->against, "a second trace to compare with")
      ->check(refuse_empty);
  command->add_option("--out", options->out, "folder for analysis.json, analysis.md and tables")
      ->check(refuse_empty);
  add_whole_number<std::int64_t>(*command, "--experts", options->experts, 1, measure::kMaxExperts,
                                 "experts a layer, where no manifest says it")
      ->default_str("");
  const auto capacities = [options](const std::vector<std::string>& texts) {
    for (const std::string& text : texts) {
      options->capacities.push_back(
          whole_number<std::int64_t>("--capacity", text, 1, measure::kMaxExperts));
    }
  };
  command
      ->add_option_function<std::vector<std::string>>(
          "--capacity", capacities,
          "experts kept in memory a layer, one or more (default: k, 2k, 4k ... all)")
      ->type_name("N")
      ->delimiter(',');
  add_ram_option(*command, options->machine);
  command->add_flag("--json", options->json, "print JSON instead of a page");
  command->callback([options] { run_analyze(*options); });
}

}  // namespace engine::cli
