#include <gtest/gtest.h>

#include <boost/multiprecision/cpp_bin_float.hpp>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "checks/ops/op_case.h"
#include "engine/base/lane_math.h"
#include "engine/base/math.h"
#include "engine/base/rng.h"

namespace checks::ops {
namespace {

namespace base = engine::base;
namespace lane = engine::base::LAZYLORA_ISA;
using Real = boost::multiprecision::cpp_bin_float_50;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr float kInfinityF = std::numeric_limits<float>::infinity();

// The errors that the headers promise, in units of the last place.
constexpr double kDoubleUlp = 1.0;
constexpr double kExpUlp = 0.93;
constexpr double kSigmoidUlp = 1.97;
constexpr double kTanhUlp = 2.11;
constexpr double kTanhSlopeUlp = 3.62;

// |got - want| in units of the last place of a double near want, subnormals included.
double ulps(double got, const Real& want) {
  const double rounded = std::abs(static_cast<double>(want));
  const int exponent = rounded < 0x1p-1022 ? -1022 : std::ilogb(rounded);
  return static_cast<double>(abs(Real(got) - want) / Real(std::ldexp(1.0, exponent - 52)));
}

// The same for a float; a wanted value in double is good to 2^-29 of such a unit.
double ulps_f(float got, double want) {
  const int exponent = std::abs(want) < 0x1p-126 ? -126 : std::ilogb(want);
  return std::abs(got - want) / std::ldexp(1.0, exponent - 23);
}

double uniform(const base::CounterRng& rng, std::uint64_t i, double low, double high) {
  const double unit = (rng.bits(2 * i) + rng.bits(2 * i + 1) * 0x1p-32) * 0x1p-32;
  return low + (high - low) * unit;
}

// The largest error of f over `count` arguments of [low, high].
template <class F, class Wanted>
double worst_ulps(F f, Wanted wanted, double low, double high, int count) {
  const base::CounterRng rng(1, "math");
  double worst = 0.0;
  for (int i = 0; i < count; ++i) {
    const double x = uniform(rng, static_cast<std::uint64_t>(i), low, high);
    const double error = ulps(f(x), wanted(Real(x)));
    if (!(error <= worst)) worst = error;
  }
  return worst;
}

double our_exp(double x) { return base::exp(x); }
double our_log(double x) { return base::log(x); }
double our_cos(double x) { return base::cos(x); }

TEST(Math, DoubleExp) {
  const auto wanted = [](const Real& x) { return Real(exp(x)); };
  EXPECT_LE(worst_ulps(our_exp, wanted, -1.0, 1.0, 10000), kDoubleUlp);
  EXPECT_LE(worst_ulps(our_exp, wanted, -708.0, 709.7, 10000), kDoubleUlp);
  EXPECT_LE(worst_ulps(our_exp, wanted, -745.1, -708.0, 3000), kDoubleUlp);
  EXPECT_EQ(base::exp(0.0), 1.0);
  EXPECT_EQ(base::exp(709.78), static_cast<double>(Real(exp(Real(709.78)))));
  EXPECT_EQ(base::exp(709.79), kInfinity);
  EXPECT_EQ(base::exp(kInfinity), kInfinity);
  EXPECT_EQ(base::exp(-kInfinity), 0.0);
  EXPECT_EQ(base::exp(-746.0), 0.0);
  EXPECT_TRUE(std::isnan(base::exp(std::nan(""))));
}

TEST(Math, DoubleLog) {
  const auto wanted = [](const Real& x) { return Real(log(x)); };
  EXPECT_LE(worst_ulps(our_log, wanted, 0.5, 2.0, 10000), kDoubleUlp);
  EXPECT_LE(worst_ulps(our_log, wanted, 1.0 - 1e-6, 1.0 + 1e-6, 3000), kDoubleUlp);
  EXPECT_LE(worst_ulps(our_log, wanted, 0.0, 1e5, 3000), kDoubleUlp);
  // Every binade, the subnormal ones included.
  const base::CounterRng rng(1, "binades");
  for (int e = -1074; e < 1024; ++e) {
    const double x = std::ldexp(uniform(rng, static_cast<std::uint64_t>(e + 1074), 1.0, 2.0), e);
    EXPECT_LE(ulps(base::log(x), log(Real(x))), kDoubleUlp) << x;
  }
  EXPECT_EQ(base::log(1.0), 0.0);
  EXPECT_EQ(base::log(0.0), -kInfinity);
  EXPECT_EQ(base::log(-0.0), -kInfinity);
  EXPECT_EQ(base::log(kInfinity), kInfinity);
  EXPECT_TRUE(std::isnan(base::log(-1.0)));
  EXPECT_TRUE(std::isnan(base::log(std::nan(""))));
}

TEST(Math, DoubleCos) {
  const auto wanted = [](const Real& x) { return Real(cos(x)); };
  EXPECT_LE(worst_ulps(our_cos, wanted, 0.0, 6.2832, 10000), kDoubleUlp);
  EXPECT_LE(worst_ulps(our_cos, wanted, -base::kCosineRange, base::kCosineRange, 3000), kDoubleUlp);
  // The doubles around every zero of the range, where reduction by a short pi loses all.
  for (int k = -39; k <= 39; k += 2) {
    double x = k * 1.5707963267948966;
    for (int step = -3; step <= 3; ++step) {
      EXPECT_LE(ulps(base::cos(x), cos(Real(x))), kDoubleUlp) << k << " pi/2";
      x = std::nextafter(x, 100.0);
    }
  }
  EXPECT_EQ(base::cos(0.0), 1.0);
  EXPECT_EQ(base::cos(3.141592653589793), -1.0);
  EXPECT_TRUE(std::isnan(base::cos(65.0)));
  EXPECT_TRUE(std::isnan(base::cos(kInfinity)));
}

// Every 40009th float in the order of the real line, both infinities and NaNs apart.
std::vector<float> floats() {
  std::vector<float> all;
  for (std::int64_t i = 0xFF7FFFFF; i >= 0x80000000; i -= 40009) {
    all.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(i)));
  }
  for (std::int64_t i = 0; i < 0x7F800000; i += 40009) {
    all.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(i)));
  }
  return all;
}

