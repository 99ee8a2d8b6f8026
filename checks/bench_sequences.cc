// Usage: bench_sequences MODEL [TOKENS [MB/S]]
// Tokens an hour against sequences a step, from a device of a given speed, and what `lazylora plan`
// says of it. Weights are read once for all sequences of a step: where the device is what is waited
// for, S sequences take as long as one, until the processor takes longer.
//
// Without MB/S the device has a quarter of the speed at which reading and computing of one sequence
// take the same time. The clock is the processor time of one thread plus what would have been waited
// for the device, so that other processes do not enter.
//
// The forecast knows headers, configuration, memory budget, the device's speed and one number of the
// machine: its GFLOP/s, taken from two sweeps that wait for nothing, right before and right after,
// because a virtual machine's processor changes its speed with its neighbours. As that depends on how many tokens
// share a weight, it is taken at each number of sequences; what is checked is whether bytes, overlap
// and bound are right. With the rate of one sequence for all, the last column shows what a plan made
// from one measurement would have said.
//
// Exit 0: every forecast within 15 % of what was measured, and more sequences never slower; 1: not.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <exception>
#include <string>

#include "checks/throttled_sweep.h"
#include "engine/base/parallel.h"
#include "engine/cli/waiting.h"
#include "engine/model/forecast.h"

namespace {

namespace model = engine::model;
using checks::ThrottledSample;
using checks::ThrottledSweep;
using engine::store::Throttle;

constexpr double kAllowed = 0.15;  // issue "Out of core for real"

model::StepWork work_of(const std::string& folder, const ThrottledSweep& bench, std::int64_t tokens,
                        std::int64_t sequences) {
  engine::base::RamBudget budget(bench.budget_bytes());
  const model::Model opened(folder, budget);
  const auto& config = opened.config();
  const model::AdapterSet adapters(config, {}, budget);
  const model::Plan plan = opened.plan(bench.batch(config.vocabulary).documents, &adapters, true);
  std::vector<double> distinct(static_cast<std::size_t>(config.layers));
  for (std::int64_t layer = config.dense_layers; layer < config.layers; ++layer) {
    distinct[static_cast<std::size_t>(layer)] =
        model::distinct_experts_if_even(config, tokens * sequences);
  }
  return model::step_work(opened.shards(), config, adapters, plan, tokens, sequences, distinct);
}

int bench_all(const std::string& folder, std::int64_t tokens, double rate) {
  engine::base::set_threads(1);
  bool holds = true;
  double first_rate = 0.0, first_hour = 0.0, last_hour = 0.0, worst = 0.0;
  std::int64_t most = 1;
  for (std::int64_t sequences = 1; sequences <= 16; sequences *= 2) {
    const ThrottledSweep bench(folder, tokens, sequences, Throttle::Clock::kProcessor);
    if (sequences == 1) bench.run(1e12);  // the page cache holds the model from here on
    const ThrottledSample before = bench.run(1e12);
    if (rate == 0.0) rate = static_cast<double>(before.result.bytes_read) / before.computed / 4;
    const ThrottledSample sample = bench.run(rate);
    const double alone = (before.computed + bench.run(1e12).computed) / 2;
    const model::StepWork work = work_of(folder, bench, tokens, sequences);
    const double flops = work.flops / alone;
    if (sequences == 1) first_rate = flops;
    const model::StepTime said = model::step_time(work, {rate, 0.0, flops});
    const model::StepTime said_at_first = model::step_time(work, {rate, 0.0, first_rate});
    const auto hour = [&](double seconds) {
      return static_cast<double>(tokens * sequences) / seconds * 3600.0;
    };
    const double off = said.seconds / sample.took - 1.0;
    const double bytes_off =
        static_cast<double>(work.read_bytes()) / static_cast<double>(sample.result.bytes_read) -
        1.0;
    fmt::print(
        "{:>2} sequences of {}: {} bytes read (said {:+.1f} %), computing {:.2f} s at {:.1f} "
        "GFLOP/s, step {:.2f} s, {:.2f} of them waiting (said {:.2f} s, {:+.1f} %, bound by {}; "
        "from one sequence's rate {:+.1f} %): {:.0f} tokens an hour\n",
        sequences, tokens, sample.result.bytes_read, 100 * bytes_off, sample.computed, flops / 1e9,
        sample.took, sample.waited, said.seconds, 100 * off, said.bound_by(),
        100 * (said_at_first.seconds / sample.took - 1.0), hour(sample.took));
    std::fflush(stdout);
    worst = std::max(worst, std::abs(off));
    holds = holds && hour(sample.took) > 0.95 * last_hour;
    last_hour = hour(sample.took);
    if (sequences == 1) first_hour = last_hour;
    most = sequences;
    if (said.processor >= said.disk && sequences > 1) break;
  }
  fmt::print("forecast off by at most {:.1f} % (allowed {:.0f} %)\n", 100 * worst, 100 * kAllowed);
  fmt::print("tokens an hour, {} sequences a step / one, device of {:.0f} MB/s: {:.2f}\n", most,
             rate / 1e6, last_hour / first_hour);
  return holds && worst <= kAllowed ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  engine::cli::wait_passively(argv);
  CLI::App app("Tokens an hour against sequences a step.");
  std::string folder;
  std::int64_t tokens = 32;
  double rate = 0.0;
  app.add_option("model", folder, "checkpoint folder")->required();
  app.add_option("tokens", tokens, "tokens of a sequence")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 24));
  app.add_option("rate", rate, "MB/s of the device")->check(CLI::Range(0.001, 1e9));
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  try {
    return bench_all(folder, tokens, rate * 1e6);
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_sequences: {}\n", error.what());
    return 1;
  }
}
