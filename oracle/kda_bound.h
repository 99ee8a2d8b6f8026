// The KDA recurrence over Bound and Dual<Bound>: the same formulas as kda.h, with an error bound
// that does not explode.
//
// Element by element, a bound of the state grows by α + β‖k‖² a step (the delta write is bounded by
// its absolute value), that is by 1.5^T. The true error does not grow at all: a column s of the
// state obeys
//     s' = M s + β k v,   M = (I - β k kᵀ) diag(α),   ‖M‖₂ <= max(1, |1 - β‖k‖²|) max α
// with ‖M‖ at most 1, as β < 1 and ‖k‖ < 1; and so does its error δ = s~ - s, with what this step's
// roundings and inexact α, k, β, v put in:
//     ‖δ'‖ <= ‖M‖ ‖δ‖ + ‖local‖.
// So ‖δ‖₂ is carried, one number a column; reading is o~ - o = δ·q~ + s·(q~ - q) + rounding, and
// |δ·q~| <= ‖δ‖ ‖q~‖. A tangent ṡ obeys the same recurrence with more terms put in, and is bounded
// in the same way.
//
// Assumed of the engine: token by token as written, sums over the key in any order. A chunked form
// is another computation.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "oracle/bound.h"
#include "oracle/documents.h"
#include "oracle/dual.h"

namespace oracle {

struct KdaShape {
  int64_t heads, key, value;  // Hk, D, D
};

// One column of the state, over the key index: value and tangents, and bounds of the 2-norms of
// their errors.
template <int N>
class KdaBoundColumn {
 public:
  using S = Dual<Bound, N>;

  explicit KdaBoundColumn(int64_t key) : s_(key, 0.0) {
    for (auto& ds : ds_) ds.assign(key, 0.0);
  }

  void set(int64_t i, const S& x) {
    s_[i] = x.value.value;
    err_ = std::hypot(err_, x.value.err);
    for (int n = 0; n < N; ++n) {
      ds_[n][i] = x.tangent[n].value;
      ds_err_[n] = std::hypot(ds_err_[n], x.tangent[n].err);
    }
  }
  S get(int64_t i) const {
    S x(Bound(s_[i], err_));
    for (int n = 0; n < N; ++n) x.tangent[n] = Bound(ds_[n][i], ds_err_[n]);
    return x;
  }