// The five functions of one float in the lanes of the check's own instruction set.
struct LaneValues {
  float exp, sigmoid, sigmoid_minus, tanh, tanh_slope;
};
LaneValues lane_values(float x) {
  const lane::Lanes all = lane::broadcast(x);
  const auto first = [](lane::Lanes a) {
    float out[lane::kLanes];
    lane::store(out, a);
    return out[0];
  };
  const auto s = lane::sigmoid(all);
  const auto t = lane::tanh(all);
  return {first(lane::exp(all)), first(s.s), first(s.c), first(t.t), first(t.d)};
}

TEST(Math, FloatFunctions) {
  double worst[5] = {};
  const auto meet = [&](int which, float got, double want) {
    if (std::abs(want) > std::numeric_limits<float>::max()) {
      EXPECT_EQ(got, kInfinityF);
      return;
    }
    const double error = ulps_f(got, want);
    if (!(error <= worst[which])) worst[which] = error;
  };
  float last_sigmoid = 0.0f;
  float last_tanh = -1.0f;
  for (const float x : floats()) {
    const LaneValues got = lane_values(x);
    const double e = std::exp(-std::abs(double{x}));
    const double large = 1.0 / (1.0 + e);
    const double small = e / (1.0 + e);
    const double e2 = std::exp(-2.0 * std::abs(double{x}));
    meet(0, got.exp, std::exp(double{x}));
    meet(1, got.sigmoid, x < 0 ? small : large);
    meet(2, got.sigmoid_minus, x < 0 ? large : small);
    meet(3, got.tanh, std::tanh(double{x}));
    meet(4, got.tanh_slope, 4.0 * e2 / ((1.0 + e2) * (1.0 + e2)));
    // The scalar functions are one lane.
    EXPECT_EQ(std::bit_cast<std::uint32_t>(base::exp(x)), std::bit_cast<std::uint32_t>(got.exp));
    EXPECT_EQ(std::bit_cast<std::uint32_t>(base::sigmoid(x)),
              std::bit_cast<std::uint32_t>(got.sigmoid));
    EXPECT_EQ(std::bit_cast<std::uint32_t>(base::tanh(x)), std::bit_cast<std::uint32_t>(got.tanh));
    EXPECT_LE(last_sigmoid, got.sigmoid) << "sigmoid falls at " << x;
    EXPECT_LE(last_tanh, got.tanh) << "tanh falls at " << x;
    EXPECT_LE(std::abs(got.tanh), 1.0f);
    EXPECT_EQ(base::tanh(-x), -got.tanh);
    last_sigmoid = got.sigmoid;
    last_tanh = got.tanh;
  }
  EXPECT_LE(worst[0], kExpUlp);
  EXPECT_LE(worst[1], kSigmoidUlp);
  EXPECT_LE(worst[2], kSigmoidUlp);
  EXPECT_LE(worst[3], kTanhUlp);
  EXPECT_LE(worst[4], kTanhSlopeUlp);
}

