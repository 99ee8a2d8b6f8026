// Usage: bench_stream MODEL [TOKENS [REPETITIONS [processor|wall]]]
// One forward and backward sweep from a device of a given speed, against what the device alone and
// the computation alone would take: reading overlaps computing if the step takes little more than the
// longer of the two. The device (store::Throttle) has half and twice the speed at which both take the
// same time.
//
// The default clock is the processor time of the process plus what it would have waited for the
// device, so that neither other processes nor this machine's disk enter. `wall` sleeps for real; a
// repetition during which others used the processors is discarded, and said to be. "Computing alone"
// is the processor time of the very same sweep; by the wall clock, that of one without a device.
//
// Exit 0: both ratios within the limit; 1: not; 77: every repetition was disturbed.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>
#include <string>

#include "checks/throttled_sweep.h"
#include "engine/base/parallel.h"
#include "engine/cli/waiting.h"

namespace {

using checks::ThrottledSample;
using checks::ThrottledSweep;
using engine::store::Throttle;

constexpr double kLimit = 1.08;  // issue "Out of core for real"

// The least disturbed ratio of a few, 0 if all were disturbed.
double measure(const ThrottledSweep& bench, const char* what, double rate, double alone,
               int repetitions) {
  double best = 0.0;
  for (int i = 0; i < repetitions; ++i) {
    const ThrottledSample sample = bench.run(rate);
    const double device = static_cast<double>(sample.result.bytes_read) / rate;
    const double computing = bench.wall() ? alone : sample.computed;
    const double ratio = sample.took / std::max(device, computing);
    const bool disturbed = bench.disturbed(sample);
    fmt::print(
        "{:<13} {:>6.0f} MB/s: {:>10} bytes read, {} saved, {:.2f} s; computing {:.2f} s; "
        "together {:.2f} s, {:.2f} of them waiting: {:.3f}{}\n",
        what, rate / 1e6, sample.result.bytes_read, sample.result.bytes_saved, device, computing,
        sample.took, sample.waited, ratio,
        disturbed ? fmt::format(" (discarded: others used {:.0f} % of the machine)",
                                100.0 * sample.others)
                  : "");
    std::fflush(stdout);
    if (!disturbed && (best == 0.0 || ratio < best)) best = ratio;
  }
  return best;
}

int bench_all(const std::string& model, std::int64_t tokens, int repetitions, bool wall) {
  engine::base::set_threads(1);
  const ThrottledSweep bench(model, tokens, 1,
                             wall ? Throttle::Clock::kWall : Throttle::Clock::kProcessor);
  bench.run(1e12);  // the page cache holds the model from here on
  double alone = 0.0;
  std::uint64_t bytes = 0;
  for (int i = 0; i < repetitions; ++i) {
    const ThrottledSample sample = bench.run(1e12);
    alone = i == 0 ? sample.computed : std::min(alone, sample.computed);
    bytes = sample.result.bytes_read;
  }
  const double even = static_cast<double>(bytes) / alone;
  const double disk = measure(bench, "disk-bound", even / 2, alone, repetitions);
  const double processor = measure(bench, "compute-bound", even * 2, alone, repetitions);
  // Where nothing may be lost on either side; shown, not judged.
  measure(bench, "balanced", even, alone, 1);
  if (disk == 0.0 || processor == 0.0) {
    fmt::print("skipped: every repetition was disturbed by other processes\n");
    return 77;
  }
  fmt::print(
      "step / max(device alone, computing alone), at most {}: disk-bound {:.3f}, "
      "compute-bound {:.3f}\n",
      kLimit, disk, processor);
  return disk <= kLimit && processor <= kLimit ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  engine::cli::wait_passively(argv);
  CLI::App app("Does reading overlap computing?");
  std::string model, clock = "processor";
  std::int64_t tokens = 64;
  int repetitions = 3;
  app.add_option("model", model, "checkpoint folder")->required();
  app.add_option("tokens", tokens, "random tokens")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 24));
  app.add_option("repetitions", repetitions, "the least disturbed counts")
      ->check(CLI::PositiveNumber);
  app.add_option("clock", clock, "processor or wall")->check(CLI::IsMember({"processor", "wall"}));
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  try {
    return bench_all(model, tokens, repetitions, clock == "wall");
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_stream: {}\n", error.what());
    return 1;
  }
}
