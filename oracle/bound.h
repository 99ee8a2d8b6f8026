// A running bound of the float32 rounding error: what an engine in float32 is allowed to differ by,
// derived instead of typed in.
//
//   Bound {value, err}:  | any sensible float32 evaluation - value | <= err
// where `value` is the double evaluation from the exact inputs.
//
// The arithmetic that is assumed of the engine
//   * weights and inputs given as Bound(x) are float32 numbers; every other constant is rounded
//     once (rounded_constant);
//   * + - * / sqrt and fma round to nearest with unit u = 2^-24, subnormals kept (absolute error at
//     most 2^-149); x / y may also be evaluated as x * (1 / y);
//   * a sum or dot product of n terms may use any summation tree, with or without fma:
//         err <= propagated + gamma(n) Σ|terms|,   gamma(n) = n u / (1 - n u);
//   * exp, log, tanh, sigmoid, 1/sqrt are within kElementaryUlps of the exact value at the float32
//     argument, and may flush a result under the smallest normal number to zero;
//   * doing better (double sums, one rounding for several) is always allowed.
// What is not covered: reassociation beyond sums (a chunked KDA, a streaming softmax with a moving
// maximum) and 1 - x formed from something else than x.
//
// Propagation is rigorous, not of first order: products keep e_a e_b, functions take their steepest
// slope over the whole interval, a divisor whose interval holds zero gives an infinite bound, and
// so does a possible overflow.
//
// The tempting wrong version: |x| * 1e-6 * depth. It is too tight where terms cancel and too loose
// everywhere else.
//
// Source  Higham, Accuracy and Stability of Numerical Algorithms, chapters 2 to 4.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "oracle/scalar.h"

namespace oracle {

// The 2^-10 on top of 2^-24 pays for the rounding of `value` itself, which is 2^-29 of the same
// sums, and for products of gammas in hand-made bounds.
inline constexpr double kUnit = 0x1p-24 * (1 + 0x1p-10);
inline constexpr double kSubnormal = 0x1p-149;
inline constexpr double kSmallestNormal = 0x1p-126;
inline constexpr double kLargest = 0x1.fffffep127;
inline constexpr double kElementaryUlps = 4;
inline constexpr double kElementary = kElementaryUlps * 2 * kUnit;  // one ULP is at most 2u |x|
inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

// (1 + u)^n - 1 and 1 - (1 - u)^n are at most this.
constexpr double gamma(double n) { return n * kUnit < 1 ? n * kUnit / (1 - n * kUnit) : kInfinity; }

// Roundings on the way of one term through a sum of n products, whatever the summation tree. The
// only place to change for an engine that promises an order: L partial sums and a tree over them
// have ceil(n / L) + log2(L) instead.
constexpr double sum_roundings(double n) { return n; }

struct Bound {
  double value = 0;
  double err = 0;

  Bound() = default;
  explicit Bound(double v, double e = 0) : value(v), err(e) {}

  double magnitude() const { return std::fabs(value) + err; }  // no float32 evaluation exceeds this

