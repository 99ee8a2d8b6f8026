#include <benchmark/benchmark.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "checks/ops/op_case.h"
#include "engine/ops/situ_glu.h"

namespace checks::ops {
namespace {

using engine::ops::SituBetas;

// The formula of situ_glu.h; wrong versions beside it.
enum class Fault { kNone, kSigmoidOfCapped, kBranchesSwapped, kNoCap, kConstantSigmoid };

double situ_glu(double a, double u, SituBetas betas, Fault fault) {
  if (fault == Fault::kBranchesSwapped) std::swap(a, u);
  const double b1 = betas.gate, b2 = betas.linear;
  const double capped = fault == Fault::kNoCap ? a : b1 * std::tanh(a / b1);
  const double into_sigmoid = fault == Fault::kSigmoidOfCapped ? capped : a;
  return capped / (1.0 + std::exp(-into_sigmoid)) * b2 * std::tanh(u / b2);
}

struct Case {
  std::vector<float> a, u, d_out;
  SituBetas betas;

  std::vector<float> forward() const {
    std::vector<float> out(a.size());
    engine::ops::situ_glu_forward(a, u, betas, out);
    return out;
  }
  // d_a, then d_u, in the storage of a and u as situ_glu.h allows.
  std::vector<float> backward() const {
    std::vector<float> d_a = a, d_u = u;
    engine::ops::situ_glu_backward(d_out, d_a, d_u, betas, d_a, d_u);
    append(d_a, d_u);
    return d_a;
  }
};

Case random_case(std::int64_t n, float scale) {
  return {random_values("a", n, scale),
          random_values("u", n, 6.0f * scale),
          random_values("d_out", n, 1.0f),
          {4.0f, 25.0f}};
}

std::vector<double> wanted(const Case& c, Fault fault = Fault::kNone) {
  std::vector<double> out;
  for (std::size_t i = 0; i < c.a.size(); ++i) {
    out.push_back(situ_glu(c.a[i], c.u[i], c.betas, fault));
  }
  return out;
}

std::vector<double> wanted_gradient(const Case& c, Fault fault = Fault::kNone) {
  std::vector<double> d_a, d_u;
  const double b1 = c.betas.gate, b2 = c.betas.linear;
  for (std::size_t i = 0; i < c.a.size(); ++i) {
    const double t = std::tanh(c.a[i] / b1), t_up = std::tanh(c.u[i] / b2);
    const double s = 1.0 / (1.0 + std::exp(-double{c.a[i]}));
    const double through_sigmoid = fault == Fault::kConstantSigmoid ? 0.0 : b1 * t * s * (1.0 - s);
    d_a.push_back(c.d_out[i] * b2 * t_up * ((1.0 - t * t) * s + through_sigmoid));
    d_u.push_back(c.d_out[i] * b1 * t * s * (1.0 - t_up * t_up));
  }
  d_a.insert(d_a.end(), d_u.begin(), d_u.end());
  return d_a;
}

// out is a product of factors that err by at most: a / b1 and u / b2 half an ulp each, passed on by
// tanh with a factor of at most 1 (x tanh'(x) <= tanh(x)); tanh 2.11 twice, sigmoid 1.97; four
// products, half an ulp each: 9.2 ulps of at most 2^-23.
constexpr double kForwardShare = 9.2 * 0x1p-23;

Comparison forward_holds(const Case& c, const std::vector<double>& want) {
  return compare(c.forward(), want, [](double value) { return kForwardShare * std::abs(value); });
}

TEST(SituGlu, FixtureOfTheCReference) {
  CHECKS_NEED(fixtures, reference_fixtures());
  const auto fixture = read_fixture_json(fixtures / "ops" / "situ_glu.json");
  const auto in = at(fixture, "in").f32();
  Case c;
  c.betas = {at(fixture, "beta").f32()[0], at(fixture, "linear_beta").f32()[0]};
  for (std::int64_t t = 0; t < 6; ++t) {
    append(c.a, rows(in, 8, 2 * t));
    append(c.u, rows(in, 8, 2 * t + 1));
  }
  const Comparison holds = within_fixture(c.forward(), at(fixture, "out").data);
  EXPECT_TRUE(holds) << holds.why;
  std::swap(c.a, c.u);
  EXPECT_FALSE(within_fixture(c.forward(), at(fixture, "out").data));
}

TEST(SituGlu, Float64Reference) {
  CHECKS_NEED(path, reference_data("grad/ops/situ_glu.safetensors"));
  const auto tensors = read_safetensors(path);
  for (const std::string id : {"normal", "wide", "saturated"}) {
    const GradCase in(tensors, id);
    const Case c{in.f32("in.g"), in.f32("in.u"), in.f32("up.y"), {4.0f, 25.0f}};
    const Comparison value = within_share(c.forward(), in.f64("out.y"));
    EXPECT_TRUE(value) << id << ": " << value.why;
    const std::vector<float> d = c.backward();
    const auto n = static_cast<std::int64_t>(c.a.size());
    const Comparison d_a = within_share(rows(d, n, 0), in.f64("grad.g"));
    const Comparison d_u = within_share(rows(d, n, 1), in.f64("grad.u"));
    EXPECT_TRUE(d_a) << id << ": " << d_a.why;
    EXPECT_TRUE(d_u) << id << ": " << d_u.why;
  }
}

TEST(SituGlu, FormulaInDouble) {
  for (const float scale : {0.01f, 1.0f, 5.0f, 30.0f}) {
    for (const std::int64_t n : {1, 15, 16, 33, 5000}) {
      const Case c = random_case(n, scale);
      const Comparison value = forward_holds(c, wanted(c));
      EXPECT_TRUE(value) << n << " of " << scale << ": " << value.why;
      const Comparison gradient = within_share(c.backward(), wanted_gradient(c));
      EXPECT_TRUE(gradient) << n << " of " << scale << ": " << gradient.why;
      const Comparison bits = same_bits_everywhere([&] {
        std::vector<float> all = c.forward();
        append(all, c.backward());
        return all;
      });
      EXPECT_TRUE(bits) << n << " of " << scale << ": " << bits.why;
    }
  }
}

TEST(SituGlu, FarOutside) {
  const float huge = std::numeric_limits<float>::max();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Case c{
      {huge, -huge, huge, nan}, {huge, huge, -huge, 1.0f}, {1.0f, 1.0f, 1.0f, 1.0f}, {4.0f, 25.0f}};
  const auto out = c.forward();
  EXPECT_EQ(out[0], 100.0f);
  EXPECT_EQ(out[1], 0.0f);
  EXPECT_EQ(out[2], -100.0f);
  EXPECT_TRUE(std::isnan(out[3]));
  const auto d = c.backward();
  for (const std::size_t i : {0, 1, 2, 4, 5, 6}) EXPECT_EQ(d[i], 0.0f) << i;
  EXPECT_TRUE(std::isnan(d[3]));
}

TEST(SituGlu, PlantedFaults) {
  const Case c = random_case(100, 5.0f);
  for (const Fault fault : {Fault::kSigmoidOfCapped, Fault::kBranchesSwapped, Fault::kNoCap}) {
    EXPECT_FALSE(forward_holds(c, wanted(c, fault)));
  }
  EXPECT_FALSE(within_share(c.backward(), wanted_gradient(c, Fault::kConstantSigmoid)));
}

void situ_glu(benchmark::State& state) {
  const Case c = random_case(state.range(0), 3.0f);
  std::vector<float> out(c.a.size());
  for (auto _ : state) {
    engine::ops::situ_glu_forward(c.a, c.u, c.betas, out);
    benchmark::ClobberMemory();
  }
  const auto elements = static_cast<double>(c.a.size()) * static_cast<double>(state.iterations());
  state.counters["elements"] = benchmark::Counter(elements, benchmark::Counter::kIsRate);
  state.counters["bytes"] = benchmark::Counter(12.0 * elements, benchmark::Counter::kIsRate);
}
BENCHMARK(situ_glu)->Arg(3072)->Arg(32 * 3072)->UseRealTime();

}  // namespace
}  // namespace checks::ops
