#include <benchmark/benchmark.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "checks/ops/op_case.h"
#include "engine/ops/mla.h"

namespace checks::ops {
namespace {

namespace op = engine::ops;

// Wrong versions; kNone is the right one. From kScoreConstant on, the value is right and a term of
// the gradient is dropped: what they name keeps its value when the inputs are varied.
enum class Fault {
  kNone,
  kScaleOfNopeOnly,  // Dn^-1/2
  kNoScale,
  kRopeSlotDropped,
  kFutureSeen,
  kLeak,                 // attention across a document border
  kValueBeforeKey,       // kv rows read as [v ; k_nope]
  kScoreConstant,        // only the value path
  kDenominatorConstant,  // the softmax Jacobian without its mean
  kRopeConstant,
  kRopeOfLastHeadOnly,  // d_kr not summed over heads
  kValueConstant
};

struct Inputs {
  std::vector<double> q, kv, kr;
};

struct Case {
  Case(op::MlaShape of, std::vector<std::int64_t> borders, float scale = 1.0f)
      : shape(of),
        documents(std::move(borders)),
        tokens(documents.back()),
        q(random_values("q", tokens * shape.heads * query(), scale)),
        kv(random_values("kv", tokens * shape.heads * (shape.nope + shape.value), scale)),
        kr(random_values("kr", tokens * shape.rope, scale)),
        d_o(random_values("d_o", tokens * shape.heads * shape.value, 1.0f)) {}

  std::int64_t query() const { return shape.nope + shape.rope; }

