#include <benchmark/benchmark.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "checks/ops/op_case.h"
#include "engine/ops/lora.h"

namespace checks::ops {
namespace {

using engine::ops::Lora;

struct Result {
  std::vector<float> u, y, d_u, d_a, d_b, d_x;
  std::vector<float> all() const {
    std::vector<float> out;
    for (const auto* part : {&u, &y, &d_u, &d_a, &d_b, &d_x}) append(out, *part);
    return out;
  }
};

// Gradients and y begin with something in them: everything but u and d_u is added to.
struct Case {
  Case(std::vector<std::int64_t> borders, std::int64_t rank, std::int64_t in, std::int64_t out)
      : documents(std::move(borders)),
        tokens(documents.back()),
        a(random_values("a", rank * in, 1.0f)),
        b(random_values("b", out * rank, 1.0f)),
        x(random_values("x", tokens * in, 1.0f)),
        y(random_values("y", tokens * out, 1.0f)),
        d_y(random_values("d_y", tokens * out, 1.0f)),
        d_a(random_values("d_a", rank * in, 1.0f)),
        d_b(random_values("d_b", out * rank, 1.0f)),
        d_x(random_values("d_x", tokens * in, 1.0f)) {
    lora = {a, b, rank, in, out, 0.3f};
  }
  Case(const Case&) = delete;
  Case& operator=(const Case&) = delete;

  Result run() const {
    const auto low = static_cast<std::size_t>(tokens * lora.rank);
    Result r{std::vector<float>(low, 9.0f), y, std::vector<float>(low, 9.0f), d_a, d_b, d_x};
    engine::ops::lora_forward(lora, x, r.u, r.y, tokens);
    engine::ops::lora_backward(lora, documents, d_y, x, r.u, r.d_u, r.d_a, r.d_b, r.d_x);
    return r;
  }

  std::vector<std::int64_t> documents;
  std::int64_t tokens;
  std::vector<float> a, b, x, y, d_y, d_a, d_b, d_x;
  Lora lora;
};

// (rows x inner) (inner x cols), element (i, k) of the left factor at i * ls[0] + k * ls[1], of the
// right one at k * rs[0] + j * rs[1].
std::vector<double> product(const std::vector<double>& left, std::array<std::int64_t, 2> ls,
                            const std::vector<double>& right, std::array<std::int64_t, 2> rs,
                            std::int64_t rows, std::int64_t inner, std::int64_t cols) {
  std::vector<double> out;
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j < cols; ++j) {
      double sum = 0.0;
      for (std::int64_t k = 0; k < inner; ++k) {
        sum += left[static_cast<std::size_t>(i * ls[0] + k * ls[1])] *
               right[static_cast<std::size_t>(k * rs[0] + j * rs[1])];
      }
      out.push_back(sum);
    }
  }
  return out;
}

std::vector<double> plus(const std::vector<float>& start, const std::vector<double>& more,
                         double scale) {
  std::vector<double> out;
  for (std::size_t i = 0; i < start.size(); ++i) out.push_back(start[i] + scale * more[i]);
  return out;
}

// The formulas of lora.h in double; kNone is the right one.
enum class Fault { kNone, kScaleNotInInputGradient, kScaleTwice, kAssign, kGradientOfA };

Comparison values_hold(const Case& c, const Result& got, Fault fault = Fault::kNone) {
  const std::int64_t T = c.tokens, R = c.lora.rank, I = c.lora.in, O = c.lora.out;
  const double scale = c.lora.scale;
  const double forward_scale = fault == Fault::kScaleTwice ? scale * scale : scale;
  const double d_scale = fault == Fault::kScaleNotInInputGradient ? 1.0 : scale;
  const auto a = widen(c.a), b = widen(c.b), x = widen(c.x), d_y = widen(c.d_y);
  const auto u = product(x, {I, 1}, a, {1, I}, T, I, R);
  auto d_u = product(d_y, {O, 1}, b, {R, 1}, T, O, R);
  for (double& value : d_u) value *= d_scale;
  auto y_start = c.y;
  if (fault == Fault::kAssign) std::fill(y_start.begin(), y_start.end(), 0.0f);
  const auto& tokens_of_a = fault == Fault::kGradientOfA ? u : d_u;
  const std::vector<std::pair<const std::vector<float>*, std::vector<double>>> pairs = {
      {&got.u, u},
      {&got.y, plus(y_start, product(u, {R, 1}, b, {1, R}, T, R, O), forward_scale)},
      {&got.d_u, d_u},
      {&got.d_b, plus(c.d_b, product(d_y, {1, O}, u, {R, 1}, O, T, R), scale)},
      {&got.d_a, plus(c.d_a, product(tokens_of_a, {1, R}, x, {I, 1}, R, T, I), 1.0)},
      {&got.d_x, plus(c.d_x, product(d_u, {R, 1}, a, {I, 1}, T, R, I), 1.0)}};
  Comparison worst{true, 0.0, -1, ""};
  for (const auto& [values, want] : pairs) {
    const Comparison here = within_share(*values, want);
    if (!here) return here;
    if (here.worst > worst.worst) worst = here;
  }
  return worst;
}

