#include "engine/cli/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "engine/cli/common.h"
#include "engine/cli/progress.h"
#include "engine/measure/routing_trace.h"
#include "engine/model/forecast.h"

namespace engine::cli {
namespace {

struct PlanOptions {
  std::string model, disk, trace;
  std::int64_t tokens = 1024, sequences = 1, rank = 16;
  double gflops = 0.0;
  MachineOptions machine;
};

constexpr std::int64_t kMostSequences = 1024;  // of the table

// A kilobyte a second and a petabyte, or as many operations: no machine is beyond, and no time overflows.
constexpr double kLeastRate = 0.001, kMostRate = 1e9;

double rate(const std::string& flag, const std::string& text) {
  const std::optional<double> number = base::parse_decimal<double>(text);
  if (!number || !(*number >= kLeastRate && *number <= kMostRate)) {
    throw CLI::ValidationError(fmt::format("{}: \"{}\" must be a decimal number in {} ... {:.0f}",
                                           flag, text, kLeastRate, kMostRate));
  }
  return *number;
}

// "500" or "150,3000": megabytes a second of the disk with the experts, and of the one with the rest.
model::Machine machine_of(const PlanOptions& options) {
  const std::size_t comma = options.disk.find(',');
  model::Machine machine;
  machine.flops = options.gflops * 1e9;
  machine.disk_bytes = rate("--disk", options.disk.substr(0, comma)) * 1e6;
  if (comma != std::string::npos) {
    machine.fast_disk_bytes = rate("--disk", options.disk.substr(comma + 1)) * 1e6;
  }
  return machine;
}

// By layer, the share of tokens that chose each expert.
std::vector<std::vector<double>> shares_of(const std::string& path, const model::Config& config) {
  const measure::RoutingTrace trace(path, config.experts);
  const measure::TraceShape& shape = trace.shape();
  std::vector<std::vector<double>> shares(static_cast<std::size_t>(config.layers));
  for (std::size_t at = 0; at < trace.layers().size(); ++at) {
    const measure::LayerRouting routing = trace.read(at);
    if (routing.layer >= config.layers || config.is_dense(routing.layer)) {
      throw base::Error("{}: has layer {}, which is no layer with experts of {}", path,
                        routing.layer, config.layers);
    }
    std::vector<double>& share = shares[static_cast<std::size_t>(routing.layer)];
    share.resize(static_cast<std::size_t>(shape.experts));
    for (const std::int32_t expert : routing.index) {
      share[static_cast<std::size_t>(expert)] += 1.0 / static_cast<double>(shape.tokens);
    }
  }
  return shares;
}

class Planner {
 public:
  Planner(const OpenModel& open, const PlanOptions& options)
      : open_(open),
        config_(open.model->config()),
        options_(options),
        machine_(machine_of(options)),
        outline_(config_, {options.rank, 2.0 * static_cast<double>(options.rank)}) {
    if (!options.trace.empty()) shares_ = shares_of(options.trace, config_);
  }

  struct Outlook {
    model::Plan plan;  // adapters included
    bool fits = false, on_disk = false;
    std::uint64_t least_bytes = 0;  // with the adapters on disk: of model and tokens alone
    double distinct = 0.0;          // of all layers
    model::StepWork work;
    model::StepTime time;
    double tokens_an_hour = 0.0;
  };

  Outlook look(std::int64_t sequences) const {
    const std::int64_t all = sequences * options_.tokens;
    std::vector<std::int64_t> documents;
    for (std::int64_t i = 0; i <= sequences; ++i) documents.push_back(i * options_.tokens);
    Outlook outlook;
    const std::uint64_t free = open_.budget->free_bytes();
    outlook.plan = open_.model->plan(documents, &outline_, true);
    const auto needs = [&](bool on_disk) {
      return static_cast<std::uint64_t>(outlook.plan.least_bytes() +
                                        outline_.memory_bytes(on_disk));
    };
    outlook.least_bytes = needs(true);
    outlook.on_disk = needs(false) > free;
    outlook.fits = needs(outlook.on_disk) <= free;
    const std::int64_t adapters = outline_.memory_bytes(outlook.on_disk);
    outlook.plan.weights_slots = outlook.plan.expert_slots = 1;
    outlook.plan.adapter_bytes = adapters;
    if (outlook.fits) outlook.plan.spend(free);
    std::vector<double> distinct(static_cast<std::size_t>(config_.layers));
    for (std::int64_t layer = config_.dense_layers; layer < config_.layers; ++layer) {
      const auto at = static_cast<std::size_t>(layer);
      distinct[at] = shares_.empty() || shares_[at].empty()
                         ? model::distinct_experts_if_even(config_, all)
                         : model::distinct_experts(shares_[at], all);
      outlook.distinct += distinct[at];
    }
    outlook.work = model::step_work(open_.model->shards(), config_, outline_, outlook.plan,
                                    options_.tokens, sequences, distinct);
    outlook.time = model::step_time(outlook.work, machine_);
    outlook.tokens_an_hour = static_cast<double>(all) / outlook.time.seconds * 3600.0;
    return outlook;
  }