TEST(Math, FloatLimits) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(std::isnan(base::exp(nan)));
  EXPECT_TRUE(std::isnan(base::sigmoid(nan)));
  EXPECT_TRUE(std::isnan(base::tanh(nan)));
  EXPECT_TRUE(std::isnan(lane_values(nan).sigmoid_minus));
  EXPECT_TRUE(std::isnan(lane_values(nan).tanh_slope));
  EXPECT_EQ(base::exp(kInfinityF), kInfinityF);
  EXPECT_EQ(base::exp(-kInfinityF), 0.0f);
  EXPECT_EQ(base::exp(88.73f), kInfinityF);
  EXPECT_EQ(base::exp(0.0f), 1.0f);
  EXPECT_EQ(base::sigmoid(kInfinityF), 1.0f);
  EXPECT_EQ(base::sigmoid(-kInfinityF), 0.0f);
  EXPECT_EQ(base::sigmoid(0.0f), 0.5f);
  EXPECT_EQ(base::tanh(kInfinityF), 1.0f);
  EXPECT_EQ(base::tanh(-kInfinityF), -1.0f);
  EXPECT_TRUE(std::signbit(base::tanh(-0.0f)));
  // Gradual underflow: 1 / (1 + exp(-x)) would be 0 here, as exp(90) is infinite.
  EXPECT_LE(ulps_f(base::sigmoid(-90.0f), std::exp(-90.0)), kSigmoidUlp);
  EXPECT_EQ(base::tanh(0x1p-140f), 0x1p-140f);
}

TEST(Math, SameBitsInEveryInstructionSet) {
  const std::vector<float> x = floats();
  const auto n = static_cast<std::int64_t>(x.size());
  const Comparison bits = same_bits_everywhere([&] {
    std::vector<float> y(4 * x.size());
    const auto& table = engine::ops::kernels().elementwise;
    table.exp(x.data(), y.data(), n);
    table.sigmoid(x.data(), y.data() + n, n);
    table.silu(x.data(), y.data() + 2 * n, n);
    // b1 = b2 = 1: tanh(x) sigmoid(x) tanh(x).
    table.situ_glu(x.data(), x.data(), 1.0f, 1.0f, y.data() + 3 * n, n);
    return y;
  });
  EXPECT_TRUE(bits) << bits.why;
}

TEST(Math, PlantedFaults) {
  const auto exp_wanted = [](const Real& x) { return Real(exp(x)); };
  const auto log_wanted = [](const Real& x) { return Real(log(x)); };
  const auto cos_wanted = [](const Real& x) { return Real(cos(x)); };
  const auto two_ulps_high = [](double x) {
    return std::nextafter(std::nextafter(base::exp(x), kInfinity), kInfinity);
  };
  EXPECT_GT(worst_ulps(two_ulps_high, exp_wanted, -1.0, 1.0, 100), kDoubleUlp);
  const auto log_by_float = [](double x) { return double{std::log(static_cast<float>(x))}; };
  EXPECT_GT(worst_ulps(log_by_float, log_wanted, 0.5, 2.0, 100), kDoubleUlp);
  // Reduction by pi/2 in one double.
  const auto short_pi = [](double x) { return std::sin(1.5707963267948966 - x); };
  EXPECT_GT(worst_ulps(short_pi, cos_wanted, 1.5707, 1.5709, 100), kDoubleUlp);
  EXPECT_FALSE(worst_ulps([](double) { return std::nan(""); }, exp_wanted, 0.0, 1.0, 10) <=
               kDoubleUlp);
  // The tempting sigmoid and the tempting slope.
  EXPECT_GT(ulps_f(1.0f / (1.0f + base::exp(90.0f)), std::exp(-90.0)), kSigmoidUlp);
  const float t = base::tanh(4.0f);
  EXPECT_GT(ulps_f(1.0f - t * t, 1.0 - std::tanh(4.0) * std::tanh(4.0)), kTanhSlopeUlp);
}

}  // namespace
}  // namespace checks::ops
