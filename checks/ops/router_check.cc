#include <benchmark/benchmark.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "checks/ops/op_case.h"
#include "engine/ops/matmul.h"
#include "engine/ops/router.h"

namespace checks::ops {
namespace {

namespace op = engine::ops;

struct Case {
  op::RouterShape shape;
  std::int64_t tokens = 0;
  std::vector<float> logits, bias, d_weight;

  static Case random(std::int64_t tokens, op::RouterShape shape) {
    return {shape, tokens, random_values("logits", tokens * shape.experts, 4.0f),
            random_values("bias", shape.experts, 0.3f),
            random_values("d_weight", tokens * shape.chosen, 1.0f)};
  }
};

struct Result {
  std::vector<std::int32_t> index;
  std::vector<float> weight, gap, d_logits;
};

Result run(const Case& c) {
  const auto tokens = static_cast<std::size_t>(c.tokens);
  const auto chosen = static_cast<std::size_t>(c.tokens * c.shape.chosen);
  Result r{std::vector<std::int32_t>(chosen, -1), std::vector<float>(chosen),
           std::vector<float>(tokens), std::vector<float>(c.logits.size(), 7.0f)};
  op::router_forward(c.logits, c.bias, c.shape, r.index, r.weight, r.gap);
  op::router_backward(c.d_weight, c.logits, r.index, c.shape, r.d_logits);
  return r;
}

double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

enum class Fault {
  kNone,
  kUnbiasedChoice,  // ranks by s
  kBiasedWeights,   // weights from s + bias
  kNoRenormalisation,
  kOneRenormalised,  // renormalises k = 1 too: the weight is always 1
  kSoftmaxScores,
  kScaledBeforeRenormalised,  // the scaling cancels
  kScaleForgotten
};

struct Choice {
  std::vector<std::int32_t> index;
  std::vector<double> weight;
};

// Weights of a token for a given choice.
std::vector<double> weigh(const Case& c, const double* logits, const std::int32_t* index,
                          Fault fault) {
  const auto chosen = static_cast<std::size_t>(c.shape.chosen);
  double softmax = 0.0;
  for (std::int64_t e = 0; e < c.shape.experts; ++e) softmax += std::exp(logits[e]);
  std::vector<double> weight(chosen);
  for (std::size_t j = 0; j < chosen; ++j) {
    const double logit = logits[index[j]];
    weight[j] = fault == Fault::kSoftmaxScores ? std::exp(logit) / softmax : sigmoid(logit);
    if (fault == Fault::kBiasedWeights) weight[j] += c.bias[index[j]];
    if (fault == Fault::kScaledBeforeRenormalised) weight[j] *= c.shape.scaling;
  }
  const double sum = std::accumulate(weight.begin(), weight.end(), 1e-20);
  const bool renormalise = fault == Fault::kOneRenormalised || (c.shape.renormalize && chosen > 1 &&
                                                                fault != Fault::kNoRenormalisation);
  for (double& w : weight) {
    if (renormalise) w /= sum;
    if (fault != Fault::kScaledBeforeRenormalised && fault != Fault::kScaleForgotten) {
      w *= c.shape.scaling;
    }
  }
  return weight;
}

Choice choose(const Case& c, Fault fault) {
  Choice all;
  const auto logits = widen(c.logits);
  for (std::int64_t t = 0; t < c.tokens; ++t) {
    const double* row = logits.data() + t * c.shape.experts;
    std::vector<std::int32_t> order(c.bias.size());
    std::iota(order.begin(), order.end(), 0);
    const auto score = [&](std::int32_t e) {
      return sigmoid(row[e]) + (fault == Fault::kUnbiasedChoice ? 0.0 : c.bias[e]);
    };
    std::stable_sort(order.begin(), order.end(),
                     [&](std::int32_t a, std::int32_t b) { return score(a) > score(b); });
    const auto weight = weigh(c, row, order.data(), fault);
    all.index.insert(all.index.end(), order.begin(), order.begin() + c.shape.chosen);
    all.weight.insert(all.weight.end(), weight.begin(), weight.end());
  }
  return all;
}

// d_logits for the choice that the engine made, by central differences of the weights' formula.
std::vector<double> gradient(const Case& c, const std::vector<std::int32_t>& index, Fault fault) {
  const auto loss = [&](const std::vector<double>& logits) {
    double sum = 0.0;
    for (std::int64_t t = 0; t < c.tokens; ++t) {
      const auto weight =
          weigh(c, logits.data() + t * c.shape.experts, index.data() + t * c.shape.chosen, fault);
      sum += dot(weight, rows(c.d_weight, c.shape.chosen, t));
    }
    return sum;
  };
  return numeric_gradient(loss, widen(c.logits));
}

std::vector<float> product(const std::vector<float>& x, const std::vector<float>& w,
                           std::int64_t out) {
  const auto in = static_cast<std::int64_t>(w.size()) / out;
  const std::int64_t tokens = static_cast<std::int64_t>(x.size()) / in;
  std::vector<float> y(static_cast<std::size_t>(tokens * out));
  op::matmul_forward(x, {op::WeightKind::kF32, w.data(), nullptr, out, in}, y, tokens);
  return y;
}

TEST(Router, FixtureOfTheCReference) {
  CHECKS_NEED(root, reference_fixtures());
  const auto fixture = read_fixture_json(root / "ops" / "router.json");
  Case c;
  c.bias = at(fixture, "bias").f32();
  c.shape.experts = static_cast<std::int64_t>(c.bias.size());
  c.shape.chosen = static_cast<std::int64_t>(at(fixture, "top_k").data.at(0));
  c.logits = product(at(fixture, "in").f32(), at(fixture, "gate_weight").f32(), c.shape.experts);
  c.tokens = at(fixture, "in").shape.at(0);
  c.d_weight.resize(static_cast<std::size_t>(c.tokens * c.shape.chosen));
  const Result r = run(c);
  // The fixture's order is not the rank's: sets are compared, then every weight by its expert.
  const auto k = static_cast<std::size_t>(c.shape.chosen);
  const auto want_index = at(fixture, "topk_idx").i32();
  std::vector<float> weight;
  for (std::size_t i = 0; i < want_index.size(); ++i) {
    const auto begin = r.index.begin() + static_cast<std::ptrdiff_t>(i / k * k);
    const auto found = std::find(begin, begin + static_cast<std::ptrdiff_t>(k), want_index[i]);
    ASSERT_NE(found, begin + static_cast<std::ptrdiff_t>(k)) << "expert " << want_index[i];
    weight.push_back(r.weight[static_cast<std::size_t>(found - r.index.begin())]);
  }
  expect_holds(within_fixture(weight, at(fixture, "topk_weight").data), "weight");
}

TEST(Router, Float64Reference) {
  CHECKS_NEED(path, reference_data("grad/ops/router.safetensors"));
  const auto tensors = read_safetensors(path);
  const std::pair<const char*, op::RouterShape> cases[] = {{"renorm", {16, 4, true, 1.0f}},
                                                           {"renorm_rs2.5", {16, 4, true, 2.5f}},
                                                           {"no_renorm", {16, 4, false, 1.0f}},
                                                           {"top1", {8, 1, true, 1.0f}}};
  for (const auto& [id, shape] : cases) {
    const GradCase in(tensors, id);
    const auto w = in.f32("in.W");
    const Case c{shape, in.size("in.x", 0), product(in.f32("in.x"), w, shape.experts),
                 in.f32("in.bias"), in.f32("up.w")};
    const Result r = run(c);
    EXPECT_EQ(r.index, in.i32("out.idx")) << id;
    expect_holds(within_share(r.weight, in.f64("out.w")), std::string(id) + " weight");
    expect_holds(within_share(r.gap, in.f64("aux.gap")), std::string(id) + " gap");
    expect_holds(within_share(r.d_logits, in.f64("aux.grad_logits"), Content::kSparse),
                 std::string(id) + " d_logits");
    std::vector<float> d_x(in.f32("in.x").size(), 0.0f);
    op::matmul_backward(
        r.d_logits, {op::WeightKind::kF32, w.data(), nullptr, shape.experts, in.size("in.x", 1)},
        d_x, c.tokens);
    expect_holds(within_share(d_x, in.f64("grad.x")), std::string(id) + " d_x");
  }
}

TEST(Router, FormulaInDouble) {
  for (const op::RouterShape shape :
       {op::RouterShape{300, 16, true, 2.5f}, op::RouterShape{12, 4, false, 2.5f},
        op::RouterShape{12, 1, true, 2.5f}, op::RouterShape{5, 5, true, 1.0f}}) {
    const Case c = Case::random(5, shape);
    const Result r = run(c);
    const Choice want = choose(c, Fault::kNone);
    EXPECT_EQ(r.index, want.index);
    const std::string id = fmt::format("{} of {}", shape.chosen, shape.experts);
    expect_holds(within_share(r.weight, want.weight), id + " weight");
    expect_holds(within_share(r.d_logits, gradient(c, r.index, Fault::kNone), Content::kSparse),
                 id + " d_logits");
  }
}

TEST(Router, TiesGoToTheLowestId) {
  Case c = Case::random(2, {300, 4, true, 1.0f});
  std::fill(c.logits.begin(), c.logits.end(), 0.5f);
  std::fill(c.bias.begin(), c.bias.end(), 0.0f);
  c.bias[290] = 1.0f;
  const Result r = run(c);
  EXPECT_EQ(r.index, (std::vector<std::int32_t>{290, 0, 1, 2, 290, 0, 1, 2}));
  EXPECT_EQ(r.gap[0], 0.0f);
}

TEST(Router, GapIsInfiniteWhenNothingIsRejected) {
  const Result r = run(Case::random(2, {5, 5, true, 1.0f}));
  EXPECT_EQ(r.gap[0], std::numeric_limits<float>::infinity());
}

// Scores down at 1e-26, where the 1e-20 of the denominator decides, and up where they round to 1
// and s (1 - s) would be 0.
TEST(Router, ExtremeLogits) {
  Case c = Case::random(1, {4, 2, true, 1.0f});
  c.logits = {-60.0f, -61.0f, -62.0f, -63.0f};
  c.bias = {0.0f, 0.0f, 0.0f, 0.0f};
  const Result low = run(c);
  expect_holds(within_share(low.weight, choose(c, Fault::kNone).weight), "weight");
  EXPECT_LT(low.weight[0], 1e-5f);

  c.shape.renormalize = false;
  c.logits = {30.0f, 28.0f, -1.0f, -2.0f};
  const Result high = run(c);
  std::vector<double> want(4, 0.0);
  for (std::size_t j = 0; j < 2; ++j) {
    want[j] = c.d_weight[j] * sigmoid(c.logits[j]) * sigmoid(-double{c.logits[j]});
  }
  expect_holds(within_share(high.d_logits, want, Content::kSparse), "d_logits");
}

// A NaN must reach the loss, where it stops the run, through ids that are safe to read with.
TEST(Router, NanIsNotHidden) {
  Case c = Case::random(1, {6, 3, true, 1.0f});
  c.logits = {5.0f, 4.0f, 3.0f, 2.0f, std::nanf(""), 1.0f};
  c.bias.assign(6, 0.0f);
  const Result one = run(c);
  EXPECT_EQ(one.index, (std::vector<std::int32_t>{4, 0, 1}));
  for (const float weight : one.weight) EXPECT_TRUE(std::isnan(weight));
  c.logits.assign(6, std::nanf(""));
  EXPECT_EQ(run(c).index, (std::vector<std::int32_t>{0, 1, 2}));
}

TEST(Router, ReplayGivesTheSameWeights) {
  const Case c = Case::random(7, {300, 16, true, 2.5f});
  const Result r = run(c);
  std::vector<float> again(r.weight.size());
  op::router_weights(c.logits, r.index, c.shape, again);
  EXPECT_TRUE(same_bits(again, r.weight));
  // Another choice than the scores' own is replayed, not corrected.
  std::vector<std::int32_t> other(r.index.rbegin(), r.index.rend());
  op::router_weights(c.logits, other, c.shape, again);
  std::vector<double> want;
  const auto logits = widen(c.logits);
  for (std::int64_t t = 0; t < c.tokens; ++t) {
    const auto weight = weigh(c, logits.data() + t * c.shape.experts,
                              other.data() + t * c.shape.chosen, Fault::kNone);
    want.insert(want.end(), weight.begin(), weight.end());
  }
  expect_holds(within_share(again, want), "weight");
}

TEST(Router, SameBits) {
  const Case c = Case::random(9, {300, 16, true, 2.5f});
  // Most of d_logits is zero by nature, more than same_bits trusts: the chosen ones are compared.
  const auto everything = [&](const Case& batch) {
    const Result r = run(batch);
    std::vector<float> all = r.weight;
    append(all, r.gap);
    for (std::size_t i = 0; i < r.index.size(); ++i) {
      all.push_back(static_cast<float>(r.index[i]));
      const auto t = static_cast<std::int64_t>(i) / c.shape.chosen;
      all.push_back(r.d_logits[static_cast<std::size_t>(t * c.shape.experts + r.index[i])]);
    }
    return all;
  };
  expect_holds(same_bits_everywhere([&] { return everything(c); }), "threads and instruction sets");
  const Result all = run(c);
  for (std::int64_t t = 0; t < c.tokens; ++t) {
    Case one{c.shape, 1, {}, c.bias, {}};
    append(one.logits, rows(c.logits, c.shape.experts, t));
    append(one.d_weight, rows(c.d_weight, c.shape.chosen, t));
    const Result alone = run(one);
    EXPECT_TRUE(same_bits(alone.weight, rows(all.weight, c.shape.chosen, t)));
    const auto d = rows(all.d_logits, c.shape.experts, t);
    EXPECT_TRUE(std::equal(d.begin(), d.end(), alone.d_logits.begin(), alone.d_logits.end()));
  }
}

TEST(Router, PlantedFaults) {
  const Case c = Case::random(5, {12, 4, true, 2.5f});
  const Result r = run(c);
  EXPECT_TRUE(within_share(r.weight, choose(c, Fault::kNone).weight));
  EXPECT_NE(r.index, choose(c, Fault::kUnbiasedChoice).index);
  for (const Fault fault :
       {Fault::kUnbiasedChoice, Fault::kBiasedWeights, Fault::kNoRenormalisation,
        Fault::kSoftmaxScores, Fault::kScaledBeforeRenormalised, Fault::kScaleForgotten}) {
    EXPECT_FALSE(within_share(r.weight, choose(c, fault).weight));
  }
  // Biased weights would also send a gradient through the bias's share of the denominator.
  EXPECT_TRUE(within_share(r.d_logits, gradient(c, r.index, Fault::kNone), Content::kSparse));
  for (const Fault fault : {Fault::kBiasedWeights, Fault::kNoRenormalisation, Fault::kSoftmaxScores,
                            Fault::kScaledBeforeRenormalised}) {
    EXPECT_FALSE(within_share(r.d_logits, gradient(c, r.index, fault), Content::kSparse));
  }
  const Case one = Case::random(5, {12, 1, true, 2.5f});
  EXPECT_FALSE(within_share(run(one).weight, choose(one, Fault::kOneRenormalised).weight));
}

void router_bench(benchmark::State& state, bool backward) {
  const Case c = Case::random(state.range(0), {state.range(1), state.range(2), true, 1.0f});
  Result r = run(c);
  for (auto _ : state) {
    if (backward) {
      op::router_backward(c.d_weight, c.logits, r.index, c.shape, r.d_logits);
    } else {
      op::router_forward(c.logits, c.bias, c.shape, r.index, r.weight, r.gap);
    }
    benchmark::ClobberMemory();
  }
  const auto logits = static_cast<double>(c.logits.size());
  const auto chosen = static_cast<double>(r.index.size());
  const auto rate = benchmark::Counter::kIsIterationInvariantRate;
  state.counters["bytes"] = {logits * 4, rate};
  // forward: a sigmoid, a sum and a comparison for every expert; backward: the chosen ones alone.
  state.counters["operations"] = {backward ? chosen * 8 : logits * 3, rate};
}
BENCHMARK_CAPTURE(router_bench, forward, false)->Args({32, 896, 16})->UseRealTime();
BENCHMARK_CAPTURE(router_bench, backward, true)->Args({32, 896, 16})->UseRealTime();

}  // namespace
}  // namespace checks::ops