  void report(const Outlook& outlook) const {
    const auto bytes = [](std::uint64_t count) { return base::format_bytes(count); };
    const model::StepWork& work = outlook.work;
    say("step               {} sequences of {} tokens, forward, backward, update\n",
        options_.sequences, options_.tokens);
    say("distinct experts   {:.1f} a layer of {} ({})\n",
        outlook.distinct /
            static_cast<double>(std::max<std::int64_t>(config_.layers - config_.dense_layers, 1)),
        config_.experts,
        shares_.empty() ? "if chosen evenly, which is the most"
                        : "as often as in " + options_.trace);
    say("bytes read         {}\n", bytes(work.read_bytes()));
    say("  experts          {} up and down, {} of them still there on the way down\n",
        bytes(work.expert_bytes), bytes(work.saved_expert_bytes));
    say("  all but experts  {} up and down, {} of them still there on the way down\n",
        bytes(work.trunk_bytes), bytes(work.saved_trunk_bytes));
    say("  embedding        {} at most\n", bytes(work.embedding_bytes));
    say("computed           {:.3f} TFLOP\n", work.flops / 1e12);
    say("memory             {} of {} are free{}\n{}", bytes(open_.budget->free_bytes()),
        bytes(open_.budget->limit_bytes()),
        outlook.on_disk ? "; adapters, gradients and moments are on disk" : "",
        outlook.plan.table());
    const model::StepTime& time = outlook.time;
    const std::string fast_disk =
        machine_.fast_disk_bytes > 0.0
            ? fmt::format("fast disk {}, ", format_seconds(time.fast_disk))
            : "";
    say("step takes         {}, bound by {}: disk {}, {}processor {}\n",
        format_seconds(time.seconds), time.bound_by(), format_seconds(time.disk), fast_disk,
        format_seconds(time.processor));
    if (!outlook.fits) say("memory             does not hold it\n");
  }

  void table() const {
    say("\nleast RAM: with adapters, gradients and moments on disk; --ram also holds the program, "
        "{} "
        "as it is here\n",
        base::format_bytes(open_.budget->used_bytes()));
    say("{:>9} {:>12} {:>12} {:>11} {:>12}  {}\n", "sequences", "bytes read", "least RAM", "step",
        "tokens/hour", "bound by");
    for (std::int64_t sequences = 1; sequences <= kMostSequences; sequences *= 2) {
      const Outlook now = look(sequences);
      say("{:>9} {:>12} {:>12} {:>11} {:>12.0f}  {}\n", sequences,
          base::format_bytes(now.work.read_bytes()), base::format_bytes(now.least_bytes),
          format_seconds(now.time.seconds), now.tokens_an_hour,
          now.fits ? now.time.bound_by() : "memory: the budget does not hold it");
      // More sequences would change nothing but how many weights a token shares.
      if (!now.fits || now.time.processor >= std::max(now.time.disk, now.time.fast_disk)) break;
    }
  }

 private:
  const OpenModel& open_;
  const model::Config& config_;
  const PlanOptions& options_;
  model::Machine machine_;
  model::AdapterSet outline_;
  std::vector<std::vector<double>> shares_;  // [layer][expert]; without a trace empty
};

int run(const PlanOptions& options) {
  machine_of(options);  // what is wrong with it is wrong whatever the files are
  apply_machine_options(options.machine);
  const OpenModel open = open_model(options.model, options.machine, false);
  const Planner planner(open, options);
  const Planner::Outlook outlook = planner.look(options.sequences);
  planner.report(outlook);
  planner.table();
  return outlook.fits ? 0 : 1;
}

}  // namespace

void add_plan_command(CLI::App& app) {
  auto options = std::make_shared<PlanOptions>();
  CLI::App& command = *app.add_subcommand(
      "plan", "what a training step reads, holds and takes, from headers and two rates");
  command.add_option("MODEL", options->model, "checkpoint folder")->required();
  constexpr std::int64_t kMost = 1 << 20;
  add_whole_number<std::int64_t>(command, "--tokens", options->tokens, 1, kMost,
                                 "tokens of a sequence");
  add_whole_number<std::int64_t>(command, "--sequences", options->sequences, 1, kMostSequences,
                                 "sequences of a step");
  add_whole_number<std::int64_t>(command, "--rank", options->rank, 1, kMost, "of the adapters");
  command
      .add_option("--disk", options->disk,
                  "MB/s of the disk; or MB/s,MB/s: of the disk with the experts, and of one with "
                  "all else (lazylora disk measures)")
      ->required();
  command
      .add_option_function<std::string>(
          "--gflops",
          [options](const std::string& text) { options->gflops = rate("--gflops", text); },
          "what the processor computes a second: TFLOP of a plan, over seconds that such a step "
          "took with all it reads in memory")
      ->type_name("X")
      ->required();
  command
      .add_option("--trace", options->trace,
                  "routing trace (lazylora trace): how often each expert is chosen")
      ->check(refuse_empty);
  add_threads_option(command, options->machine);
  add_ram_option(command, options->machine);
  command.callback([options] {
    if (run(*options) != 0) throw base::Error("the budget does not hold this step");
  });
}

}  // namespace engine::cli