  Bound& operator+=(const Bound& b);
  Bound& operator-=(const Bound& b);
  Bound& operator*=(const Bound& b);
  Bound& operator/=(const Bound& b);
};

inline bool is_nothing(const Bound& x) { return x.value == 0 && x.err == 0; }

// Closes a hand-made bound: the error becomes infinite where it is not a number or where float32
// could overflow (`largest`: the largest magnitude on the way), and is widened so that the rounding
// of the bound itself cannot make it too small.
inline Bound closed(double value, double err, double largest) {
  return Bound(value, largest + err <= kLargest ? err * (1 + 0x1p-36) : kInfinity);
}

// A result whose inputs alone move it by `moved` and which is then rounded `roundings` times.
inline Bound rounded(double value, double moved, double roundings) {
  const double largest = std::fabs(value) + moved;
  return closed(value, moved + gamma(roundings) * largest + kSubnormal, largest);
}

// A result of an elementary function.
inline Bound elementary(double value, double moved) {
  const double largest = std::fabs(value) + moved;
  return closed(value, moved + kElementary * largest + kSmallestNormal, largest);
}

inline Bound operator-(const Bound& a) { return Bound(-a.value, a.err); }
inline Bound operator+(const Bound& a, const Bound& b) {
  return rounded(a.value + b.value, a.err + b.err, 1);
}
inline Bound operator-(const Bound& a, const Bound& b) {
  return rounded(a.value - b.value, a.err + b.err, 1);
}
inline Bound operator*(const Bound& a, const Bound& b) {
  const double moved = std::fabs(a.value) * b.err + a.err * std::fabs(b.value) + a.err * b.err;
  return rounded(a.value * b.value, moved, 1);
}
// |a~/b~ - a/b| = |(a~ - a) - (a/b)(b~ - b)| / |b~|
inline Bound operator/(const Bound& a, const Bound& b) {
  const double ratio = a.value / b.value;
  const double smallest = std::fabs(b.value) - b.err;
  const double moved = smallest > 0 ? (a.err + std::fabs(ratio) * b.err) / smallest : kInfinity;
  return rounded(ratio, moved, 2);
}

inline Bound operator+(const Bound& a, double b) { return a + Bound(b); }
inline Bound operator+(double a, const Bound& b) { return Bound(a) + b; }
inline Bound operator-(const Bound& a, double b) { return a - Bound(b); }
inline Bound operator-(double a, const Bound& b) { return Bound(a) - b; }
inline Bound operator*(const Bound& a, double b) { return a * Bound(b); }
inline Bound operator*(double a, const Bound& b) { return Bound(a) * b; }
inline Bound operator/(const Bound& a, double b) { return a / Bound(b); }
inline Bound operator/(double a, const Bound& b) { return Bound(a) / b; }

inline Bound& Bound::operator+=(const Bound& b) { return *this = *this + b; }
inline Bound& Bound::operator-=(const Bound& b) { return *this = *this - b; }
inline Bound& Bound::operator*=(const Bound& b) { return *this = *this * b; }
inline Bound& Bound::operator/=(const Bound& b) { return *this = *this / b; }

// e^(x+e) - e^x is the larger side.
inline Bound exp(const Bound& x) {
  const double e = std::exp(x.value);
  return elementary(e, e * std::expm1(x.err));
}

// log x - log(x - e) is the larger side.
inline Bound log(const Bound& x) {
  const double moved = x.err < x.value ? -std::log1p(-x.err / x.value) : kInfinity;
  return elementary(std::log(x.value), moved);
}

// √x - √(x - e) is the larger side.
inline Bound sqrt(const Bound& x) {
  const double root = std::sqrt(x.value);
  const double moved = x.err == 0        ? 0
                       : x.err < x.value ? x.err / (root + std::sqrt(x.value - x.err))
                                         : kInfinity;
  return rounded(root, moved, 1);
}

// A bound of x in the knowledge that every float32 evaluation ends within [low, high], up to
// `roundings`: no error can be larger than the way to the far end. Keeps the bound finite behind a
// division by something that may be zero.
inline Bound known_within(const Bound& x, double low, double high, double roundings) {
  const double reach = std::max(std::fabs(low), std::fabs(high));
  const double farthest =
      std::max(x.value - low, high - x.value) + gamma(roundings) * reach + kSubnormal;
  return x.err < farthest ? x : closed(x.value, farthest, reach);
}

// The slope of tanh, 1 / cosh², is steepest at the point of the interval nearest to zero; so is
// that of σ.
inline Bound tanh(const Bound& x) {
  const double nearest = std::max(std::fabs(x.value) - x.err, 0.0);
  const double cosh = std::cosh(nearest);
  const double t = std::tanh(x.value);
  return elementary(t, std::min(x.err / (cosh * cosh), 1 + std::fabs(t)));
}

inline Bound sigmoid(const Bound& x) {
  const double nearest = std::max(std::fabs(x.value) - x.err, 0.0);
  const double s = sigmoid(x.value);
  return elementary(s, std::min(x.err * sigmoid(nearest) * sigmoid(-nearest), std::max(s, 1 - s)));
}

template <>
struct ScalarTraits<Bound> {
  static double real(const Bound& x) { return x.value; }
  static double error(const Bound& x) { return x.err; }
  static Bound rounded(double c) { return Bound(c, kUnit * std::fabs(c)); }
};

// Order-free: the count of terms and Σ|terms| are all that a bound of every summation tree needs.
template <>
class Accumulator<Bound> {
 public:
  void add(const Bound& x) { add(x.value, x.err, x.magnitude()); }
  void add(double w, const Bound& x) {
    add(w * x.value, std::fabs(w) * x.err, std::fabs(w) * x.magnitude());
  }
  void add(const Bound& x, const Bound& y) {
    add(x.value * y.value, std::fabs(x.value) * y.err + x.err * y.magnitude(),
        x.magnitude() * y.magnitude());
  }
  Bound result(int extra = 0) const {
    const double roundings = sum_roundings(count_) + extra;
    return closed(sum_, moved_ + gamma(roundings) * magnitude_ + roundings * kSubnormal,
                  magnitude_);
  }

 private:
  void add(double term, double moved, double magnitude) {
    sum_ += term;
    moved_ += moved;
    magnitude_ += magnitude;
    count_ += 1;
  }
  double sum_ = 0;        // Σ terms
  double moved_ = 0;      // Σ of what the input errors do to the terms
  double magnitude_ = 0;  // Σ of the largest the terms can be
  double count_ = 0;
};

}  // namespace oracle
