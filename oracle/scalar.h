// The scalar concept of the oracle, and what it needs for plain numbers.
//
// Every formula of the forward pass is written once, over a scalar type S:
//   double                     the value
//   Dual<T, N>     (dual.h)    value and N exact directional derivatives
//   Bound          (bound.h)   value and a bound of what float32 may do to it
//   Real50         (real50.h)  50 decimal digits, to settle disagreements
//   float                      one particular float32 evaluation, to try Bound against
//
// What S must offer: S(double), + - * / with S and with double, exp log sqrt tanh sigmoid,
// Accumulator<S>, and the three traits below. Frozen weights stay double: w * x is then one product
// per component, not a product of duals.
#pragma once

#include <cmath>
#include <concepts>

namespace oracle {

using std::exp;
using std::log;
using std::sqrt;
using std::tanh;

// real     what decisions are taken on (top-k, running maxima): never derivative or bound.
// error    the float32 error bound of the value, 0 for scalars that carry none.
// rounded  a constant such as 1e-20 that float32 cannot hold exactly (weights it can: they are
//          bf16, f32 or MXFP4).
template <class S>
struct ScalarTraits {
  static double real(const S& x) { return static_cast<double>(x); }
  static double error(const S&) { return 0; }
  static S rounded(double c) { return S(c); }
};

template <class S>
double real_part(const S& x) {
  return ScalarTraits<S>::real(x);
}
template <class S>
double error_part(const S& x) {
  return ScalarTraits<S>::error(x);
}
template <class S>
S rounded_constant(double c) {
  return ScalarTraits<S>::rounded(c);
}

// 1 / (1 + e^-x). Overflow of e^-x gives 0, as it should.
template <class S>
S sigmoid(const S& x) {
  return S(1) / (S(1) + exp(-x));
}

// Whether x is zero and nothing else: a sum has a term less then, and rounds a time less.
template <class S>
bool is_nothing(const S& x) {
  return x == S(0);
}

// Tells a scalar with a bound what range its value is known to keep. Others have no use for it.
template <class S>
S known_within(const S& x, double /*low*/, double /*high*/, double /*roundings*/) {
  return x;
}

// A sum of terms or of products. The only way in which the oracle sums more than two numbers, so
// that Bound can account for every summation tree at once instead of for the one that happens to be
// written here.
//
// result(extra): `extra` is the number of further factors, or roundings, that an evaluation may put
// into each term.
template <class S>
class Accumulator {
 public:
  void add(const S& x) { sum_ += x; }
  void add(double w, const S& x) requires(!std::same_as<S, double>) {
    if constexpr (std::same_as<S, float>) {
      sum_ += static_cast<float>(w) * x;
    } else {
      sum_ += w * x;
    }
  }
  void add(const S& x, const S& y) { sum_ += x * y; }
  S result(int /*extra*/ = 0) const { return sum_; }

 private:
  S sum_ = S(0);
};

}  // namespace oracle
