#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "checks/ops/op_case.h"
#include "engine/ops/kda.h"

// The KDA recurrence written a second time, over any kind of number and with its tempting wrong
// versions, and what runs the engine's on the same inputs.
namespace checks::ops::kda {

namespace op = engine::ops;

// Wrong versions of the recurrence; kNone is the right one. From kQueryConstant on, the value is
// right and a term of the gradient is dropped: what they name keeps its value when the inputs are
// varied.
enum class Fault {
  kNone,
  kUndecayedDelta,   // S_{t-1} instead of S' in the delta term
  kReadBeforeWrite,  // o_t = S'^T q_t
  kQueryScaled,      // D^-1/2 once more
  kStateTransposed,  // o = S q
  kNoBeta,
  kLeak,  // the state goes on across a document border
  kQueryConstant,
  kValueConstant,
  kGateConstant,
  kBetaConstant,
  kReadKeyConstant,     // k of S'^T k
  kWriteKeyConstant,    // k of k e^T
  kDeltaStateConstant,  // S' of S'^T k
  kCutAtChunk           // no gradient into the state at a chunk border
};

// All that the recurrence reads, in any kind of number.
template <class N>
struct Values {
  std::vector<N> q, k, v, alpha, beta, state;
};

struct Case {
  // Keys and queries of length about one, as l2norm leaves them; gates in [low, high].
  Case(std::int64_t heads, std::int64_t width, std::vector<std::int64_t> borders, float low = 0.6f,
       float high = 1.0f)
      : shape{heads, width}, documents(std::move(borders)), tokens(documents.back()) {
    const std::int64_t count = tokens * heads * width;
    const float unit = std::sqrt(3.0f / static_cast<float>(width));
    const auto between = [](std::vector<float> x, float from, float to) {
      for (float& value : x) value = from + (to - from) * (0.5f * value + 0.5f);
      return x;
    };
    in.q = random_values("q", count, unit);
    in.k = random_values("k", count, unit);
    in.v = random_values("v", count, 1.0f);
    in.alpha = between(random_values("alpha", count, 1.0f), low, high);
    in.beta = between(random_values("beta", tokens * heads, 1.0f), 0.1f, 0.9f);
    in.state = random_values("state", heads * width * width, 0.5f);
    d_o = random_values("d_o", count, 1.0f);
    d_state = random_values("d_state", heads * width * width, 0.5f);
  }