const std::vector<std::int64_t> kPacked = {0, 3, 4, 10, 19};

TEST(Lora, FormulasInDouble) {
  for (const auto& [rank, in, out] : {std::array<std::int64_t, 3>{4, 33, 21},
                                      {16, 70, 65},
                                      {5, 128, 130},
                                      {1, 7, 3},
                                      {32, 16, 48}}) {
    const Case c(kPacked, rank, in, out);
    const Comparison holds = values_hold(c, c.run());
    EXPECT_TRUE(holds) << "rank " << rank << ": " << holds.why;
    const Comparison bits = same_bits_everywhere([&] { return c.run().all(); });
    EXPECT_TRUE(bits) << "rank " << rank << ": " << bits.why;
  }
}

// d_a and d_b of documents run one after the other, adding to the same storage.
Result separately(const Case& c, const std::vector<std::int64_t>& borders) {
  Result r;
  r.d_a = c.d_a;
  r.d_b = c.d_b;
  for (std::size_t d = 0; d + 1 < borders.size(); ++d) {
    const std::int64_t first = borders[d], n = borders[d + 1] - first;
    const auto part = [&](const std::vector<float>& all, std::int64_t width) {
      const auto span = rows(all, width, first, n);
      return std::vector<float>(span.begin(), span.end());
    };
    const auto x = part(c.x, c.lora.in), d_y = part(c.d_y, c.lora.out);
    auto y = part(c.y, c.lora.out), d_x = part(c.d_x, c.lora.in);
    std::vector<float> u(static_cast<std::size_t>(n * c.lora.rank)), d_u(u.size());
    const std::vector<std::int64_t> alone = {0, n};
    engine::ops::lora_forward(c.lora, x, u, y, n);
    engine::ops::lora_backward(c.lora, alone, d_y, x, u, d_u, r.d_a, r.d_b, d_x);
    append(r.u, u);
    append(r.y, y);
    append(r.d_u, d_u);
    append(r.d_x, d_x);
  }
  return r;
}

TEST(Lora, PackedDocumentsHaveTheBitsOfSeparateOnes) {
  const Case c(kPacked, 6, 40, 50);
  const Comparison bits = same_bits(c.run().all(), separately(c, kPacked).all());
  EXPECT_TRUE(bits) << bits.why;
}

// F8 (kernel part): with B = 0 every bit of y stays, -0 included, which adding +0 would lose.
TEST(Lora, F8ZeroBKeepsEveryBit) {
  Case c({0, 5}, 4, 33, 21);
  std::fill(c.b.begin(), c.b.end(), 0.0f);
  c.y[3] = -0.0f;
  c.y[4] = 0x1p-140f;
  const Comparison kept = same_bits(c.run().y, c.y);
  EXPECT_TRUE(kept) << kept.why;
}

TEST(Lora, NoInputGradientWanted) {
  const Case c(kPacked, 4, 33, 21);
  const Result whole = c.run();
  std::vector<float> d_u(whole.u.size()), d_a = c.d_a, d_b = c.d_b;
  engine::ops::lora_backward(c.lora, c.documents, c.d_y, c.x, whole.u, d_u, d_a, d_b, {});
  EXPECT_TRUE(same_bits(d_a, whole.d_a));
  EXPECT_TRUE(same_bits(d_b, whole.d_b));
}

TEST(Lora, PlantedFaults) {
  const Case c(kPacked, 6, 40, 50);
  for (const Fault fault :
       {Fault::kScaleNotInInputGradient, Fault::kScaleTwice, Fault::kAssign, Fault::kGradientOfA}) {
    EXPECT_FALSE(values_hold(c, c.run(), fault));
  }
  // One chain through all tokens is not the sum of the documents' chains.
  EXPECT_FALSE(same_bits(c.run().all(), separately(c, {0, c.tokens}).all()));
}

void adapter(benchmark::State& state) {
  const Case c({0, state.range(0)}, 16, 3584, 3072);
  for (auto _ : state) benchmark::DoNotOptimize(c.run());
  const auto elements = static_cast<double>(16 * (3584 + 3072));
  const auto runs = static_cast<double>(state.iterations());
  // Forward, input gradient and weight gradient: three products with each factor.
  state.counters["flops"] = benchmark::Counter(
      6.0 * elements * static_cast<double>(c.tokens) * runs, benchmark::Counter::kIsRate);
  state.counters["bytes"] = benchmark::Counter(12.0 * elements * runs, benchmark::Counter::kIsRate);
}
BENCHMARK(adapter)->Arg(1)->Arg(32)->ArgName("rows")->UseRealTime();

}  // namespace
}  // namespace checks::ops
