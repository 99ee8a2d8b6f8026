#include <benchmark/benchmark.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "checks/ops/op_case.h"
#include "engine/ops/kda.h"

namespace checks::ops {
namespace {

namespace op = engine::ops;

// Wrong versions; kNone is the right one.
enum class Fault {
  kNone,
  kRateOfChannel,  // a_log[d] instead of a_log[h]: the tensor is long enough to be misread
  kNoExp,          // a_log itself as the rate
  kNoBias,
  kBiasOutside,     // exp(a_log) z + dt_bias
  kOldFamily,       // -exp(a_log) softplus(z + dt_bias)
  kNoSlope,         // d_z without the derivative of the sigmoid
  kNoRateInSlope,   // d_z without exp(a_log)
  kNoBoundInSlope,  // d_z without the bound
};

constexpr float kBound = -5.0f;

struct Case {
  Case(std::int64_t tokens, op::KdaShape of, float scale)
      : shape(of),
        z(random_values("z", tokens * shape.heads * shape.width, scale)),
        a_log(random_values("a_log", std::max(shape.heads, shape.width), 1.0f)),
        dt_bias(random_values("dt_bias", shape.heads * shape.width, 2.0f)),
        d_g(random_values("d_g", tokens * shape.heads * shape.width, 1.0f)) {}

