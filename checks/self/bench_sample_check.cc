// What `make bench` calls a ratio, from samples that are made up; and that the peak it compares with is
// of as many chains as it counts.

#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "checks/bench/machine.h"
#include "checks/bench/sample.h"

namespace {

using checks::bench::ratio_beside;
using checks::bench::Sample;

// Takes so many seconds of its core's time, the first time and the second.
struct Other {
  double before, after, share = 1.0;
  int times = 0;
  Sample operator()() {
    const double wall = times++ == 0 ? before : after;
    return {wall, share * wall};
  }
};
Sample ours() { return {2.0, 2.0}; }
bool always() { return true; }

TEST(BenchSample, RatioIsToTheMeanOfBothSides) {
  EXPECT_DOUBLE_EQ(ratio_beside(Other{1.0, 1.04}, ours, always).value(), 0.51);
}

TEST(BenchSample, ARoundWhoseMachineChangedIsNone) {
  EXPECT_FALSE(ratio_beside(Other{1.0, 1.1}, ours, always));
  EXPECT_FALSE(ratio_beside(Other{1.1, 1.0}, ours, always));
  EXPECT_TRUE(ratio_beside(Other{1.0, 1.05}, ours, always));
}

TEST(BenchSample, ARoundThatSharedItsCoreIsNone) {
  EXPECT_FALSE(ratio_beside(Other{1.0, 1.0, 0.9}, ours, always));
  EXPECT_FALSE(ratio_beside(
      Other{1.0, 1.0},
      [] {
        return Sample{2.0, 1.9};
      },
      always));
  EXPECT_TRUE(ratio_beside(
      Other{1.0, 1.0},
      [] {
        return Sample{2.0, 1.95};
      },
      always));
}

// A neighbour on the core's other thread takes no time of ours and half of its loads.
TEST(BenchSample, ARoundWithANeighbourIsNone) {
  const auto alone_at = [](int time, int last) {
    return [time, last, asked = 0]() mutable { return asked++ >= time && asked <= last; };
  };
  EXPECT_TRUE(ratio_beside(Other{1.0, 1.0}, ours, alone_at(0, 2)));
  EXPECT_FALSE(ratio_beside(Other{1.0, 1.0}, ours, alone_at(0, 1)));
  EXPECT_TRUE(ratio_beside(Other{1.0, 1.0}, ours, alone_at(3, 100)));
  EXPECT_FALSE(ratio_beside(Other{1.0, 1.0}, ours, [] { return false; }));
}

constexpr int kChains = 12, kSteps = 4000;

// The sum of twelve chains of fma, the first with `start`, each next with `apart` more.
float sum_of_chains(float start, float apart) {
  float sum = 0.0f;
  for (int c = 0; c < kChains; ++c) {
    float chain = start + static_cast<float>(c) * apart;
    for (int step = 0; step < kSteps; ++step) chain = std::fma(chain, 0.999f, 0.001f);
    sum = c == 0 ? chain : sum + chain;
  }
  return sum;
}

// Twelve equal chains are computed as one, and counted as twelve: a peak that no processor has, beside which
// every product looks slow.
TEST(BenchSample, PeakIsOfChainsThatDiffer) {
  for (const std::string set : {"avx2", "avx512"}) {
    if (!(set == "avx2" ? __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")
                        : __builtin_cpu_supports("avx512f"))) {
      continue;
    }
    EXPECT_EQ(checks::bench::run_fma_chains(set), sum_of_chains(1.0f, 1.0f));
    EXPECT_EQ(checks::bench::run_loading_chains(set), sum_of_chains(1.0f, 1.0f));
    EXPECT_NE(checks::bench::run_fma_chains(set), sum_of_chains(1.0f, 0.0f));
    EXPECT_EQ(checks::bench::fma_chain_flops(set),
              2.0 * (set == "avx512" ? 16 : 8) * kChains * kSteps);
  }
}

}  // namespace
