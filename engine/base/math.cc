#include "engine/base/math.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "engine/base/lane_math.h"

namespace engine::base {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// ln 2 and pi / 2 as unevaluated sums of doubles. ln 2's first part ends in 21 zero bits: times
// an exponent it is exact.
constexpr double kLn2High = 0x1.62e42feep-1;
constexpr double kLn2Low = 0x1.a39ef35793c76p-33;
constexpr double kHalfPiHigh = 0x1.921fb54442d18p+0;
constexpr double kHalfPiMiddle = 0x1.1a62633145c07p-54;
constexpr double kHalfPiLow = -0x1.f1976b7ed8fbcp-110;

// c[0] + c[1] x + ... in Horner's order.
template <int N>
double polynomial(const double (&c)[N], double x) {
  double y = c[N - 1];
  for (int i = N - 2; i >= 0; --i) y = std::fma(y, x, c[i]);
  return y;
}

double power_of_two(int n) {
  return std::bit_cast<double>(static_cast<std::uint64_t>(n + 1023) << 52);
}

// One lane with the operations that lane_math.h asks for.
struct Lane {
  float v;
};
Lane like(Lane, float c) { return {c}; }
Lane operator+(Lane a, Lane b) { return {a.v + b.v}; }
Lane operator-(Lane a, Lane b) { return {a.v - b.v}; }
Lane operator*(Lane a, Lane b) { return {a.v * b.v}; }
Lane operator/(Lane a, Lane b) { return {a.v / b.v}; }
Lane fma(Lane a, Lane b, Lane c) { return {std::fma(a.v, b.v, c.v)}; }
Lane round_to_nearest(Lane a) { return {std::nearbyint(a.v)}; }
bool less(Lane a, Lane b) { return a.v < b.v; }
bool is_nan(Lane a) { return std::isnan(a.v); }
Lane select(bool condition, Lane yes, Lane no) { return condition ? yes : no; }
Lane max(Lane a, Lane b) { return select(less(b, a), a, b); }
Lane abs(Lane a) { return {std::abs(a.v)}; }
Lane bit_and(Lane a, std::uint32_t bits) {
  return {std::bit_cast<float>(std::bit_cast<std::uint32_t>(a.v) & bits)};
}
Lane bit_or(Lane a, Lane b) {
  return {
      std::bit_cast<float>(std::bit_cast<std::uint32_t>(a.v) | std::bit_cast<std::uint32_t>(b.v))};
}
Lane exp2_integer(Lane n) {
  return {std::bit_cast<float>(static_cast<std::uint32_t>(static_cast<int>(n.v) + 127) << 23)};
}

}  // namespace

double exp(double x) {
  if (std::isnan(x)) return x;
  if (x > 710.0) return kInfinity;
  if (x < -746.0) return 0.0;
  // exp(x) = 2^n exp(r), |r| <= 0.347. Taylor to r^13: r^14/14! is a fiftieth of an ulp.
  const double n = std::nearbyint(x * 0x1.71547652b82fep+0);
  const double high = std::fma(-n, kLn2High, x);
  const double r = std::fma(-n, kLn2Low, high);
  static constexpr double kTaylor[] = {
      1.0 / 2,     1.0 / 6,      1.0 / 24,      1.0 / 120,      1.0 / 720,       1.0 / 5040,
      1.0 / 40320, 1.0 / 362880, 1.0 / 3628800, 1.0 / 39916800, 1.0 / 479001600, 1.0 / 6227020800};
  // The rounding of r is given back: it would be half of the error.
  const double r_low = std::fma(-n, kLn2Low, high - r);
  const double m = std::fma(r * r, polynomial(kTaylor, r), r_low) + r;
  const int whole = static_cast<int>(n);
  const int half = whole / 2;
  return (1.0 + m) * power_of_two(half) * power_of_two(whole - half);
}