  op::MlaShape shape;
  std::vector<std::int64_t> documents;
  std::int64_t tokens;
  std::vector<float> q, kv, kr, d_o;
};

Inputs inputs_of(const Case& c) { return {widen(c.q), widen(c.kv), widen(c.kr)}; }

struct Position {
  std::int64_t t, s, h;
};

double score(const Case& c, const Inputs& x, const Inputs& still, Position at, Fault fault) {
  const auto [t, s, h] = at;
  const std::int64_t key = fault == Fault::kValueBeforeKey ? c.shape.value : 0;
  const std::int64_t width = c.shape.nope + c.shape.value;
  const double* q = x.q.data() + (t * c.shape.heads + h) * c.query();
  double sum = 0.0;
  for (std::int64_t i = 0; i < c.shape.nope; ++i) {
    sum += q[i] * x.kv[(s * c.shape.heads + h) * width + key + i];
  }
  const bool constant = fault == Fault::kRopeConstant ||
                        (fault == Fault::kRopeOfLastHeadOnly && h + 1 < c.shape.heads);
  for (std::int64_t i = 0; i < c.shape.rope && fault != Fault::kRopeSlotDropped; ++i) {
    sum += q[c.shape.nope + i] * (constant ? still : x).kr[s * c.shape.rope + i];
  }
  if (fault == Fault::kNoScale) return sum;
  const auto scaled = fault == Fault::kScaleOfNopeOnly ? c.shape.nope : c.query();
  return sum / std::sqrt(static_cast<double>(scaled));
}

// o for inputs x; `still` are the inputs wherever the fault forgets that o depends on them.
std::vector<double> formula(const Case& c, const Inputs& x, const Inputs& still, Fault fault) {
  std::vector<double> o(c.d_o.size(), 0.0);
  const std::int64_t width = c.shape.nope + c.shape.value;
  const std::int64_t value = fault == Fault::kValueBeforeKey ? 0 : c.shape.nope;
  for (std::size_t d = 0; d + 1 < c.documents.size(); ++d) {
    for (std::int64_t t = c.documents[d]; t < c.documents[d + 1]; ++t) {
      const std::int64_t first = fault == Fault::kLeak ? 0 : c.documents[d];
      const std::int64_t end = fault == Fault::kFutureSeen ? c.documents[d + 1] : t + 1;
      for (std::int64_t h = 0; h < c.shape.heads; ++h) {
        std::vector<double> p;
        double sum = 0.0;
        for (std::int64_t s = first; s < end; ++s) {
          const double now = score(c, x, still, {t, s, h}, fault);
          const double before = score(c, still, still, {t, s, h}, fault);
          p.push_back(std::exp(fault == Fault::kScoreConstant ? before : now));
          sum += fault == Fault::kDenominatorConstant ? std::exp(before) : p.back();
        }
        const Inputs& from = fault == Fault::kValueConstant ? still : x;
        for (std::int64_t s = first; s < end; ++s) {
          const double* v = from.kv.data() + (s * c.shape.heads + h) * width + value;
          double* to = o.data() + (t * c.shape.heads + h) * c.shape.value;
          for (std::int64_t j = 0; j < c.shape.value; ++j) to[j] += p[s - first] / sum * v[j];
        }
      }
    }
  }
  return o;
}

std::vector<double> formula(const Case& c, Fault fault) {
  const Inputs x = inputs_of(c);
  return formula(c, x, x, fault);
}

Inputs gradient(const Case& c, Fault fault) {
  const Inputs still = inputs_of(c);
  Inputs d;
  for (const auto part : {&Inputs::q, &Inputs::kv, &Inputs::kr}) {
    const auto loss = [&](const std::vector<double>& values) {
      Inputs x = still;
      x.*part = values;
      return dot(formula(c, x, still, fault), c.d_o);
    };
    d.*part = numeric_gradient(loss, still.*part);
  }
  return d;
}

struct Result {
  std::vector<float> o, d_q, d_kv, d_kr;
};

Result run(const Case& c) {
  // Everything is overwritten: what stands there must not matter.
  Result r;
  r.o.assign(c.d_o.size(), 7.0f);
  r.d_q.assign(c.q.size(), 7.0f);
  r.d_kv.assign(c.kv.size(), 7.0f);
  r.d_kr.assign(c.kr.size(), 7.0f);
  const int threads = engine::base::threads();
  std::vector<float> scratch(
      static_cast<std::size_t>(op::mla_forward_scratch(c.tokens, c.shape, threads)), 7.0f);
  op::mla_forward(c.q, c.kv, c.kr, c.documents, c.shape, scratch, r.o);
  scratch.assign(static_cast<std::size_t>(op::mla_backward_scratch(c.tokens, c.shape, threads)),
                 7.0f);
  op::mla_backward(c.d_o, c.q, c.kv, c.kr, c.documents, c.shape, scratch, r.d_q, r.d_kv, r.d_kr);
  return r;
}

// The first gradient that is not right, or a comparison that holds.
Comparison gradients_hold(const Result& r, const Inputs& want, Content content = Content::kDense) {
  for (Comparison c : {within_share(r.d_q, want.q, content), within_share(r.d_kv, want.kv, content),
                       within_share(r.d_kr, want.kr, content)}) {
    if (!c) return c;
  }
  return {true, 0.0, -1, ""};
}

// Rows [k ; v] of one head from two arrays.
template <class T>
std::vector<T> interleave(const std::vector<T>& k, std::int64_t nope, const std::vector<T>& v,
                          std::int64_t value) {
  std::vector<T> kv;
  for (std::size_t row = 0; row * value < v.size(); ++row) {
    kv.insert(kv.end(), k.begin() + row * nope, k.begin() + (row + 1) * nope);
    kv.insert(kv.end(), v.begin() + row * value, v.begin() + (row + 1) * value);
  }
  return kv;
}

TEST(Mla, Float64Reference) {
  CHECKS_NEED(path, reference_data("grad/ops/mla_core.safetensors"));
  const auto tensors = read_safetensors(path);
  const std::map<std::string, std::vector<std::int64_t>> cases = {{"T1", {0, 1}},
                                                                  {"T7", {0, 7}},
                                                                  {"T33", {0, 33}},
                                                                  {"packed13", {0, 4, 5, 13}},
                                                                  {"peaky12", {0, 12}}};
  for (const auto& [id, documents] : cases) {
    const GradCase in(tensors, id);
    const op::MlaShape shape{.heads = in.size("in.k_nope", 1),
                             .nope = in.size("in.k_nope", 2),
                             .rope = in.size("in.kr", 1),
                             .value = in.size("in.v", 2)};
    Case c(shape, documents);
    c.q = in.f32("in.q");
    c.kv = interleave(in.f32("in.k_nope"), shape.nope, in.f32("in.v"), shape.value);
    c.kr = in.f32("in.kr");
    c.d_o = in.f32("up.o");
    const Result r = run(c);
    const Comparison o = within_share(r.o, in.f64("out.o"));
    EXPECT_TRUE(o) << id << " o: " << o.why;
    // With one token p = 1 whatever the score: those gradients are exactly zero.
    const Comparison d = gradients_hold(
        r,
        {in.f64("grad.q"),
         interleave(in.f64("grad.k_nope"), shape.nope, in.f64("grad.v"), shape.value),
         in.f64("grad.kr")},
        id == "T1" ? Content::kSparse : Content::kDense);
    EXPECT_TRUE(d) << id << " gradient: " << d.why;
  }
}

TEST(Mla, FormulaInDouble) {
  // Widths below, at, between and above whole groups of lanes.
  for (const op::MlaShape shape :
       {op::MlaShape{2, 5, 3, 7}, {1, 16, 16, 64}, {2, 20, 4, 33}, {1, 24, 0, 70}}) {
    const Case c(shape, {0, 4, 5, 8});
    const Result r = run(c);
    const Comparison o = within_share(r.o, formula(c, Fault::kNone));
    EXPECT_TRUE(o) << shape.nope << " o: " << o.why;
    const Inputs want = gradient(c, Fault::kNone);
    for (Comparison d : {within_share(r.d_q, want.q), within_share(r.d_kv, want.kv)}) {
      EXPECT_TRUE(d) << shape.nope << " gradient: " << d.why;
    }
    if (shape.rope > 0) {
      EXPECT_TRUE(within_share(r.d_kr, want.kr)) << shape.nope;
    }
  }
}

// Scores of hundreds: without the maximum taken off, exp overflows. With values of one, o is the
// sum of the probabilities: 40 of them, each rounded once, and 40 additions are off by at most 80
// ulp/2 of 1.
TEST(Mla, LargeScoresStayFinite) {
  Case c({2, 24, 8, 16}, {0, 40}, 30.0f);
  for (std::size_t i = 0; i < c.kv.size(); ++i) {
    if (i % 40 >= 24) c.kv[i] = 1.0f;
  }
  const Result r = run(c);
  const std::vector<double> ones(r.o.size(), 1.0);
  const Comparison o = compare(r.o, ones, [](double) { return 80 * 0x1p-24; });
  EXPECT_TRUE(o) << o.why;
}

std::vector<float> flat(const Result& r) {
  std::vector<float> all = r.o;
  for (const auto* part : {&r.d_q, &r.d_kv, &r.d_kr}) append(all, *part);
  return all;
}

TEST(Mla, SameBits) {
  const Case c({5, 24, 8, 70}, {0, 17, 18, 40});
  const Comparison everywhere = same_bits_everywhere([&] { return flat(run(c)); });
  EXPECT_TRUE(everywhere) << everywhere.why;
}

TEST(Mla, PackedIsSeparate) {
  const Case c({3, 24, 8, 16}, {0, 17, 18, 40});
  const Result packed = run(c);
  for (std::size_t d = 0; d + 1 < c.documents.size(); ++d) {
    const std::int64_t first = c.documents[d];
    const std::int64_t count = c.documents[d + 1] - first;
    const auto piece = [&](const std::vector<float>& all) {
      const auto width = static_cast<std::int64_t>(all.size()) / c.tokens;
      const auto part = rows(all, width, first, count);
      return std::vector<float>(part.begin(), part.end());
    };
    Case alone(c.shape, {0, count});
    alone.q = piece(c.q);
    alone.kv = piece(c.kv);
    alone.kr = piece(c.kr);
    alone.d_o = piece(c.d_o);
    const Result r = run(alone);
    EXPECT_TRUE(same_bits(r.o, piece(packed.o))) << d;
    EXPECT_TRUE(same_bits(r.d_kv, piece(packed.d_kv))) << d;
    if (count == 1) continue;  // all other gradients are zero
    EXPECT_TRUE(same_bits(r.d_q, piece(packed.d_q))) << d;
    EXPECT_TRUE(same_bits(r.d_kr, piece(packed.d_kr))) << d;
  }
}

TEST(Mla, F10) {
  Case c({3, 24, 8, 16}, {0, 20});
  const Result before = run(c);
  const auto shift = [](std::vector<float>& x, std::int64_t from_token) {
    for (std::size_t i = x.size() / 20 * from_token; i < x.size(); ++i) x[i] += 1.0f;
  };
  shift(c.q, 12);
  shift(c.kv, 12);
  shift(c.kr, 12);
  const Result after = run(c);
  const std::int64_t width = c.shape.heads * c.shape.value;
  EXPECT_TRUE(same_bits(rows(after.o, width, 0, 12), rows(before.o, width, 0, 12)));
  EXPECT_FALSE(same_bits(rows(after.o, width, 12), rows(before.o, width, 12)));
}

// Each wrong version must be refused where the right one, by the same comparison, is not.
TEST(Mla, PlantedFaults) {
  const Case c({2, 5, 3, 5}, {0, 4, 5, 8});  // value as wide as nope, so that kv can be misread
  const Result r = run(c);
  EXPECT_TRUE(within_share(r.o, formula(c, Fault::kNone)));
  EXPECT_TRUE(gradients_hold(r, gradient(c, Fault::kNone)));
  for (const Fault fault : {Fault::kScaleOfNopeOnly, Fault::kNoScale, Fault::kRopeSlotDropped,
                            Fault::kFutureSeen, Fault::kLeak, Fault::kValueBeforeKey}) {
    EXPECT_FALSE(within_share(r.o, formula(c, fault))) << static_cast<int>(fault);
    EXPECT_FALSE(gradients_hold(r, gradient(c, fault))) << static_cast<int>(fault);
  }
  for (const Fault fault :
       {Fault::kScoreConstant, Fault::kDenominatorConstant, Fault::kRopeConstant,
        Fault::kRopeOfLastHeadOnly, Fault::kValueConstant}) {
    EXPECT_TRUE(within_share(r.o, formula(c, fault))) << static_cast<int>(fault);
    EXPECT_FALSE(gradients_hold(r, gradient(c, fault), Content::kSparse))
        << static_cast<int>(fault);
  }
}

void mla_bench(benchmark::State& state, bool backward) {
  const Case c({state.range(1), 128, 64, 128}, {0, state.range(0)}, 0.1f);
  Result r = run(c);
  const int threads = engine::base::threads();
  std::vector<float> scratch(
      static_cast<std::size_t>(op::mla_backward_scratch(c.tokens, c.shape, threads)));
  for (auto _ : state) {
    if (backward) {
      op::mla_backward(c.d_o, c.q, c.kv, c.kr, c.documents, c.shape, scratch, r.d_q, r.d_kv,
                       r.d_kr);
    } else {
      op::mla_forward(c.q, c.kv, c.kr, c.documents, c.shape, scratch, r.o);
    }
    benchmark::ClobberMemory();
  }
  const auto rate = benchmark::Counter::kIsIterationInvariantRate;
  const auto pairs = static_cast<double>(c.shape.heads * c.tokens * (c.tokens + 1) / 2);
  const auto forward_bytes =
      static_cast<double>(c.q.size() + c.kv.size() + c.kr.size() + r.o.size());
  // A multiply-add counts two: the score, then the value sum; backward: the score, d_p, d_v, d_q,
  // d_k.
  state.counters["bytes"] = {4.0 * forward_bytes * (backward ? 2 : 1), rate};
  state.counters["operations"] = {pairs * 2 * (backward ? 3 * 192 + 2 * 128 : 192 + 128), rate};
}
BENCHMARK_CAPTURE(mla_bench, forward, false)->Args({128, 8});
BENCHMARK_CAPTURE(mla_bench, backward, true)->Args({128, 8});

}  // namespace
}  // namespace checks::ops
