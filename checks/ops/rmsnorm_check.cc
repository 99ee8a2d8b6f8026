#include <benchmark/benchmark.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "checks/ops/op_case.h"
#include "engine/ops/rmsnorm.h"

namespace checks::ops {
namespace {

namespace op = engine::ops;

constexpr float kEps = 1e-5f;

// Wrong versions of both norms; kNone is the right one.
enum class Fault {
  kNone,
  kEpsOutsideRoot,   // 1 / (sqrt(mean) + eps)
  kOtherDenominator  // rmsnorm over the sum, l2norm over the mean
};
enum class BackwardFault { kNone, kNoProjection, kProjectionOfBareGradient, kSquareForCube };

std::vector<double> rmsnorm(const std::vector<double>& x, std::span<const float> w, Fault fault) {
  std::vector<double> y(x.size());
  const std::size_t width = w.size();
  for (std::size_t n = 0; n < x.size(); n += width) {
    double sum = 0.0;
    for (std::size_t i = 0; i < width; ++i) sum += x[n + i] * x[n + i];
    const double mean = fault == Fault::kOtherDenominator ? sum : sum / static_cast<double>(width);
    const double root = fault == Fault::kEpsOutsideRoot ? std::sqrt(mean) + double{kEps}
                                                        : std::sqrt(mean + double{kEps});
    for (std::size_t i = 0; i < width; ++i) y[n + i] = w[i] * x[n + i] / root;
  }
  return y;
}

std::vector<double> l2norm(const std::vector<double>& x, std::size_t width, double scale,
                           Fault fault) {
  std::vector<double> y(x.size());
  for (std::size_t n = 0; n < x.size(); n += width) {
    double sum = 0.0;
    for (std::size_t i = 0; i < width; ++i) sum += x[n + i] * x[n + i];
    if (fault == Fault::kOtherDenominator) sum /= static_cast<double>(width);
    const double root =
        fault == Fault::kEpsOutsideRoot ? std::sqrt(sum) + 1e-6 : std::sqrt(sum + 1e-6);
    for (std::size_t i = 0; i < width; ++i) y[n + i] = scale * x[n + i] / root;
  }
  return y;
}

std::vector<double> rmsnorm_gradient(std::span<const float> d_y, std::span<const float> x,
                                     std::span<const float> w, BackwardFault fault) {
  std::vector<double> d_x(x.size());
  const std::size_t width = w.size();
  for (std::size_t n = 0; n < x.size(); n += width) {
    double sum = 0.0;
    double along = 0.0;
    for (std::size_t i = 0; i < width; ++i) {
      const double weight = fault == BackwardFault::kProjectionOfBareGradient ? 1.0 : w[i];
      sum += double{x[n + i]} * x[n + i];
      along += weight * d_y[n + i] * x[n + i];
    }
    const double inv = 1.0 / std::sqrt(sum / static_cast<double>(width) + double{kEps});
    const double power = fault == BackwardFault::kSquareForCube ? inv * inv : inv * inv * inv;
    if (fault == BackwardFault::kNoProjection) along = 0.0;
    for (std::size_t i = 0; i < width; ++i) {
      d_x[n + i] =
          double{w[i]} * d_y[n + i] * inv - x[n + i] * power / static_cast<double>(width) * along;
    }
  }
  return d_x;
}

// Everything a norm reads. Values up to 4e-3, where both eps weigh as much as the squares.
constexpr double kStep = 1e-6;  // for numeric_gradient at that scale
struct Case {
  Case(std::int64_t row_count, std::int64_t row_width)
      : count(row_count),
        width(row_width),
        x(random_values("x", count * width, 4e-3f)),
        w(random_values("w", width, 2.0f)),
        d_y(random_values("d_y", count * width, 1.0f)),
        start(random_values("start", count * width, 1.0f)) {}

