// Dual numbers: x + Σ_n ẋ_n ε_n with ε_m ε_n = 0. Running a formula on them gives its value and N
// exact directional derivatives, without a step size.
//
// Shape   value T, tangent [N] T. T = double, or Bound for a bound of the derivative.
// Source  Griewank and Walther, Evaluating Derivatives, chapter 3.
#pragma once

#include <array>
#include <concepts>
#include <type_traits>

#include "oracle/scalar.h"

namespace oracle {

template <class T = double, int N = 1>
struct Dual {
  T value = T(0);
  std::array<T, N> tangent = zero_tangent();

  Dual() = default;
  explicit Dual(const T& v) requires(!std::is_arithmetic_v<T>) : value(v) {}
  template <class U>
  requires(std::is_arithmetic_v<U>) explicit Dual(U v) : value(static_cast<double>(v)) {}
  Dual(const T& v, const std::array<T, N>& t) : value(v), tangent(t) {}

  static std::array<T, N> zero_tangent() {
    std::array<T, N> zero;
    zero.fill(T(0));
    return zero;
  }

  Dual& operator+=(const Dual& b) { return *this = *this + b; }
  Dual& operator-=(const Dual& b) { return *this = *this - b; }
  Dual& operator*=(const Dual& b) { return *this = *this * b; }
  Dual& operator/=(const Dual& b) { return *this = *this / b; }

  friend Dual operator-(const Dual& a) {
    return a.map(-a.value, [](const T& t) { return -t; });
  }
  friend Dual operator+(const Dual& a, const Dual& b) {
    return zip(a.value + b.value, a, b, [](const T& s, const T& t) { return s + t; });
  }
  friend Dual operator-(const Dual& a, const Dual& b) {
    return zip(a.value - b.value, a, b, [](const T& s, const T& t) { return s - t; });
  }
  friend Dual operator*(const Dual& a, const Dual& b) {
    return zip(a.value * b.value, a, b,
               [&](const T& s, const T& t) { return s * b.value + a.value * t; });
  }
  friend Dual operator/(const Dual& a, const Dual& b) {
    const T ratio = a.value / b.value;
    return zip(ratio, a, b, [&](const T& s, const T& t) { return (s - ratio * t) / b.value; });
  }
  friend Dual operator+(const Dual& a, double b) { return {a.value + b, a.tangent}; }
  friend Dual operator+(double a, const Dual& b) { return {a + b.value, b.tangent}; }
  friend Dual operator-(const Dual& a, double b) { return {a.value - b, a.tangent}; }
  friend Dual operator-(double a, const Dual& b) { return a + (-b); }
  friend Dual operator*(const Dual& a, double b) {
    return a.map(a.value * b, [&](const T& t) { return t * b; });
  }
  friend Dual operator*(double a, const Dual& b) { return b * a; }
  friend Dual operator/(const Dual& a, double b) {
    return a.map(a.value / b, [&](const T& t) { return t / b; });
  }

  // A function of one variable with value f(value) and derivative df.
  Dual chain(const T& f, const T& df) const {
    return map(f, [&](const T& t) { return df * t; });
  }
  friend Dual exp(const Dual& a) {
    const T e = exp(a.value);
    return a.chain(e, e);
  }
  friend Dual log(const Dual& a) {
    return a.map(log(a.value), [&](const T& t) { return t / a.value; });
  }
  friend Dual sqrt(const Dual& a) {
    const T root = sqrt(a.value);
    return a.map(root, [&](const T& t) { return t / (2.0 * root); });
  }
  friend Dual tanh(const Dual& a) {
    const T h = tanh(a.value);
    return a.chain(h, 1.0 - h * h);
  }
  friend Dual sigmoid(const Dual& a) {
    const T s = sigmoid(a.value);
    return a.chain(s, s * (1.0 - s));
  }

  friend Dual known_within(const Dual& a, double low, double high, double roundings) {
    return {known_within(a.value, low, high, roundings), a.tangent};
  }

 private:
  template <class F>
  Dual map(const T& v, F f) const {
    Dual r(v);
    for (int n = 0; n < N; ++n) r.tangent[n] = f(tangent[n]);
    return r;
  }
  template <class F>
  static Dual zip(const T& v, const Dual& a, const Dual& b, F f) {
    Dual r(v);
    for (int n = 0; n < N; ++n) r.tangent[n] = f(a.tangent[n], b.tangent[n]);
    return r;
  }
};

template <class T, int N>
struct ScalarTraits<Dual<T, N>> {
  static double real(const Dual<T, N>& x) { return real_part(x.value); }
  static double error(const Dual<T, N>& x) { return error_part(x.value); }
  static Dual<T, N> rounded(double c) { return Dual<T, N>(rounded_constant<T>(c)); }
};

// One accumulator a component: Dual<Bound> keeps the order-free bound for its derivatives as well. Most
// terms of a derivative by one element are zero (another row, another column); they are not counted, or
// a bound would pay for the roundings of a sum that no backward takes.
template <class T, int N>
class Accumulator<Dual<T, N>> {
 public:
  void add(const Dual<T, N>& x) {
    value_.add(x.value);
    for (int n = 0; n < N; ++n) {
      if (!is_nothing(x.tangent[n])) tangent_[n].add(x.tangent[n]);
    }
  }
  void add(double w, const Dual<T, N>& x) {
    value_.add(w, x.value);
    for (int n = 0; n < N; ++n) {
      if (!is_nothing(x.tangent[n])) tangent_[n].add(w, x.tangent[n]);
    }
  }
  void add(const Dual<T, N>& x, const Dual<T, N>& y) {
    value_.add(x.value, y.value);
    for (int n = 0; n < N; ++n) {
      if (!is_nothing(x.tangent[n])) tangent_[n].add(x.tangent[n], y.value);
      if (!is_nothing(y.tangent[n])) tangent_[n].add(x.value, y.tangent[n]);
    }
  }
  Dual<T, N> result(int extra = 0) const {
    Dual<T, N> r(value_.result(extra));
    for (int n = 0; n < N; ++n) r.tangent[n] = tangent_[n].result(extra);
    return r;
  }

 private:
  Accumulator<T> value_;
  std::array<Accumulator<T>, N> tangent_;
};

}  // namespace oracle
