// Speed of the matrix products on one thread, with cold weights, as ratios to what the same process
// measures beside them.
//
// Usage: bench_products INSTRUCTION_SET [Google Benchmark's options]

#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <memory>
#include <string>
#include <vector>

#include "checks/bench/product_case.h"
#include "engine/base/parallel.h"
#include "engine/ops/kernels.h"

namespace checks::bench {
namespace {

using engine::ops::WeightKind;

// Two readings of memory agree more rarely than two products, so that one row takes more rounds.
constexpr int kRounds = 48, kRoundsOfOneRow = 192;
// Fewer quiet rounds than this, and a case is not judged.
constexpr std::size_t kEnough = 5;

std::string shown(const std::vector<double>& ratios) {
  if (ratios.empty()) return "-";
  const Spread s = spread_of(ratios);
  return fmt::format("{:.0f} % ({:.0f}-{:.0f}) {:2}", 100 * s.median, 100 * s.low, 100 * s.high,
                     ratios.size());
}

void print_table(const std::vector<std::unique_ptr<ProductResult>>& results) {
  fmt::print("{:34} {:>24} {:>24} {:>24} {:>24}   of {} rounds, one row {}\n", "case",
             "of FMA peak", "of OpenBLAS", "of DRAM read", "of forward", kRounds, kRoundsOfOneRow);
  for (const auto& r : results) {
    fmt::print("{:34} {:>24} {:>24} {:>24} {:>24}\n", r->of.name(), shown(r->of_peak),
               shown(r->of_openblas), shown(r->of_dram), shown(r->of_forward));
  }
}

// What is to be reached: the median of `ratios` of the cases that `concerns` names.
struct Target {
  std::string what;
  double least;
  bool (*concerns)(const ProductCase&);
  std::vector<double> ProductResult::*ratios;
};

std::vector<Target> targets(const std::string& instruction_set) {
  const bool wide = instruction_set == "avx512";
  return {{"bf16, 128 and 1024 rows, of OpenBLAS", 0.60,
           [](const ProductCase& c) {
             return c.kind == WeightKind::kBf16 && c.forward && c.tokens >= 128;
           },
           &ProductResult::of_openblas},
          {"MXFP4, 20 to 32 rows, of FMA peak", wide ? 0.50 : 0.65,
           [](const ProductCase& c) {
             return c.kind == WeightKind::kMxfp4 && c.forward && (c.tokens == 20 || c.tokens == 32);
           },
           &ProductResult::of_peak},
          {"MXFP4, one row, of DRAM read", wide ? 0.80 : 0.45,
           [](const ProductCase& c) {
             return c.kind == WeightKind::kMxfp4 && c.forward && c.tokens == 1;
           },
           &ProductResult::of_dram},
          {"dY W of X W^T", 0.80, [](const ProductCase& c) { return !c.forward; },
           &ProductResult::of_forward}};
}

// One line: each target with the least median among its cases.
void print_verdict(const std::string& instruction_set,
                   const std::vector<std::unique_ptr<ProductResult>>& results) {
  std::string line = instruction_set + ":";
  for (const Target& target : targets(instruction_set)) {
    double least = 1e9;
    bool judged = true;
    for (const auto& r : results) {
      if (!target.concerns(r->of)) continue;
      const std::vector<double>& ratios = (*r).*target.ratios;
      judged = judged && ratios.size() >= kEnough;
      least = std::min(least, spread_of(ratios).median);
    }
    line += judged ? fmt::format(" {} >= {:.0f} %: {:.0f} % {};", target.what, 100 * target.least,
                                 100 * least, least >= target.least ? "reached" : "NOT REACHED")
                   : fmt::format(" {} >= {:.0f} %: not judged;", target.what, 100 * target.least);
  }
  line.back() = '.';
  fmt::print("{}\n", line);
}

int run(const std::string& instruction_set, int argc, char** argv) {
  if (!engine::ops::choose_instruction_set(instruction_set)) {
    fmt::print("{}: this processor does not have it\n", instruction_set);
    return 77;
  }
  engine::base::set_threads(1);
  ColdMemory memory;
  fmt::print("{}, one thread, cold weights out of {} MiB; OpenBLAS kernel: {}\n", instruction_set,
             memory.size() >> 20, openblas_kernel());
  std::vector<std::unique_ptr<ProductResult>> results;
  for (const ProductCase& c : product_cases()) {
    results.push_back(std::make_unique<ProductResult>(ProductResult{.of = c}));
    ProductResult* result = results.back().get();
    benchmark::RegisterBenchmark(
        (instruction_set + "/" + c.name()).c_str(),
        [&, result](benchmark::State& state) {
          for (auto _ : state) {
            measure_round(instruction_set, memory, *result);
          }
          const auto count = [&](const char* name, const std::vector<double>& values) {
            if (!values.empty()) state.counters[name] = spread_of(values).median;
          };
          count("of_peak", result->of_peak);
          count("of_openblas", result->of_openblas);
          count("of_dram", result->of_dram);
          count("of_forward", result->of_forward);
          state.counters["kept"] = static_cast<double>(result->of_peak.size());
        })
        ->Iterations(c.tokens == 1 ? kRoundsOfOneRow : kRounds);
  }
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  fmt::print("\n");
  print_table(results);
  print_verdict(instruction_set, results);
  return 0;
}

}  // namespace
}  // namespace checks::bench

int main(int argc, char** argv) {
  if (argc < 2) {
    fmt::print("usage: bench_products avx2|avx512 [options of Google Benchmark]\n");
    return 2;
  }
  const std::string instruction_set = argv[1];
  argv[1] = argv[0];
  return checks::bench::run(instruction_set, argc - 1, argv + 1);
}