  std::int64_t count, width;
  std::vector<float> x, w, d_y, start;
};

struct Result {
  std::vector<float> y, inv, d_x;
};

Result run_rmsnorm(std::span<const float> x, std::span<const float> w, std::span<const float> d_y,
                   std::span<const float> start) {
  Result r{std::vector<float>(x.size()),
           std::vector<float>(x.size() / w.size()),
           {start.begin(), start.end()}};
  op::rmsnorm_forward(x, w, kEps, r.y, r.inv);
  op::rmsnorm_backward(d_y, x, w, r.inv, r.d_x);
  return r;
}

Result run_l2norm(std::span<const float> x, std::int64_t width, float scale,
                  std::span<const float> d_y) {
  // In place, as KDA calls them.
  Result r{{x.begin(), x.end()},
           std::vector<float>(x.size() / static_cast<std::size_t>(width)),
           {d_y.begin(), d_y.end()}};
  op::l2norm_forward(r.y, width, scale, r.y, r.inv);
  op::l2norm_backward(r.d_x, x, width, scale, r.inv, r.d_x);
  return r;
}

std::vector<float> flat(const Result& r) {
  std::vector<float> all = r.y;
  append(all, r.inv);
  append(all, r.d_x);
  return all;
}

constexpr float kScale = 0.25f;

TEST(RmsNorm, FixtureOfTheCReference) {
  CHECKS_NEED(root, reference_fixtures());
  const auto fixture = read_fixture_json(root / "ops" / "rmsnorm.json");
  const auto x = at(fixture, "in").f32();
  const Result r = run_rmsnorm(x, at(fixture, "weight").f32(), x, x);
  expect_holds(within_fixture(r.y, at(fixture, "out").data), "y");
}

TEST(RmsNorm, Float64Reference) {
  CHECKS_NEED(path, reference_data("grad/ops/rmsnorm.safetensors"));
  const auto tensors = read_safetensors(path);
  for (const char* id : {"normal", "small", "large", "heads"}) {
    const GradCase in(tensors, id);
    const auto x = in.f32("in.x");
    const Result r =
        run_rmsnorm(x, in.f32("in.w"), in.f32("up.y"), std::vector<float>(x.size(), 0.0f));
    expect_holds(within_share(r.y, in.f64("out.y")), std::string(id) + " y");
    expect_holds(within_share(r.d_x, in.f64("grad.x")), std::string(id) + " d_x");
  }
}

TEST(RmsNorm, FormulaInDouble) {
  const Case c(5, 37);
  const Result r = run_rmsnorm(c.x, c.w, c.d_y, c.start);
  expect_holds(within_share(r.y, rmsnorm(widen(c.x), c.w, Fault::kNone)), "y");
  const auto loss = [&](const std::vector<double>& x) {
    return dot(rmsnorm(x, c.w, Fault::kNone), c.d_y);
  };
  // d_x is added to what stands there.
  auto want = numeric_gradient(loss, widen(c.x), kStep);
  for (std::size_t i = 0; i < want.size(); ++i) want[i] += c.start[i];
  expect_holds(within_share(r.d_x, want), "d_x");
}

TEST(RmsNorm, SameBits) {
  const Case c(9, 37);
  const auto run = [&] { return flat(run_rmsnorm(c.x, c.w, c.d_y, c.start)); };
  expect_holds(same_bits_everywhere(run), "threads and instruction sets");
  const Result all = run_rmsnorm(c.x, c.w, c.d_y, c.start);
  for (std::int64_t n = 0; n < c.count; ++n) {
    const Result alone =
        run_rmsnorm(rows(c.x, c.width, n), c.w, rows(c.d_y, c.width, n), rows(c.start, c.width, n));
    EXPECT_TRUE(same_bits(alone.y, rows(all.y, c.width, n)));
    EXPECT_TRUE(same_bits(alone.d_x, rows(all.d_x, c.width, n)));
  }
}

TEST(L2Norm, Float64Reference) {
  CHECKS_NEED(path, reference_data("grad/ops/l2norm.safetensors"));
  const auto tensors = read_safetensors(path);
  for (const char* id : {"normal", "small"}) {
    const GradCase in(tensors, id);
    const Result r = run_l2norm(in.f32("in.x"), in.size("in.x", 1), 1.0f, in.f32("up.y"));
    expect_holds(within_share(r.y, in.f64("out.y")), std::string(id) + " y");
    expect_holds(within_share(r.d_x, in.f64("grad.x")), std::string(id) + " d_x");
  }
}

TEST(L2Norm, FormulaInDouble) {
  const Case c(5, 19);
  const auto formula = [&](const std::vector<double>& x) {
    return l2norm(x, static_cast<std::size_t>(c.width), kScale, Fault::kNone);
  };
  const Result r = run_l2norm(c.x, c.width, kScale, c.d_y);
  expect_holds(within_share(r.y, formula(widen(c.x))), "y");
  const auto loss = [&](const std::vector<double>& x) { return dot(formula(x), c.d_y); };
  expect_holds(within_share(r.d_x, numeric_gradient(loss, widen(c.x), kStep)), "d_x");
}

TEST(L2Norm, SameBits) {
  const Case c(9, 19);
  const auto run = [&] { return flat(run_l2norm(c.x, c.width, kScale, c.d_y)); };
  expect_holds(same_bits_everywhere(run), "threads and instruction sets");
  const Result all = run_l2norm(c.x, c.width, kScale, c.d_y);
  for (std::int64_t n = 0; n < c.count; ++n) {
    const Result alone =
        run_l2norm(rows(c.x, c.width, n), c.width, kScale, rows(c.d_y, c.width, n));
    EXPECT_TRUE(same_bits(alone.y, rows(all.y, c.width, n)));
    EXPECT_TRUE(same_bits(alone.d_x, rows(all.d_x, c.width, n)));
  }
}

// Each wrong version must be refused where the right one, by the same comparison, is not.
TEST(RmsNorm, PlantedFaults) {
  const Case c(5, 37);
  const std::vector<float> zero(c.x.size(), 0.0f);
  const Result rms = run_rmsnorm(c.x, c.w, c.d_y, zero);
  const Result l2 = run_l2norm(c.x, c.width, kScale, c.d_y);
  const auto width = static_cast<std::size_t>(c.width);
  EXPECT_TRUE(within_share(rms.y, rmsnorm(widen(c.x), c.w, Fault::kNone)));
  for (const Fault fault : {Fault::kEpsOutsideRoot, Fault::kOtherDenominator}) {
    EXPECT_FALSE(within_share(rms.y, rmsnorm(widen(c.x), c.w, fault)));
    EXPECT_FALSE(within_share(l2.y, l2norm(widen(c.x), width, kScale, fault)));
  }
  EXPECT_FALSE(within_share(l2.y, l2norm(widen(c.x), width, 1.0, Fault::kNone)));
  EXPECT_TRUE(within_share(rms.d_x, rmsnorm_gradient(c.d_y, c.x, c.w, BackwardFault::kNone)));
  for (const BackwardFault fault :
       {BackwardFault::kNoProjection, BackwardFault::kProjectionOfBareGradient,
        BackwardFault::kSquareForCube}) {
    EXPECT_FALSE(within_share(rms.d_x, rmsnorm_gradient(c.d_y, c.x, c.w, fault)));
  }
}

void rmsnorm_bench(benchmark::State& state, bool backward) {
  const Case c(state.range(0), state.range(1));
  Result r = run_rmsnorm(c.x, c.w, c.d_y, c.start);
  for (auto _ : state) {
    if (backward) {
      op::rmsnorm_backward(c.d_y, c.x, c.w, r.inv, r.d_x);
    } else {
      op::rmsnorm_forward(c.x, c.w, kEps, r.y, r.inv);
    }
    benchmark::ClobberMemory();
  }
  const auto elements = static_cast<double>(c.count * c.width);
  const auto rate = benchmark::Counter::kIsIterationInvariantRate;
  // forward: x twice, y; a square and two products. backward: d_y and x twice, d_x in and out.
  state.counters["bytes"] = {elements * 4 * (backward ? 4 : 2), rate};
  state.counters["operations"] = {elements * (backward ? 8 : 4), rate};
}
BENCHMARK_CAPTURE(rmsnorm_bench, forward, false)->Args({32, 7168})->UseRealTime();
BENCHMARK_CAPTURE(rmsnorm_bench, backward, true)->Args({32, 7168})->UseRealTime();

}  // namespace
}  // namespace checks::ops
