// The comparison's own test, which runs before every other check: what it must refuse, it refuses.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "checks/compare.h"

namespace checks {
namespace {

using Doubles = std::vector<double>;
using Floats = std::vector<float>;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr float kNanF = std::numeric_limits<float>::quiet_NaN();

const Doubles kWant = {1.0, -2.0, 3.0, -4.0};
const Doubles kAllowed = {0.1, 0.1, 0.1, 0.1};

Doubles with(Doubles values, std::size_t at, double value) {
  values[at] = value;
  return values;
}

// Ten numbers, `zeros` of them zero, the first never.
template <class T>
std::vector<T> with_zeros(std::size_t zeros) {
  std::vector<T> values(10, T{1});
  for (std::size_t i = 0; i < zeros; ++i) values[9 - i] = T{0};
  return values;
}

TEST(Compare, EqualHolds) {
  const Comparison result = compare(kWant, kWant, kAllowed);
  EXPECT_TRUE(result.holds);
  EXPECT_EQ(result.worst, 0.0);
  EXPECT_TRUE(result.why.empty());
}

// An error of exactly the allowance is within; one unit in the last place more is not. All numbers
// here are exact, so the border is exact too.
TEST(Compare, BorderIsSharp) {
  const Doubles want = {1.0};
  const Doubles allowed = {0.25};
  const Comparison on = compare(Doubles{1.25}, want, allowed);
  EXPECT_TRUE(on.holds);
  EXPECT_EQ(on.worst, 1.0);
  EXPECT_TRUE(compare(Doubles{0.75}, want, allowed).holds);
  EXPECT_FALSE(compare(Doubles{std::nextafter(1.25, 2.0)}, want, allowed).holds);
  EXPECT_FALSE(compare(Doubles{std::nextafter(0.75, 0.0)}, want, allowed).holds);
}

// Units of 1.0 as float32 are 2^-23, those of zero and of the subnormals 2^-149.
TEST(Compare, ErrorsAreCountedInUlps) {
  const Doubles want = {1.0, 1.0, 1.0, 1.5, -1.0, 0.0};
  const Doubles got = {1.0, 1.0 + 0x1p-24, 1.0 + 0x1.8p-24, 1.5 - 0x1p-21, -1.0 + 0.5, 0x1p-149};
  const Comparison result = compare(got, want, Doubles(want.size(), 1.0));
  EXPECT_EQ(to_text(result.ulps), "0:1 0.5:1 1:2 4:1 more:1");
  // Planted: the bin below would take 0.75 units for half a unit, and 4 for 2.
  EXPECT_NE(to_text(result.ulps), "0:1 0.5:2 1:1 2:1 more:1");
}

TEST(Compare, ZeroAllowanceMeansEqual) {
  const Doubles zero(4, 0.0);
  EXPECT_TRUE(compare(kWant, kWant, zero).holds);
  const Comparison off = compare(with(kWant, 1, std::nextafter(-2.0, 0.0)), kWant, zero);
  EXPECT_FALSE(off.holds);
  EXPECT_EQ(off.worst, kInf);
}

// A comparison that asks "got - want <= allowed", or compares magnitudes, passes one of these.
TEST(Compare, SignsMatter) {
  EXPECT_FALSE(compare(Doubles{-1.0}, Doubles{-5.0}, Doubles{0.1}).holds);
  EXPECT_FALSE(compare(Doubles{-5.0}, Doubles{-1.0}, Doubles{0.1}).holds);
  EXPECT_FALSE(compare(Doubles{5.0}, Doubles{-5.0}, Doubles{0.1}).holds);
}

TEST(Compare, EveryPlaceCounts) {
  for (std::size_t i = 0; i < kWant.size(); ++i) {
    const Comparison result = compare(with(kWant, i, kWant[i] + 0.5), kWant, kAllowed);
    EXPECT_FALSE(result.holds) << i;
    EXPECT_EQ(result.at, static_cast<std::int64_t>(i));
    EXPECT_NE(result.why.find("at " + std::to_string(i)), std::string::npos) << result.why;
  }
}

TEST(Compare, NotFiniteIsRefusedWhereverItStands) {
  for (const double bad : {kNan, kInf, -kInf}) {
    for (std::size_t i = 0; i < kWant.size(); ++i) {
      EXPECT_FALSE(compare(with(kWant, i, bad), kWant, kAllowed).holds) << bad << " got " << i;
      EXPECT_FALSE(compare(kWant, with(kWant, i, bad), kAllowed).holds) << bad << " want " << i;
      EXPECT_FALSE(compare(kWant, kWant, with(kAllowed, i, bad)).holds) << bad << " allowed " << i;
      // Both sides alike: inf - inf is NaN, and NaN never equals itself.
      EXPECT_FALSE(compare(with(kWant, i, bad), with(kWant, i, bad), kAllowed).holds) << bad;
    }
  }
}

TEST(Compare, NegativeAllowanceIsNeverMet) {
  EXPECT_FALSE(compare(kWant, kWant, with(kAllowed, 2, -0.1)).holds);
}

TEST(Compare, EmptyAndDifferentSizesAreRefused) {
  EXPECT_FALSE(compare(Doubles{}, Doubles{}, Doubles{}).holds);
  EXPECT_FALSE(compare(Doubles{1.0, -2.0, 3.0}, kWant, kAllowed).holds);
  EXPECT_FALSE(compare(kWant, Doubles{1.0, -2.0, 3.0}, kAllowed).holds);
  EXPECT_FALSE(compare(kWant, kWant, Doubles{0.1, 0.1, 0.1}).holds);
  EXPECT_FALSE(compare(Doubles{}, kWant, kAllowed).holds);
}

TEST(Compare, MostlyZeroIsMistrusted) {
  const Doubles allowed(10, 0.1);
  const auto nine = with_zeros<double>(9);
  EXPECT_TRUE(compare(nine, nine, allowed).holds);
  const Doubles none(10, 0.0);
  const Comparison result = compare(none, none, allowed);
  EXPECT_FALSE(result.holds);
  EXPECT_NE(result.why.find("mistrusted"), std::string::npos) << result.why;
}

TEST(Compare, SparseContentMustMeetItsZerosExactly) {
  Doubles want(20, 0.0);
  want[3] = 1.0;
  const Doubles allowed(20, 0.1);
  EXPECT_FALSE(compare(want, want, allowed).holds);
  EXPECT_TRUE(compare(want, want, allowed, Content::kSparse).holds);
  EXPECT_TRUE(compare(with(want, 3, 1.05), want, allowed, Content::kSparse).holds);
  EXPECT_FALSE(compare(with(want, 3, 1.2), want, allowed, Content::kSparse).holds);
  EXPECT_FALSE(compare(with(want, 4, 1e-30), want, allowed, Content::kSparse).holds);
  EXPECT_FALSE(compare(with(want, 4, kNan), want, allowed, Content::kSparse).holds);
}

TEST(Compare, FloatResultsWithAnAllowanceOfTheWantedValue) {
  const auto allowed = [](double want) { return 0.25 * std::abs(want); };
  EXPECT_TRUE(compare(Floats{1.25f, -2.5f}, Doubles{1.0, -2.0}, allowed).holds);
  EXPECT_FALSE(compare(Floats{1.25f, -2.75f}, Doubles{1.0, -2.0}, allowed).holds);
  EXPECT_FALSE(compare(Floats{kNanF, -2.0f}, Doubles{1.0, -2.0}, allowed).holds);
  EXPECT_FALSE(compare(Floats{1.0f}, Doubles{1.0, -2.0}, allowed).holds);
  EXPECT_FALSE(compare(Floats{}, Doubles{}, allowed).holds);
  EXPECT_FALSE(compare(Floats{1.0f}, Doubles{1.0}, [](double) { return kNan; }).holds);
}

TEST(Compare, WorstIsTheLargestShareOfItsAllowance) {
  const Comparison result =
      compare(Doubles{1.05, 2.5, 3.0}, Doubles{1.0, 2.0, 3.0}, Doubles{0.1, 2.0, 0.1});
  EXPECT_TRUE(result.holds);
  EXPECT_NEAR(result.worst, 0.5, 1e-12);  // 0.05 of 0.1, not the larger 0.5 of 2
  EXPECT_EQ(result.at, 0);
}

TEST(SameBits, TellsWhatEqualityHides) {
  EXPECT_TRUE(same_bits(Floats{1.0f, -2.0f}, Floats{1.0f, -2.0f}).holds);
  EXPECT_FALSE(same_bits(Floats{1.0f, std::nextafter(-2.0f, 0.0f)}, Floats{1.0f, -2.0f}).holds);
  const Comparison zero = same_bits(Floats{1.0f, -0.0f}, Floats{1.0f, 0.0f});
  EXPECT_FALSE(zero.holds);
  EXPECT_EQ(zero.at, 1);
  EXPECT_FALSE(same_bits(Floats{1.0f, 0.0f}, Floats{1.0f, kNanF}).holds);
  EXPECT_FALSE(same_bits(Floats{1.0f, kNanF}, Floats{1.0f, 0.0f}).holds);
}

// Two runs that agree on NaN have both failed.
TEST(SameBits, NanIsRefusedEvenIfBothHaveIt) {
  EXPECT_FALSE(same_bits(Floats{1.0f, kNanF}, Floats{1.0f, kNanF}).holds);
  // An infinity may be meant: the gap to the first rejected expert where none was rejected.
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_TRUE(same_bits(Floats{1.0f, infinity}, Floats{1.0f, infinity}).holds);
}

TEST(SameBits, EmptySizesAndZerosAreRefused) {
  EXPECT_FALSE(same_bits(Floats{}, Floats{}).holds);
  EXPECT_FALSE(same_bits(Floats{1.0f}, Floats{1.0f, 2.0f}).holds);
  EXPECT_FALSE(same_bits(Floats{1.0f, 2.0f}, Floats{1.0f}).holds);
  EXPECT_TRUE(same_bits(with_zeros<float>(9), with_zeros<float>(9)).holds);
  EXPECT_FALSE(same_bits(Floats(10, 0.0f), Floats(10, 0.0f)).holds);
}

TEST(RelativeNormError, IsTheNormOfTheDifferenceOverTheNormOfTheWanted) {
  EXPECT_EQ(relative_norm_error(Doubles{3.0, 4.0}, Doubles{3.0, 4.0}), 0.0);
  EXPECT_DOUBLE_EQ(relative_norm_error(Doubles{3.0, 4.5}, Doubles{3.0, 4.0}), 0.1);
  EXPECT_DOUBLE_EQ(relative_norm_error(Doubles{-3.0, -4.0}, Doubles{3.0, 4.0}), 2.0);
}

// Infinity exceeds every gate, so a caller that asks "error <= gate" refuses all of these.
TEST(RelativeNormError, WhatCannotBeComparedIsInfinitelyWrong) {
  EXPECT_EQ(relative_norm_error(Doubles{}, Doubles{}), kInf);
  EXPECT_EQ(relative_norm_error(Doubles{1.0}, Doubles{1.0, 2.0}), kInf);
  EXPECT_EQ(relative_norm_error(Doubles{0.0, 0.0}, Doubles{0.0, 0.0}), kInf);
  for (const double bad : {kNan, kInf, -kInf}) {
    EXPECT_EQ(relative_norm_error(Doubles{1.0, bad}, Doubles{1.0, 2.0}), kInf);
    EXPECT_EQ(relative_norm_error(Doubles{1.0, 2.0}, Doubles{1.0, bad}), kInf);
    EXPECT_EQ(relative_norm_error(Doubles{1.0, bad}, Doubles{1.0, bad}), kInf);
  }
  EXPECT_EQ(relative_norm_error(Doubles{1e200, 1.0}, Doubles{-1e200, 1.0}), kInf);
}

// Comparators as they are found in the wild. Each passes one of the inputs above that ours refuses,
// which shows that those inputs can tell.
TEST(Compare, PlantedFaults) {
  // "Does it exceed?": NaN exceeds nothing.
  const auto exceeds = [](const Doubles& got, const Doubles& want, const Doubles& allowed) {
    for (std::size_t i = 0; i < got.size(); ++i) {
      if (std::abs(got[i] - want[i]) > allowed[i]) return false;
    }
    return true;
  };
  EXPECT_TRUE(exceeds(with(kWant, 0, kNan), kWant, kAllowed));
  EXPECT_FALSE(compare(with(kWant, 0, kNan), kWant, kAllowed).holds);
  EXPECT_TRUE(exceeds({}, {}, {}));
  EXPECT_FALSE(compare(Doubles{}, Doubles{}, Doubles{}).holds);

  // A maximum folded with ">" skips NaN.
  const auto folded = [](const Doubles& got, const Doubles& want) {
    double largest = 0.0;
    for (std::size_t i = 0; i < got.size(); ++i) {
      const double error = std::abs(got[i] - want[i]);
      if (error > largest) largest = error;
    }
    return largest <= 0.1;
  };
  EXPECT_TRUE(folded(with(kWant, 3, kNan), kWant));
  EXPECT_FALSE(compare(with(kWant, 3, kNan), kWant, kAllowed).holds);

  // No absolute value: right only on one side.
  const auto one_sided = [](const Doubles& got, const Doubles& want, const Doubles& allowed) {
    for (std::size_t i = 0; i < got.size(); ++i) {
      if (!(got[i] - want[i] <= allowed[i])) return false;
    }
    return true;
  };
  EXPECT_TRUE(one_sided({-5.0}, {-1.0}, {0.1}));
  EXPECT_FALSE(compare(Doubles{-5.0}, Doubles{-1.0}, Doubles{0.1}).holds);

  // Equality of values is not equality of bits.
  EXPECT_TRUE(Floats{-0.0f} == Floats{0.0f});
  EXPECT_FALSE(same_bits(Floats{1.0f, -0.0f}, Floats{1.0f, 0.0f}).holds);
}

}  // namespace
}  // namespace checks