  op::KdaShape shape;
  std::vector<std::int64_t> documents;
  std::int64_t tokens;
  Values<float> in;
  std::vector<float> d_o, d_state;
};

template <class N>
inline Values<N> values_of(const Case& c) {
  const auto convert = [](const std::vector<float>& x) {
    return std::vector<N>(x.begin(), x.end());
  };
  return {convert(c.in.q),     convert(c.in.k),    convert(c.in.v),
          convert(c.in.alpha), convert(c.in.beta), convert(c.in.state)};
}

template <class N>
struct Output {
  std::vector<N> o, state;
};

// One token of one head, from `state` [D][D]; `still` is the decayed state that the fault
// kDeltaStateConstant reads instead of its own. Returns the decayed state.
template <class N>
inline std::vector<N> formula_step(const Values<N>& x, const Values<N>& still,
                                   const std::vector<N>* delta, std::int64_t width,
                                   std::int64_t row, Fault fault, std::vector<N>& state,
                                   std::vector<N>& o) {
  const auto pick = [&](Fault constant) -> const Values<N>& {
    return fault == constant ? still : x;
  };
  const std::int64_t at = row * width;
  const std::vector<N> before = state;
  std::vector<N> decayed(state);
  for (std::int64_t i = 0; i < width; ++i) {
    for (std::int64_t j = 0; j < width; ++j) {
      decayed[i * width + j] *= pick(Fault::kGateConstant).alpha[at + i];
    }
  }
  const std::vector<N>& read = fault == Fault::kUndecayedDelta ? before
                               : delta != nullptr              ? *delta
                                                               : decayed;
  state = decayed;
  for (std::int64_t j = 0; j < width; ++j) {
    N error = pick(Fault::kValueConstant).v[at + j];
    for (std::int64_t i = 0; i < width; ++i) {
      error -= read[i * width + j] * pick(Fault::kReadKeyConstant).k[at + i];
    }
    if (fault != Fault::kNoBeta) error *= pick(Fault::kBetaConstant).beta[row];
    for (std::int64_t i = 0; i < width; ++i) {
      state[i * width + j] += pick(Fault::kWriteKeyConstant).k[at + i] * error;
    }
  }
  const std::vector<N>& answer = fault == Fault::kReadBeforeWrite ? decayed : state;
  for (std::int64_t j = 0; j < width; ++j) {
    N sum = 0;
    for (std::int64_t i = 0; i < width; ++i) {
      const std::int64_t place = fault == Fault::kStateTransposed ? j * width + i : i * width + j;
      sum += answer[place] * pick(Fault::kQueryConstant).q[at + i];
    }
    o[at + j] = sum;
  }
  return decayed;
}

// The recurrence for inputs x; `still` are the inputs wherever the fault forgets that it depends on
// them.
template <class N>
inline Output<N> formula(const Case& c, const Values<N>& x, const Values<N>& still, Fault fault) {
  const std::int64_t width = c.shape.width;
  const std::int64_t size = width * width;
  Output<N> out{std::vector<N>(c.d_o.size()), x.state};
  std::vector<N> unused(c.d_o.size());
  for (std::int64_t h = 0; h < c.shape.heads; ++h) {
    std::vector<N> state(x.state.begin() + h * size, x.state.begin() + (h + 1) * size);
    std::vector<N> other(still.state.begin() + h * size, still.state.begin() + (h + 1) * size);
    for (std::size_t d = 0; d + 1 < c.documents.size(); ++d) {
      if (d > 0 && fault != Fault::kLeak) {
        state.assign(state.size(), N{0});
        other = state;
      }
      for (std::int64_t t = c.documents[d]; t < c.documents[d + 1]; ++t) {
        const std::int64_t row = t * c.shape.heads + h;
        const std::int64_t inside = t - c.documents[d];
        if (fault == Fault::kCutAtChunk && inside > 0 && inside % op::kKdaChunk == 0) state = other;
        const bool two = fault == Fault::kDeltaStateConstant || fault == Fault::kCutAtChunk;
        std::vector<N> delta;
        if (two) {
          delta = formula_step<N>(still, still, nullptr, width, row, Fault::kNone, other, unused);
        }
        formula_step<N>(x, still, fault == Fault::kDeltaStateConstant ? &delta : nullptr, width,
                        row, fault, state, out.o);
      }
    }
    std::copy(state.begin(), state.end(), out.state.begin() + h * size);
  }
  if (fault == Fault::kQueryScaled) {
    for (N& value : out.o) value *= 0.5;
  }
  return out;
}

template <class N = double>
inline Output<N> formula(const Case& c, Fault fault) {
  const auto x = values_of<N>(c);
  return formula(c, x, x, fault);
}

// In the place of alpha: the gradient by g = log alpha. `state` is left empty where it would take
// as many differences as a wide state has elements.
inline Values<double> gradient(const Case& c, Fault fault) {
  const auto still = values_of<double>(c);
  const auto loss = [&](const Values<double>& x) {
    const Output<double> out = formula(c, x, still, fault);
    return dot(out.o, c.d_o) + dot(out.state, c.d_state);
  };
  using Part = std::vector<double> Values<double>::*;
  Values<double> d;
  for (const Part part : {&Values<double>::q, &Values<double>::k, &Values<double>::v,
                          &Values<double>::beta, &Values<double>::state}) {
    if (part == &Values<double>::state && c.shape.width > 20) continue;
    d.*part = numeric_gradient(
        [&](const std::vector<double>& values) {
          Values<double> x = still;
          x.*part = values;
          return loss(x);
        },
        still.*part);
  }
  d.alpha = numeric_gradient(
      [&](const std::vector<double>& shift) {
        Values<double> x = still;
        for (std::size_t i = 0; i < shift.size(); ++i) x.alpha[i] *= std::exp(shift[i]);
        return loss(x);
      },
      std::vector<double>(still.alpha.size(), 0.0));
  return d;
}

struct Result {
  Output<float> out;
  Values<float> d;  // alpha: d_g
};

// in_place: the gradients of q, k, v and by the gate where q, k, v and alpha are.
inline Result run(const Case& c, bool in_place = false) {
  Result r;
  // Overwritten, all but the states: what stands there must not matter.
  r.out.o.assign(c.d_o.size(), 7.0f);
  r.out.state = c.in.state;
  const auto chunks = static_cast<std::size_t>(op::kda_chunks(c.documents));
  std::vector<float> saved(chunks * c.in.state.size(), 7.0f);
  const op::KdaInputs in{c.in.q, c.in.k, c.in.v, c.in.alpha, c.in.beta};
  op::kda_forward(in, c.documents, c.shape, r.out.state, saved, r.out.o);
  r.d = c.in;
  r.d.state = c.d_state;
  std::vector<float> scratch(
      static_cast<std::size_t>(op::kda_backward_scratch(c.shape, engine::base::threads())), 7.0f);
  const op::KdaInputs same_place{r.d.q, r.d.k, r.d.v, r.d.alpha, c.in.beta};
  op::kda_backward(in_place ? same_place : in, saved, c.documents, c.shape, c.d_o, r.d.state,
                   scratch, {r.d.q, r.d.k, r.d.v, r.d.alpha, r.d.beta});
  return r;
}

inline std::vector<float> flat(const Result& r) {
  std::vector<float> all = r.out.o;
  for (const auto* part :
       {&r.out.state, &r.d.q, &r.d.k, &r.d.v, &r.d.alpha, &r.d.beta, &r.d.state}) {
    append(all, *part);
  }
  return all;
}

// The first output that is not right, or a comparison that holds; an empty want.state is not
// compared.
inline Comparison values_hold(const Result& r, const Output<double>& want) {
  const Comparison o = within_share(r.out.o, want.o);
  return o ? within_share(r.out.state, want.state) : o;
}

inline Comparison gradients_hold(const Result& r, const Values<double>& want,
                                 Content content = Content::kDense) {
  using Pair = std::pair<const std::vector<float>*, const std::vector<double>*>;
  int which = 0;
  for (const auto& [got, expected] : {Pair{&r.d.q, &want.q}, Pair{&r.d.k, &want.k},
                                      Pair{&r.d.v, &want.v}, Pair{&r.d.alpha, &want.alpha},
                                      Pair{&r.d.beta, &want.beta}, Pair{&r.d.state, &want.state}}) {
    if (expected == &want.state && want.state.empty()) continue;
    Comparison c = within_share(*got, *expected, content);
    if (!c) {
      c.why = "gradient " + std::to_string(which) + " of q k v g beta state: " + c.why;
      return c;
    }
    ++which;
  }
  return {true, 0.0, -1, ""};
}

}  // namespace checks::ops::kda
