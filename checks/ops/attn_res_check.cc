#include <benchmark/benchmark.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "checks/ops/op_case.h"
#include "engine/ops/attn_res.h"

namespace checks::ops {
namespace {

namespace op = engine::ops;

constexpr float kEps = 1e-5f;

// Sources [M,T,H] in one piece, and their gradient likewise.
struct Case {
  std::int64_t count = 0, tokens = 0, width = 0;
  std::vector<float> sources, norm, proj, d_y;
  std::vector<float> start;  // what d_sources holds before

  // The sources differ in scale, as bank entries do; some are small enough for eps to matter.
  static Case random(std::int64_t count, std::int64_t tokens, std::int64_t width) {
    Case c{count,
           tokens,
           width,
           random_values("sources", count * tokens * width, 1.0f),
           random_values("norm", width, 2.0f),
           random_values("proj", width, 1.0f),
           random_values("d_y", tokens * width, 1.0f),
           random_values("start", count * tokens * width, 1.0f)};
    const float scales[] = {1.0f, 0.004f, 3.0f};
    for (std::size_t i = 0; i < c.sources.size(); ++i) {
      c.sources[i] *= scales[i / static_cast<std::size_t>(tokens * width) % 3];
    }
    return c;
  }
  // Token t alone.
  Case token(std::int64_t t) const {
    Case c{count, 1, width, {}, norm, proj, {}, {}};
    append(c.d_y, rows(d_y, width, t));
    for (std::int64_t j = 0; j < count; ++j) {
      append(c.sources, rows(sources, width, j * tokens + t));
      append(c.start, rows(start, width, j * tokens + t));
    }
    return c;
  }
};

struct Result {
  std::vector<float> y, d_sources;
};

Result run(const Case& c) {
  Result r{std::vector<float>(c.d_y.size(), 7.0f), c.start};
  std::vector<const float*> sources;
  std::vector<float*> d_sources;
  for (std::int64_t j = 0; j < c.count; ++j) {
    sources.push_back(c.sources.data() + j * c.tokens * c.width);
    d_sources.push_back(r.d_sources.data() + j * c.tokens * c.width);
  }
  op::attn_res_forward(sources, c.norm, c.proj, kEps, r.y);
  op::attn_res_backward(c.d_y, sources, c.norm, c.proj, kEps, d_sources);
  return r;
}

enum class Fault {
  kNone,
  kNormalisedValues,  // mixes s / r instead of the raw s
  kRawScores,         // scores the raw s
  kEpsOutsideRoot,
  kTemperature,  // c / sqrt(H)
  kNoNorm,       // u = proj
  kUniform       // p = 1/M
};

std::vector<double> mix(const Case& c, const std::vector<double>& sources, Fault fault) {
  const auto count = static_cast<std::size_t>(c.count);
  const auto width = static_cast<std::size_t>(c.width);
  const auto tokens = static_cast<std::size_t>(c.tokens);
  std::vector<double> y(tokens * width, 0.0);
  for (std::size_t t = 0; t < tokens; ++t) {
    std::vector<double> score(count), root(count);
    for (std::size_t j = 0; j < count; ++j) {
      const double* s = sources.data() + (j * tokens + t) * width;
      double square = 0.0;
      double along = 0.0;
      for (std::size_t i = 0; i < width; ++i) {
        square += s[i] * s[i] / static_cast<double>(width);
        along += s[i] * c.proj[i] * (fault == Fault::kNoNorm ? 1.0 : c.norm[i]);
      }
      root[j] = fault == Fault::kEpsOutsideRoot ? std::sqrt(square) + double{kEps}
                                                : std::sqrt(square + double{kEps});
      score[j] = fault == Fault::kRawScores ? along : along / root[j];
      if (fault == Fault::kTemperature) score[j] /= std::sqrt(static_cast<double>(width));
      if (fault == Fault::kUniform) score[j] = 0.0;
    }
    const double largest = *std::max_element(score.begin(), score.end());
    double denominator = 0.0;
    for (double& value : score) denominator += value = std::exp(value - largest);
    for (std::size_t j = 0; j < count; ++j) {
      const double* s = sources.data() + (j * tokens + t) * width;
      const double scale = fault == Fault::kNormalisedValues ? root[j] : 1.0;
      for (std::size_t i = 0; i < width; ++i) {
        y[t * width + i] += score[j] / denominator * s[i] / scale;
      }
    }
  }
  return y;
}

enum class BackwardFault {
  kNone,
  kConstantShares,  // d_s = p d_y alone
  kNoAverage,       // dz = p c
  kNoProjection     // the norm's denominator held constant
};

// One token.
std::vector<double> mix_gradient(const Case& c, BackwardFault fault) {
  const auto count = static_cast<std::size_t>(c.count);
  const auto width = static_cast<std::size_t>(c.width);
  std::vector<double> root(count), score(count), share(count), pull(count);
  double denominator = 0.0;
  for (std::size_t j = 0; j < count; ++j) {
    const float* s = c.sources.data() + j * width;
    double square = 0.0;
    for (std::size_t i = 0; i < width; ++i) {
      square += double{s[i]} * s[i] / static_cast<double>(width);
      score[j] += double{s[i]} * c.proj[i] * c.norm[i];
      pull[j] += double{s[i]} * c.d_y[i];
    }
    root[j] = std::sqrt(square + double{kEps});
    score[j] /= root[j];
    denominator += share[j] = std::exp(score[j]);
  }
  double average = 0.0;
  for (std::size_t j = 0; j < count; ++j) average += (share[j] /= denominator) * pull[j];
  if (fault == BackwardFault::kNoAverage) average = 0.0;
  std::vector<double> d_sources;
  for (std::size_t j = 0; j < count; ++j) {
    const double dz =
        fault == BackwardFault::kConstantShares ? 0.0 : share[j] * (pull[j] - average);
    for (std::size_t i = 0; i < width; ++i) {
      const double k = c.sources[j * width + i] / root[j];
      const double projection =
          fault == BackwardFault::kNoProjection ? 0.0 : k * score[j] / static_cast<double>(width);
      const double u = double{c.norm[i]} * c.proj[i];
      d_sources.push_back(share[j] * c.d_y[i] + dz * (u - projection) / root[j]);
    }
  }
  return d_sources;
}

TEST(AttnRes, FixtureOfTheCReference) {
  CHECKS_NEED(root, reference_fixtures());
  const auto fixture = read_fixture_json(root / "ops" / "attnres.json");
  const auto prefix = at(fixture, "prefix_sum").f32();
  const auto bank = at(fixture, "block_residual").f32();  // [T, entries, H]
  Case c;
  c.norm = at(fixture, "norm_weight").f32();
  c.proj = at(fixture, "proj_weight").f32();
  c.width = static_cast<std::int64_t>(c.norm.size());
  c.tokens = static_cast<std::int64_t>(prefix.size()) / c.width;
  const std::int64_t entries = at(fixture, "block_residual").shape.at(1);
  c.count = entries + 1;
  for (std::int64_t j = 0; j < entries; ++j) {
    for (std::int64_t t = 0; t < c.tokens; ++t) {
      append(c.sources, rows(bank, c.width, t * entries + j));
    }
  }
  append(c.sources, prefix);
  c.d_y = prefix;
  c.start.resize(c.sources.size());
  expect_holds(within_fixture(run(c).y, at(fixture, "out").data), "y");
}

TEST(AttnRes, Float64Reference) {
  CHECKS_NEED(path, reference_data("grad/ops/attn_res_aggregate.safetensors"));
  const auto tensors = read_safetensors(path);
  for (const char* id : {"bank0", "bank1", "bank8", "bank8_scales", "bank3_peaky"}) {
    const GradCase in(tensors, id);
    Case c{in.size("in.sources", 0), in.size("in.sources", 1),
           in.size("in.sources", 2), in.f32("in.sources"),
           in.f32("in.nw"),          in.f32("in.pw"),
           in.f32("up.y"),           {}};
    c.start.resize(c.sources.size());
    const Result r = run(c);
    expect_holds(within_share(r.y, in.f64("out.y")), std::string(id) + " y");
    expect_holds(within_share(r.d_sources, in.f64("grad.sources")), std::string(id) + " d_sources");
  }
}

TEST(AttnRes, FormulaInDouble) {
  const Case c = Case::random(4, 3, 19);
  const Result r = run(c);
  const auto formula = [&](const std::vector<double>& sources) {
    return mix(c, sources, Fault::kNone);
  };
  expect_holds(within_share(r.y, formula(widen(c.sources))), "y");
  const auto loss = [&](const std::vector<double>& sources) {
    return dot(formula(sources), c.d_y);
  };
  // A step for the smallest source; d_sources is added to what stands there.
  auto want = numeric_gradient(loss, widen(c.sources), 1e-6);
  for (std::size_t i = 0; i < want.size(); ++i) want[i] += c.start[i];
  expect_holds(within_share(r.d_sources, want), "d_sources");
}

// A single source comes back as it is: layer 0 mixes nothing but the embedding.
TEST(AttnRes, OneSourceIsTheIdentity) {
  Case c = Case::random(1, 3, 19);
  std::fill(c.start.begin(), c.start.end(), 0.0f);
  const Result r = run(c);
  EXPECT_TRUE(same_bits(r.y, c.sources));
  EXPECT_TRUE(same_bits(r.d_sources, c.d_y));
}

TEST(AttnRes, SameBits) {
  const Case c = Case::random(9, 8, 37);
  const auto everything = [&] {
    Result r = run(c);
    append(r.y, r.d_sources);
    return r.y;
  };
  expect_holds(same_bits_everywhere(everything), "threads and instruction sets");
  const Result all = run(c);
  for (std::int64_t t = 0; t < c.tokens; ++t) {
    const Result alone = run(c.token(t));
    EXPECT_TRUE(same_bits(alone.y, rows(all.y, c.width, t)));
    for (std::int64_t j = 0; j < c.count; ++j) {
      EXPECT_TRUE(same_bits(rows(alone.d_sources, c.width, j),
                            rows(all.d_sources, c.width, j * c.tokens + t)));
    }
  }
}

TEST(AttnRes, PlantedFaults) {
  Case c = Case::random(4, 1, 19);
  std::fill(c.start.begin(), c.start.end(), 0.0f);
  const Result r = run(c);
  EXPECT_TRUE(within_share(r.y, mix(c, widen(c.sources), Fault::kNone)));
  for (const Fault fault : {Fault::kNormalisedValues, Fault::kRawScores, Fault::kEpsOutsideRoot,
                            Fault::kTemperature, Fault::kNoNorm, Fault::kUniform}) {
    EXPECT_FALSE(within_share(r.y, mix(c, widen(c.sources), fault)));
  }
  EXPECT_TRUE(within_share(r.d_sources, mix_gradient(c, BackwardFault::kNone)));
  for (const BackwardFault fault :
       {BackwardFault::kConstantShares, BackwardFault::kNoAverage, BackwardFault::kNoProjection}) {
    EXPECT_FALSE(within_share(r.d_sources, mix_gradient(c, fault)));
  }
}

void attn_res_bench(benchmark::State& state, bool backward) {
  const Case c = Case::random(state.range(0), state.range(1), state.range(2));
  std::vector<float> y(c.d_y.size());
  std::vector<float> gradient(c.sources.size());
  std::vector<const float*> sources;
  std::vector<float*> d_sources;
  for (std::int64_t j = 0; j < c.count; ++j) {
    sources.push_back(c.sources.data() + j * c.tokens * c.width);
    d_sources.push_back(gradient.data() + j * c.tokens * c.width);
  }
  for (auto _ : state) {
    if (backward) {
      op::attn_res_backward(c.d_y, sources, c.norm, c.proj, kEps, d_sources);
    } else {
      op::attn_res_forward(sources, c.norm, c.proj, kEps, y);
    }
    benchmark::ClobberMemory();
  }
  const auto elements = static_cast<double>(c.sources.size());
  const auto rate = benchmark::Counter::kIsIterationInvariantRate;
  state.counters["bytes"] = {elements * 4 * (backward ? 3 : 1), rate};
  state.counters["operations"] = {elements * (backward ? 15 : 7), rate};
}
BENCHMARK_CAPTURE(attn_res_bench, forward, false)->Args({9, 32, 7168})->UseRealTime();
BENCHMARK_CAPTURE(attn_res_bench, backward, true)->Args({9, 32, 7168})->UseRealTime();

}  // namespace
}  // namespace checks::ops