  // One token: alpha, k, q [key]; returns o.
  S step(const S* alpha, const S* k, const S* q, const S& v, const S& beta) {
    const size_t key = s_.size();
    // s~ = α s, its tangent first because that needs the old s.
    double steepest = 0;  // max α~
    Norm from_alpha;
    for (size_t i = 0; i < key; ++i) {
      steepest = std::max(steepest, alpha[i].value.magnitude());
      from_alpha.add((alpha[i].value.err + kUnit * alpha[i].value.magnitude()) * s_[i]);
    }
    for (int n = 0; n < N; ++n) {
      double steepest_tangent = 0;
      Norm local;
      for (size_t i = 0; i < key; ++i) {
        const Bound& a = alpha[i].value;
        const Bound& da = alpha[i].tangent[n];
        steepest_tangent = std::max(steepest_tangent, da.magnitude());
        local.add((a.err + gamma(2) * a.magnitude()) * std::fabs(ds_[n][i]) +
                  (da.err + gamma(2) * da.magnitude()) * std::fabs(s_[i]));
        ds_[n][i] = a.value * ds_[n][i] + da.value * s_[i];
      }
      ds_err_[n] = (1 + gamma(2)) * (steepest * ds_err_[n] + steepest_tangent * err_) + local.get();
    }
    for (size_t i = 0; i < key; ++i) s_[i] *= alpha[i].value.value;
    err_ = (1 + kUnit) * steepest * err_ + from_alpha.get();

    // w = v - kᵀ s~. `made` is what is wrong with it given s~; `wrong` includes the error of s~.
    Norm k_norm;
    for (size_t i = 0; i < key; ++i) k_norm.add(k[i].value.value);
    const double damping = std::max(1.0, std::fabs(1 - beta.value.value * k_norm.squared()));
    const Reading recalled = read(k, key);
    const Bound w(v.value.value - recalled.value.value);
    const double w_largest = std::fabs(w.value) + k_norm.get() * err_;
    const double w_made =
        v.value.err + recalled.made + kUnit * (w_largest + v.value.err + recalled.made);
    const double w_wrong = w_made + k_norm.get() * err_;

    for (int n = 0; n < N; ++n) {
      const Reading moved = read_tangent(k, key, n);
      const double dw = v.tangent[n].value - moved.value.value;
      const double dw_largest = std::fabs(dw) + k_norm.get() * ds_err_[n];
      const double dw_given = v.tangent[n].err + moved.made;
      const double dw_made = dw_given + kUnit * (dw_largest + dw_given);
      Norm local;
      for (size_t i = 0; i < key; ++i) {
        const Bound b = unrounded_product(k[i].value, beta.value);
        const Bound db1 = unrounded_product(k[i].tangent[n], beta.value);
        const Bound db2 = unrounded_product(k[i].value, beta.tangent[n]);
        // Their sum may be taken after multiplying by w: absolute values, though they may cancel.
        const double db = std::fabs(db1.value) + std::fabs(db2.value);
        const double db_err = db1.err + db2.err;
        ds_[n][i] += b.value * dw + (db1.value + db2.value) * w.value;
        local.add(std::fabs(b.value) * dw_made +
                  (b.err + gamma(4) * b.magnitude()) * (dw_largest + dw_made) + db * w_wrong +
                  (db_err + gamma(4) * (db + db_err)) * (std::fabs(w.value) + w_wrong) +
                  gamma(2) * std::fabs(ds_[n][i]));
      }
      ds_err_[n] = damping * (1 + gamma(2)) * ds_err_[n] + (1 + gamma(2)) * local.get() + tiny();
    }

    Norm local;
    for (size_t i = 0; i < key; ++i) {
      const Bound b = unrounded_product(k[i].value, beta.value);
      s_[i] += b.value * w.value;
      local.add(std::fabs(b.value) * w_made +
                (b.err + gamma(2) * b.magnitude()) * (w_largest + w_made) +
                kUnit * std::fabs(s_[i]));
    }
    err_ = damping * (1 + kUnit) * err_ + (1 + kUnit) * local.get() + tiny();

    const Reading out = read(q, key);
    S o(closed(out.value.value, out.made + out.inherited, std::fabs(out.value.value)));
    for (int n = 0; n < N; ++n) {
      const Reading d = read_tangent(q, key, n);
      o.tangent[n] = closed(d.value.value, d.made + d.inherited, std::fabs(d.value.value));
    }
    return o;
  }

 private:
  class Norm {
   public:
    void add(double x) { squares_ += x * x; }
    double squared() const { return squares_; }
    double get() const { return std::sqrt(squares_) * (1 + 0x1p-40); }

   private:
    double squares_ = 0;
  };
  // sᵀ x: `made` by this product (inexact x, rounding), `inherited` from the error of s.
  struct Reading {
    Bound value;
    double made;
    double inherited;
  };

  static Bound unrounded_product(const Bound& a, const Bound& b) {
    return Bound(a.value * b.value, std::fabs(a.value) * b.err + a.err * b.magnitude());
  }
  double tiny() const { return static_cast<double>(s_.size()) * kSubnormal; }

