#include <benchmark/benchmark.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "checks/ops/op_case.h"
#include "engine/ops/short_conv.h"

namespace checks::ops {
namespace {

namespace op = engine::ops;

// Wrong versions; kNone is the right one. The last two drop a term of the gradient only: what they
// name keeps its value when x is varied.
enum class Fault {
  kNone,
  kTapsReversed,  // the first tap multiplies the current token
  kLeak,          // taps reach across a document border
  kNoSilu,
  kSigmoidConstant,
  kPastConstant
};

struct Case {
  Case(std::int64_t channels, std::int64_t tap_count, std::vector<std::int64_t> borders)
      : width(channels),
        taps(tap_count),
        documents(std::move(borders)),
        x(random_values("x", documents.back() * width, 2.0f)),
        w(random_values("w", width * taps, 1.0f)),
        d_y(random_values("d_y", documents.back() * width, 1.0f)) {}

  std::int64_t width, taps;
  std::vector<std::int64_t> documents;
  std::vector<float> x, w, d_y;
};

// y for inputs x; `still` are the inputs wherever the fault forgets that y depends on them.
std::vector<double> formula(const Case& c, const std::vector<double>& x,
                            const std::vector<double>& still, Fault fault) {
  std::vector<double> y;
  for (std::size_t d = 0; d + 1 < c.documents.size(); ++d) {
    const std::int64_t first = fault == Fault::kLeak ? 0 : c.documents[d];
    for (std::int64_t t = c.documents[d]; t < c.documents[d + 1]; ++t) {
      for (std::int64_t channel = 0; channel < c.width; ++channel) {
        double z = 0.0;
        double z_still = 0.0;
        for (std::int64_t j = 0; j < c.taps; ++j) {
          const std::int64_t from = t - (c.taps - 1) + j;
          if (from < first) continue;
          const std::int64_t tap = fault == Fault::kTapsReversed ? c.taps - 1 - j : j;
          const double weight = c.w[channel * c.taps + tap];
          const bool constant = fault == Fault::kPastConstant && from < t;
          z += weight * (constant ? still : x)[from * c.width + channel];
          z_still += weight * still[from * c.width + channel];
        }
        const double in_sigmoid = fault == Fault::kSigmoidConstant ? z_still : z;
        y.push_back(fault == Fault::kNoSilu ? z : z / (1.0 + std::exp(-in_sigmoid)));
      }
    }
  }
  return y;
}

std::vector<double> formula(const Case& c, Fault fault) {
  return formula(c, widen(c.x), widen(c.x), fault);
}

std::vector<double> gradient(const Case& c, Fault fault) {
  const auto still = widen(c.x);
  const auto loss = [&](const std::vector<double>& x) {
    return dot(formula(c, x, still, fault), c.d_y);
  };
  return numeric_gradient(loss, widen(c.x));
}

struct Result {
  std::vector<float> y, d_x;
};

Result run(const Case& c) {
  // Both are overwritten: what stands there must not matter.
  Result r{std::vector<float>(c.x.size(), 7.0f), std::vector<float>(c.x.size(), 7.0f)};
  op::short_conv_forward(c.x, c.w, c.documents, {}, r.y);
  op::short_conv_backward(c.d_y, c.x, c.w, c.documents, r.d_x);
  return r;
}

TEST(ShortConv, FixtureOfTheCReference) {
  CHECKS_NEED(root, reference_fixtures());
  const auto fixture = read_fixture_json(root / "ops" / "shortconv.json");
  const auto x = at(fixture, "in").f32();
  const auto w = at(fixture, "weight").f32();
  const std::int64_t width = at(fixture, "weight").shape.at(0);
  const std::int64_t before = at(fixture, "weight").shape.at(2) - 1;
  const std::int64_t tokens = at(fixture, "in").shape.at(1);
  std::vector<float> history(static_cast<std::size_t>(before * width), 0.0f);
  std::vector<float> y(x.size());
  op::short_conv_forward(x, w, std::vector<std::int64_t>{0, tokens}, history, y);
  const Comparison first = within_fixture(y, at(fixture, "out").data);
  EXPECT_TRUE(first) << first.why;

  // Their state is [channel][token].
  std::vector<double> state(history.size());
  for (std::int64_t j = 0; j < before; ++j) {
    for (std::int64_t c = 0; c < width; ++c) {
      state[j * width + c] = at(fixture, "state_after").data[c * before + j];
    }
  }
  const Comparison carried = within_fixture(history, state);
  EXPECT_TRUE(carried) << carried.why;

  std::vector<float> next(static_cast<std::size_t>(width));
  op::short_conv_forward(at(fixture, "in_next").f32(), w, std::vector<std::int64_t>{0, 1}, history,
                         next);
  const Comparison second = within_fixture(next, at(fixture, "out_next").data);
  EXPECT_TRUE(second) << second.why;
}

TEST(ShortConv, Float64Reference) {
  CHECKS_NEED(path, reference_data("grad/ops/short_conv.safetensors"));
  const auto tensors = read_safetensors(path);
  const std::map<std::string, std::vector<std::int64_t>> cases = {
      {"T1", {0, 1}}, {"T2", {0, 2}}, {"T9", {0, 9}}, {"packed11", {0, 5, 6, 8, 11}}};
  for (const auto& [id, documents] : cases) {
    const GradCase in(tensors, id);
    Case c(in.size("in.w", 0), in.size("in.w", 1), documents);
    c.x = in.f32("in.x");
    c.w = in.f32("in.w");
    c.d_y = in.f32("up.y");
    const Result r = run(c);
    const Comparison y = within_share(r.y, in.f64("out.y"));
    const Comparison d_x = within_share(r.d_x, in.f64("grad.x"));
    EXPECT_TRUE(y) << id << " y: " << y.why;
    EXPECT_TRUE(d_x) << id << " d_x: " << d_x.why;
  }
}

TEST(ShortConv, FormulaInDouble) {
  for (const std::int64_t taps : {1, 2, 4, 5}) {
    const Case c(35, taps, {0, 1, 7, 9, 12});
    const Result r = run(c);
    const Comparison y = within_share(r.y, formula(c, Fault::kNone));
    const Comparison d_x = within_share(r.d_x, gradient(c, Fault::kNone));
    EXPECT_TRUE(y) << taps << " taps, y: " << y.why;
    EXPECT_TRUE(d_x) << taps << " taps, d_x: " << d_x.why;
  }
}

TEST(ShortConv, SameBits) {
  const Case c(200, 4, {0, 5, 6, 8, 20});
  const auto flat = [&] {
    const Result r = run(c);
    std::vector<float> all = r.y;
    append(all, r.d_x);
    return all;
  };
  const Comparison everywhere = same_bits_everywhere(flat);
  EXPECT_TRUE(everywhere) << everywhere.why;
}

TEST(ShortConv, PackedIsSeparate) {
  const Case c(35, 4, {0, 5, 6, 8, 20});
  const Result packed = run(c);
  for (std::size_t d = 0; d + 1 < c.documents.size(); ++d) {
    const std::int64_t first = c.documents[d];
    const std::int64_t count = c.documents[d + 1] - first;
    Case alone(c.width, c.taps, {0, count});
    const auto piece = [&](const std::vector<float>& all) {
      const auto part = rows(all, c.width, first, count);
      return std::vector<float>(part.begin(), part.end());
    };
    alone.x = piece(c.x);
    alone.d_y = piece(c.d_y);
    const Result r = run(alone);
    EXPECT_TRUE(same_bits(r.y, piece(packed.y))) << "document " << d;
    EXPECT_TRUE(same_bits(r.d_x, piece(packed.d_x))) << "document " << d;
  }
}

// Pieces of one document with carried history, the shortest ones shorter than the history.
TEST(ShortConv, PiecesAreOne) {
  const Case c(35, 4, {0, 12});
  std::vector<float> history(static_cast<std::size_t>(3 * c.width), 0.0f);
  std::vector<float> y;
  std::int64_t first = 0;
  for (const std::int64_t count : {1, 1, 4, 2, 1, 3}) {
    std::vector<float> part(static_cast<std::size_t>(count * c.width));
    op::short_conv_forward(rows(c.x, c.width, first, count), c.w,
                           std::vector<std::int64_t>{0, count}, history, part);
    append(y, part);
    first += count;
  }
  EXPECT_TRUE(same_bits(y, run(c).y));
  EXPECT_TRUE(same_bits(history, rows(c.x, c.width, 9, 3)));
}

// A last document shorter than the history leaves zeros, not inputs of the document before it.
TEST(ShortConv, HistoryEndsAtTheBorder) {
  const Case c(35, 4, {0, 5, 7});
  std::vector<float> history = random_values("history", 3 * c.width, 1.0f);
  std::vector<float> y(c.x.size());
  op::short_conv_forward(c.x, c.w, c.documents, history, y);
  std::vector<float> want(static_cast<std::size_t>(c.width), 0.0f);
  append(want, rows(c.x, c.width, 5, 2));
  EXPECT_TRUE(same_bits(history, want));
}

TEST(ShortConv, F10) {
  Case c(35, 4, {0, 12});
  const Result before = run(c);
  for (std::int64_t i = 7 * c.width; i < 12 * c.width; ++i) c.x[i] += 1.0f;
  const Result after = run(c);
  EXPECT_TRUE(same_bits(rows(after.y, c.width, 0, 7), rows(before.y, c.width, 0, 7)));
  EXPECT_FALSE(same_bits(rows(after.y, c.width, 7, 1), rows(before.y, c.width, 7, 1)));
}

// Each wrong version must be refused where the right one, by the same comparison, is not.
TEST(ShortConv, PlantedFaults) {
  const Case c(5, 4, {0, 5, 6, 8, 12});
  const Result r = run(c);
  EXPECT_TRUE(within_share(r.y, formula(c, Fault::kNone)));
  EXPECT_TRUE(within_share(r.d_x, gradient(c, Fault::kNone)));
  for (const Fault fault : {Fault::kTapsReversed, Fault::kLeak, Fault::kNoSilu}) {
    EXPECT_FALSE(within_share(r.y, formula(c, fault))) << static_cast<int>(fault);
    EXPECT_FALSE(within_share(r.d_x, gradient(c, fault))) << static_cast<int>(fault);
  }
  for (const Fault fault : {Fault::kSigmoidConstant, Fault::kPastConstant}) {
    EXPECT_TRUE(within_share(r.y, formula(c, fault))) << static_cast<int>(fault);
    EXPECT_FALSE(within_share(r.d_x, gradient(c, fault))) << static_cast<int>(fault);
  }
}

void short_conv_bench(benchmark::State& state, bool backward) {
  const Case c(state.range(1), 4, {0, state.range(0)});
  Result r = run(c);
  for (auto _ : state) {
    if (backward) {
      op::short_conv_backward(c.d_y, c.x, c.w, c.documents, r.d_x);
    } else {
      op::short_conv_forward(c.x, c.w, c.documents, {}, r.y);
    }
    benchmark::ClobberMemory();
  }
  const auto elements = static_cast<double>(c.x.size());
  const auto rate = benchmark::Counter::kIsIterationInvariantRate;
  // Four taps and the product with the sigmoid (counted as one more); backward does the taps twice.
  state.counters["bytes"] = {elements * 4 * (backward ? 3 : 2), rate};
  state.counters["operations"] = {elements * (backward ? 19 : 10), rate};
}
BENCHMARK_CAPTURE(short_conv_bench, forward, false)->Args({32, 12288});
BENCHMARK_CAPTURE(short_conv_bench, backward, true)->Args({32, 12288});

}  // namespace
}  // namespace checks::ops