  op::KdaShape shape;
  std::vector<float> z, a_log, dt_bias, d_g;
};

struct Wanted {
  std::vector<double> g, alpha, d_z;
};

Wanted formula(const Case& c, Fault fault) {
  Wanted want;
  for (std::int64_t i = 0; i < std::ssize(c.z); ++i) {
    const std::int64_t channel = i % std::ssize(c.dt_bias);
    const std::int64_t head =
        fault == Fault::kRateOfChannel ? channel % c.shape.width : channel / c.shape.width;
    const double a_log = c.a_log[head];
    const double rate = fault == Fault::kNoExp ? a_log : std::exp(a_log);
    const double bias = fault == Fault::kNoBias ? 0.0 : c.dt_bias[channel];
    const double x = fault == Fault::kBiasOutside ? rate * c.z[i] + bias : rate * (c.z[i] + bias);
    const double s = 1.0 / (1.0 + std::exp(-x));
    want.g.push_back(fault == Fault::kOldFamily ? -rate * std::log1p(std::exp(c.z[i] + bias))
                                                : kBound * s);
    want.alpha.push_back(std::exp(want.g.back()));
    const double slope = fault == Fault::kNoSlope ? 1.0 : s / (1.0 + std::exp(x));
    want.d_z.push_back(c.d_g[i] * slope * (fault == Fault::kNoRateInSlope ? 1.0 : rate) *
                       (fault == Fault::kNoBoundInSlope ? 1.0 : kBound));
  }
  return want;
}

struct Result {
  std::vector<float> g, alpha, d_z;
};

Result run(const Case& c) {
  const std::vector<float> before(c.z.size(), 7.0f);  // overwritten
  Result r{before, before, before};
  op::kda_gate_forward(c.z, c.a_log, c.dt_bias, kBound, c.shape, r.g, r.alpha);
  op::kda_gate_backward(c.d_g, c.z, c.a_log, c.dt_bias, kBound, c.shape, r.d_z);
  return r;
}

// The first that is not right, or a comparison that holds.
Comparison holds(const Result& r, const Wanted& want) {
  for (Comparison c : {within_share(r.g, want.g), within_share(r.alpha, want.alpha),
                       within_share(r.d_z, want.d_z)}) {
    if (!c) return c;
  }
  return {true, 0.0, -1, ""};
}

TEST(KdaGate, FixtureOfTheCReference) {
  CHECKS_NEED(root, reference_fixtures());
  const auto fixture = read_fixture_json(root / "ops" / "kda_decay.json");
  Case c(4, {4, 16}, 1.0f);
  c.z = at(fixture, "z").f32();
  c.a_log = at(fixture, "A_log").f32();
  c.dt_bias = at(fixture, "dt_bias").f32();
  ASSERT_EQ(at(fixture, "lower_bound").data[0], kBound);
  const Result r = run(c);
  const Comparison g = within_fixture(r.g, at(fixture, "g").data);
  const Comparison alpha = within_fixture(r.alpha, at(fixture, "alpha").data);
  EXPECT_TRUE(g) << g.why;
  EXPECT_TRUE(alpha) << alpha.why;
}

TEST(KdaGate, Float64Reference) {
  CHECKS_NEED(path, reference_data("grad/ops/decay_gate.safetensors"));
  const auto tensors = read_safetensors(path);
  for (const std::string id : {"d_alpha", "d_g", "extreme", "extreme_d_g"}) {
    const GradCase in(tensors, id);
    Case c(in.size("in.z", 0), {in.size("in.z", 1), in.size("in.z", 2)}, 1.0f);
    c.z = in.f32("in.z");
    c.a_log = in.f32("in.A_log");
    c.dt_bias = in.f32("in.dt_bias");
    if (id == "d_g" || id == "extreme_d_g") {
      c.d_g = in.f32("up.g");
    } else {
      c.d_g = in.f32("up.alpha");
      const Result forward = run(c);
      for (std::size_t i = 0; i < c.d_g.size(); ++i) c.d_g[i] *= forward.alpha[i];
    }
    const Comparison same = holds(run(c), {in.f64("out.g"), in.f64("out.alpha"), in.f64("grad.z")});
    EXPECT_TRUE(same) << id << ": " << same.why;
  }
}

TEST(KdaGate, FormulaInDouble) {
  for (const Case& c : {Case(3, {2, 8}, 4.0f), Case(2, {3, 37}, 4.0f), Case(2, {1, 1}, 4.0f)}) {
    const Comparison same = holds(run(c), formula(c, Fault::kNone));
    EXPECT_TRUE(same) << c.shape.width << ": " << same.why;
  }
}

// Saturated on both sides, by hundreds: finite, and alpha within its bounds.
TEST(KdaGate, SaturatedStaysFinite) {
  const Case c(5, {2, 20}, 500.0f);
  const Result r = run(c);
  const auto lowest = static_cast<float>(std::exp(static_cast<double>(kBound)));
  for (std::size_t i = 0; i < r.alpha.size(); ++i) {
    EXPECT_TRUE(r.alpha[i] >= lowest && r.alpha[i] <= 1.0f) << r.alpha[i];
    EXPECT_TRUE(std::isfinite(r.d_z[i]));
  }
}

TEST(KdaGate, SameBits) {
  const Case c(9, {3, 37}, 4.0f);
  const Comparison everywhere = same_bits_everywhere([&] {
    const Result r = run(c);
    std::vector<float> all = r.g;
    append(all, r.alpha);
    append(all, r.d_z);
    return all;
  });
  EXPECT_TRUE(everywhere) << everywhere.why;
}

// Each wrong version must be refused where the right one, by the same comparison, is not.
TEST(KdaGate, PlantedFaults) {
  const Case c(3, {2, 8}, 4.0f);
  const Result r = run(c);
  EXPECT_TRUE(holds(r, formula(c, Fault::kNone)));
  for (const Fault fault :
       {Fault::kRateOfChannel, Fault::kNoExp, Fault::kNoBias, Fault::kBiasOutside,
        Fault::kOldFamily, Fault::kNoSlope, Fault::kNoRateInSlope, Fault::kNoBoundInSlope}) {
    EXPECT_FALSE(holds(r, formula(c, fault))) << static_cast<int>(fault);
  }
}

void kda_gate_bench(benchmark::State& state, bool backward) {
  const Case c(state.range(0), {96, 128}, 4.0f);
  Result r = run(c);
  for (auto _ : state) {
    if (backward) {
      op::kda_gate_backward(c.d_g, c.z, c.a_log, c.dt_bias, kBound, c.shape, r.d_z);
    } else {
      op::kda_gate_forward(c.z, c.a_log, c.dt_bias, kBound, c.shape, r.g, r.alpha);
    }
    benchmark::ClobberMemory();
  }
  const auto elements = static_cast<double>(c.z.size());
  const auto rate = benchmark::Counter::kIsIterationInvariantRate;
  // Sum, two products, a sigmoid; then an exponential, or three products more. A sigmoid or an
  // exponential counts as one.
  state.counters["bytes"] = {elements * 4 * 3, rate};
  state.counters["operations"] = {elements * (backward ? 6 : 5), rate};
}
BENCHMARK_CAPTURE(kda_gate_bench, forward, false)->Arg(32);
BENCHMARK_CAPTURE(kda_gate_bench, backward, true)->Arg(32);

}  // namespace
}  // namespace checks::ops
