// What `make bench` calls a ratio, from samples that are made up.

#include <gtest/gtest.h>

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

TEST(BenchSample, RatioIsToTheMeanOfBothSides) {
  EXPECT_DOUBLE_EQ(ratio_beside(Other{1.0, 1.04}, ours).value(), 0.51);
}

TEST(BenchSample, ARoundWhoseMachineChangedIsNone) {
  EXPECT_FALSE(ratio_beside(Other{1.0, 1.1}, ours));
  EXPECT_FALSE(ratio_beside(Other{1.1, 1.0}, ours));
  EXPECT_TRUE(ratio_beside(Other{1.0, 1.05}, ours));
}

TEST(BenchSample, ARoundThatSharedItsCoreIsNone) {
  EXPECT_FALSE(ratio_beside(Other{1.0, 1.0, 0.9}, ours));
  EXPECT_FALSE(ratio_beside(Other{1.0, 1.0}, [] { return Sample{2.0, 1.9}; }));
  EXPECT_TRUE(ratio_beside(Other{1.0, 1.0}, [] { return Sample{2.0, 1.95}; }));
}

}  // namespace