  // Of state column s with error norm `err` and vector x, in a sum of `terms` products.
  static void add_reading(Reading& r, const std::vector<double>& s, double err, auto x,
                          double terms) {
    Norm wrong, whole;
    for (size_t i = 0; i < s.size(); ++i) {
      const Bound& x_i = x(i);
      const double off = x_i.err + gamma(sum_roundings(terms)) * x_i.magnitude();
      r.value.value += x_i.value * s[i];
      r.made += off * std::fabs(s[i]) + kSubnormal;
      wrong.add(off);
      whole.add(x_i.magnitude());
    }
    r.made += wrong.get() * err;
    r.inherited += whole.get() * err;
  }
  Reading read(const S* x, size_t key) const {
    Reading r{Bound(0), 0, 0};
    add_reading(
        r, s_, err_, [&](size_t i) -> const Bound& { return x[i].value; },
        static_cast<double>(key));
    return r;
  }
  // d(sᵀ x) = ṡᵀ x + sᵀ ẋ. What `made` holds of the second product includes its inherited error:
  // only ṡ is tracked further.
  Reading read_tangent(const S* x, size_t key, int n) const {
    const double terms = 2 * static_cast<double>(key);
    Reading r{Bound(0), 0, 0};
    add_reading(
        r, s_, err_, [&](size_t i) -> const Bound& { return x[i].tangent[n]; }, terms);
    r.made += r.inherited;
    r.inherited = 0;
    add_reading(
        r, ds_[n], ds_err_[n], [&](size_t i) -> const Bound& { return x[i].value; }, terms);
    return r;
  }

  std::vector<double> s_;
  double err_ = 0;
  std::array<std::vector<double>, N> ds_;
  std::array<double, N> ds_err_{};
};

// Shape and Source: kda_recurrence in kda.h
template <int N>
std::vector<Dual<Bound, N>> kda_recurrence(std::span<const Dual<Bound, N>> q,
                                           std::span<const Dual<Bound, N>> k,
                                           std::span<const Dual<Bound, N>> v,
                                           std::span<const Dual<Bound, N>> g,
                                           std::span<const Dual<Bound, N>> beta, KdaShape shape,
                                           std::span<const int64_t> doc_begin,
                                           std::vector<Dual<Bound, N>>* state = nullptr) {
  const auto [heads, key, value] = shape;
  const int64_t tokens = static_cast<int64_t>(beta.size()) / heads;
  const std::vector<int64_t> start = document_starts(doc_begin, tokens);
  std::vector<Dual<Bound, N>> alpha;
  for (const auto& x : g) alpha.push_back(exp(x));
  std::vector<Dual<Bound, N>> o(tokens * heads * value);
  for (int64_t h = 0; h < heads; ++h) {
    for (int64_t c = 0; c < value; ++c) {
      KdaBoundColumn<N> column(key);
      for (int64_t i = 0; state && i < key; ++i) column.set(i, (*state)[(h * key + i) * value + c]);
      for (int64_t t = 0; t < tokens; ++t) {
        if (start[t] == t && t > 0) column = KdaBoundColumn<N>(key);
        const int64_t row = t * heads + h;
        o[row * value + c] = column.step(&alpha[row * key], &k[row * key], &q[row * key],
                                         v[row * value + c], beta[row]);
      }
      for (int64_t i = 0; state && i < key; ++i)
        (*state)[(h * key + i) * value + c] = column.get(i);
    }
  }
  return o;
}

inline std::vector<Bound> kda_recurrence(std::span<const Bound> q, std::span<const Bound> k,
                                         std::span<const Bound> v, std::span<const Bound> g,
                                         std::span<const Bound> beta, KdaShape shape,
                                         std::span<const int64_t> doc_begin,
                                         std::vector<Bound>* state = nullptr) {
  using Plain = Dual<Bound, 0>;  // no tangents
  const auto lift = [](std::span<const Bound> x) { return std::vector<Plain>(x.begin(), x.end()); };
  const std::vector<Plain> q0 = lift(q), k0 = lift(k), v0 = lift(v), g0 = lift(g),
                           beta0 = lift(beta);
  std::vector<Plain> state0;
  if (state) state0 = lift(*state);
  std::vector<Bound> o;
  for (const Plain& x :
       kda_recurrence<0>(q0, k0, v0, g0, beta0, shape, doc_begin, state ? &state0 : nullptr)) {
    o.push_back(x.value);
  }
  for (size_t j = 0; j < state0.size(); ++j) (*state)[j] = state0[j].value;
  return o;
}

}  // namespace oracle