double log(double x) {
  if (std::isnan(x) || x == kInfinity) return x;
  if (x < 0.0) return kNan;
  if (x == 0.0) return -kInfinity;
  int exponent = 0;
  if (x < 0x1p-1022) {
    x *= 0x1p54;
    exponent = -54;
  }
  // x = 2^k (1 + f), 1 + f in [sqrt(1/2), sqrt(2)).
  const auto bits = std::bit_cast<std::uint64_t>(x);
  const std::uint64_t above = bits - std::bit_cast<std::uint64_t>(0x1.6a09e667f3bcdp-1);
  exponent += static_cast<int>(static_cast<std::int64_t>(above) >> 52);
  const double f = std::bit_cast<double>(bits - ((above >> 52) << 52)) - 1.0;
  // log(1 + f) = 2 atanh(s), s = f / (2 + f), = f - f^2/2 + s (f^2/2 + 2 (s^2/3 + s^4/5 + ...)): f
  // stands alone and exact. s^2 <= 0.0295, so the first term left out, 2 s^22/23, is 1e-18 of it.
  const double s = f / (2.0 + f);
  const double z = s * s;
  static constexpr double kAtanh[] = {2.0 / 3,  2.0 / 5,  2.0 / 7,  2.0 / 9,  2.0 / 11,
                                      2.0 / 13, 2.0 / 15, 2.0 / 17, 2.0 / 19, 2.0 / 21};
  const double half_square = 0.5 * f * f;
  const double k = exponent;
  const double small = std::fma(k, kLn2Low, s * std::fma(z, polynomial(kAtanh, z), half_square));
  return std::fma(k, kLn2High, f - (half_square - small));
}

double cos(double x) {
  if (!(std::abs(x) <= kCosineRange)) return kNan;
  // x = k pi/2 + r, |r| <= pi/4.
  const double k = std::nearbyint(x * 0x1.45f306dc9c883p-1);
  const double high = std::fma(-k, kHalfPiHigh, x);
  // r + r_low = high - k (middle + low): Knuth's sum without loss, as near a zero of the cosine r
  // is what little the first two leave of each other.
  const double product = k * kHalfPiMiddle;
  const double r = high - product;
  const double back = high - r;
  const double lost_by_r = (high - (r + back)) + (back - product);
  const double r_low = lost_by_r - (std::fma(k, kHalfPiMiddle, -product) + k * kHalfPiLow);
  const double z = r * r;
  const int quadrant = static_cast<int>(k) & 3;
  double y;
  if (quadrant % 2 == 0) {
    // cos r to r^18/18!; 1 - z/2 loses what `lost` gives back.
    static constexpr double kCosine[] = {
        1.0 / 24,        -1.0 / 720,         1.0 / 40320,          -1.0 / 3628800,
        1.0 / 479001600, -1.0 / 87178291200, 1.0 / 20922789888000, -1.0 / 6402373705728000};
    const double top = std::fma(-0.5, z, 1.0);
    const double lost = std::fma(-0.5, z, 1.0 - top);
    y = top + std::fma(-r, r_low, std::fma(z * z, polynomial(kCosine, z), lost));
  } else {
    static constexpr double kSine[] = {
        -1.0 / 6,        1.0 / 120,        -1.0 / 5040,          1.0 / 362880,
        -1.0 / 39916800, 1.0 / 6227020800, -1.0 / 1307674368000, 1.0 / 355687428096000};
    y = r + std::fma(r * z, polynomial(kSine, z), r_low);
  }
  // cos(k pi/2 + r) = cos r, -sin r, -cos r, sin r
  return quadrant == 1 || quadrant == 2 ? -y : y;
}

float exp(float x) { return LAZYLORA_ISA::exp_of(Lane{x}).v; }
float sigmoid(float x) { return LAZYLORA_ISA::sigmoid_of(Lane{x}).s.v; }
float tanh(float x) { return LAZYLORA_ISA::tanh_of(Lane{x}).t.v; }

}  // namespace engine::base
