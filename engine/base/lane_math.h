#pragma once

// exp, sigmoid and tanh on lanes, written once over a lane type L: sixteen lanes of any instruction
// set (engine/base/lanes.h) or the single lane of engine/base/math.cc, so that base::exp(float) has
// the bits of one lane here. No libm: its results differ between versions and processors.
//
// Correct for every float: NaN gives NaN, infinities their limits, results below 2^-126 come out as
// the subnormals they are.
//
// Accuracy  exp 0.93 ULP; sigmoid, either way up, 1.97; tanh 2.11; 1 - tanh^2 3.62. The largest
//           errors over ALL floats (below 1e-7, where the last four are straight lines, over every
//           sixteenth block of sixteen); checks/ops/math_check.cc goes through a sample
//
// Kernel sources only, as lanes.h.

#include "engine/base/lanes.h"

namespace engine::base::LAZYLORA_ISA {

// c in every lane of something shaped as its first argument.
inline Lanes like(Lanes, float c) { return broadcast(c); }

// exp(z) = 2^n (1 + m)
template <class L>
struct SplitExp {
  L n, m;
};

// For z in [-104, 89]: n = round(z / ln 2), m = exp(r) - 1, r = z - n ln 2 in [-0.347, 0.347]. The
// first fma is exact (the result is a multiple of ulp(z) or 2^-24, and small); r + r_low is r to
// twice the precision. m is the Taylor polynomial to r^7: the rest, r^8/8!, is a tenth of half an
// ulp of 1 + m.
template <class L>
inline SplitExp<L> split_exp(L z) {
  const L low = like(z, 0x1.05c61p-29f);
  const L n = round_to_nearest(z * like(z, 0x1.715476p+0f));
  const L high = fma(n, like(z, -0x1.62e43p-1f), z);
  const L r = fma(n, low, high);
  const L r_low = fma(n, low, high - r);
  L q = like(z, 1.0f / 5040.0f);
  q = fma(q, r, like(z, 1.0f / 720.0f));
  q = fma(q, r, like(z, 1.0f / 120.0f));
  q = fma(q, r, like(z, 1.0f / 24.0f));
  q = fma(q, r, like(z, 1.0f / 6.0f));
  q = fma(q, r, like(z, 0.5f));
  return {n, fma(r * r, q, r_low) + r};
}

// 2^n (1 + m) in two steps, as 2^n alone may be no float. The first step is exact, so a subnormal
// result is rounded once.
template <class L>
inline L join_exp(SplitExp<L> e) {
  const L half = round_to_nearest(e.n * like(e.n, 0.5f));
  return (like(e.n, 1.0f) + e.m) * exp2_integer(half) * exp2_integer(e.n - half);
}

// x where it lies in [low, high] or else the nearer of the two; 0 for NaN.
template <class L>
inline L clamp(L x, float low, float high) {
  x = select(is_nan(x), like(x, 0.0f), x);
  x = select(less(x, like(x, low)), like(x, low), x);
  return select(less(like(x, high), x), like(x, high), x);
}

// Outside [-104, 89] the result is 0 or infinity, and so it is at the ends.
template <class L>
inline L exp_of(L x) {
  return select(is_nan(x), x + x, join_exp(split_exp(clamp(x, -104.0f, 89.0f))));
}

// a / b, b being the rounded sum x + y with |x| >= |y|: the quotient by the sum itself, its
// rounding given back to first order. inverse is 1 / b to a few ulps.
template <class L>
inline L over_sum(L a, L x, L y, L inverse) {
  const L b = x + y;
  const L quotient = a / b;
  const L lost = (x - b) + y;
  return fma(quotient * (like(a, 0.0f) - lost), inverse, quotient);
}

// s = sigmoid(x), c = sigmoid(-x) = 1 - s without the cancellation, so s c is the derivative even
// where s rounds to 1.
template <class L>
struct Sigmoid {
  L s, c;
};

// From exp(-|x|) <= 1. 1 / (1 + exp(-x)) is the tempting wrong version: it gives 0 for x < -88.7,
// where the sigmoid is still a subnormal.
template <class L>
inline Sigmoid<L> sigmoid_of(L x) {
  const L e = exp_of(like(x, 0.0f) - abs(x));
  const L one = like(x, 1.0f);
  const L inverse = one / (one + e);
  const L large = over_sum(one, one, e, inverse);
  const L small = over_sum(e, one, e, inverse);
  const auto negative = less(x, like(x, 0.0f));
  return {select(negative, small, large), select(negative, large, small)};
}

// t = tanh(x), d = 1 - t^2 without the cancellation.
template <class L>
struct Tanh {
  L t, d;
};

// With e = exp(-2|x|) and p = e / (1 + e): t = (1 - e) / (1 + e) = 1 - 2 p, d = 4 p (1 - p), the
// sign of x put back last, so tanh is odd and never exceeds 1. Below 1/2 the quotient serves, with
// 1 - e taken from m and never as a difference of near-equals: near 0, t = x to the last bit.
// Above, the difference.
template <class L>
inline Tanh<L> tanh_of(L x) {
  const L one = like(x, 1.0f);
  const SplitExp<L> split = split_exp(clamp(abs(x) * like(x, -2.0f), -104.0f, 0.0f));
  const L e = join_exp(split);
  const L inverse = one / (one + e);
  const L p = over_sum(e, one, e, inverse);
  const L above = fma(like(x, -2.0f), p, one);
  const L power = exp2_integer(max(split.n, like(x, -126.0f)));
  const L less_one = fma(power, split.m, power - one);  // e - 1
  const L below = over_sum(abs(less_one), like(x, 2.0f), less_one, inverse);
  const L t = select(less(above, like(x, 0.5f)), below, above);
  const L d = like(x, 4.0f) * p * (one - p);
  const L sign = bit_and(x, 0x80000000u);
  return {select(is_nan(x), x + x, bit_or(t, sign)), select(is_nan(x), x + x, d)};
}

inline Lanes exp(Lanes x) { return exp_of(x); }
inline Sigmoid<Lanes> sigmoid(Lanes x) { return sigmoid_of(x); }
inline Tanh<Lanes> tanh(Lanes x) { return tanh_of(x); }

}  // namespace engine::base::LAZYLORA_ISA
