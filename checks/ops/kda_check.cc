#include <benchmark/benchmark.h>
#include <gtest/gtest.h>

#include <boost/multiprecision/cpp_int.hpp>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "checks/ops/kda_case.h"
#include "engine/ops/kda.h"

namespace checks::ops::kda {
namespace {

TEST(Kda, FixturesOfTheCReference) {
  CHECKS_NEED(root, reference_fixtures());
  for (const std::int64_t tokens : {1, 8}) {
    const auto fixture =
        read_fixture_json(root / "ops" / ("kda_recur" + std::to_string(tokens) + ".json"));
    Case c(4, 16, {0, tokens});
    c.in = {at(fixture, "q").f32(),    at(fixture, "k").f32(),
            at(fixture, "v").f32(),    at(fixture, "alpha").f32(),
            at(fixture, "beta").f32(), std::vector<float>(c.in.state.size(), 0.0f)};
    const Result unscaled = run(c);
    const auto scale = static_cast<float>(at(fixture, "q_scale").data[0]);
    for (float& q : c.in.q) q *= scale;
    const Result r = run(c);
    const Comparison o = within_fixture(r.out.o, at(fixture, "out").data);
    const Comparison state = within_fixture(r.out.state, at(fixture, "state_out").data);
    EXPECT_TRUE(o) << tokens << " tokens, o: " << o.why;
    EXPECT_TRUE(state) << tokens << " tokens, state: " << state.why;
    EXPECT_FALSE(within_fixture(unscaled.out.o, at(fixture, "out").data));
  }
}

TEST(Kda, Float64Reference) {
  const std::map<std::string, std::vector<std::string>> files = {
      {"kda_recurrence", {"T1", "T5", "T17", "T64", "T17_state", "packed17"}},
      {"kda_saturated",
       {"T64", "T65", "T96", "T128", "T129", "T129_state", "T129_mixed", "T96_channels"}}};
  for (const auto& [file, ids] : files) {
    CHECKS_NEED(path, reference_data("grad/ops/" + file + ".safetensors"));
    const auto tensors = read_safetensors(path);
    for (const std::string& id : ids) {
      const GradCase in(tensors, id);
      const bool with_state = id.find("_state") != std::string::npos;
      Case c(in.size("in.q", 1), in.size("in.q", 2), {0, in.size("in.q", 0)});
      if (id == "packed17") c.documents = {0, 6, 7, 17};
      c.in.q = in.f32("in.q");
      c.in.k = in.f32("in.k");
      c.in.v = in.f32("in.v");
      c.in.beta = in.f32("in.beta");
      c.in.alpha = in.f32("aux.alpha");  // exp(g) rounded once; kda_gate has a check of its own
      c.d_o = in.f32("up.o");
      c.in.state.assign(c.in.state.size(), 0.0f);
      c.d_state.assign(c.d_state.size(), 0.0f);
      if (with_state) {
        c.in.state = in.f32("in.S0");
        c.d_state = in.f32("up.S_T");
      }
      const Result r = run(c);
      const Comparison value = values_hold(r, {in.f64("out.o"), in.f64("out.S_T")});
      EXPECT_TRUE(value) << file << " " << id << ": " << value.why;
      // A first token has no gradient by its gate: with T1 there is nothing else.
      const Comparison d = gradients_hold(
          r,
          {in.f64("grad.q"), in.f64("grad.k"), in.f64("grad.v"), in.f64("grad.g"),
           in.f64("grad.beta"), with_state ? in.f64("grad.S0") : std::vector<double>{}},
          id == "T1" ? Content::kSparse : Content::kDense);
      EXPECT_TRUE(d) << file << " " << id << ": " << d.why;
    }
  }
}

TEST(Kda, FormulaInDouble) {
  // Widths below, at and between whole groups of lanes; documents with and without a chunk border.
  for (const Case& c : {Case(2, 3, {0, 65, 68}), Case(1, 1, {0, 3}), Case(1, 17, {0, 3, 5}),
                        Case(1, 72, {0, 3}), Case(1, 128, {0, 1})}) {
    const Result r = run(c);
    const Comparison value = values_hold(r, formula(c, Fault::kNone));
    EXPECT_TRUE(value) << c.shape.width << ": " << value.why;
    const Comparison d = gradients_hold(r, gradient(c, Fault::kNone));
    EXPECT_TRUE(d) << c.shape.width << ": " << d.why;
  }
  const Case c(2, 128, {0, 67});  // the released width
  const Comparison value = values_hold(run(c), formula(c, Fault::kNone));
  EXPECT_TRUE(value) << value.why;
}

// Three tokens in numbers so short that float32 is exact: the engine must equal rational
// arithmetic, and S_{t-1} in the delta term is wrong in the first digit.
TEST(Kda, F2) {
  Case c(1, 2, {0, 3});
  c.in.q = {1.0f, -0.5f, 0.5f, 1.0f, 2.0f, 1.0f};
  c.in.k = {1.0f, 0.5f, -0.5f, 1.0f, 1.0f, 1.0f};
  c.in.v = {3.0f, -1.0f, 2.0f, 1.0f, -1.0f, 2.0f};
  c.in.alpha = {0.5f, 0.25f, 0.25f, 0.5f, 0.5f, 0.125f};
  c.in.beta = {0.5f, 0.75f, 0.5f};
  c.in.state = {0.0f, 0.0f, 0.0f, 0.0f};
  using Rational = boost::multiprecision::cpp_rational;
  const auto in_double = [](const std::vector<Rational>& x) {
    std::vector<double> y;
    for (const Rational& value : x) y.push_back(value.convert_to<double>());
    return y;
  };
  const auto exactly = [](double) { return 0.0; };
  const Result r = run(c);
  const auto right = formula<Rational>(c, Fault::kNone);
  const Comparison o = compare(r.out.o, in_double(right.o), exactly);
  const Comparison state = compare(r.out.state, in_double(right.state), exactly);
  EXPECT_TRUE(o) << o.why;
  EXPECT_TRUE(state) << state.why;
  const auto wrong = in_double(formula<Rational>(c, Fault::kUndecayedDelta).o);
  EXPECT_GT(relative_norm_error(widen(r.out.o), wrong), 0.1);
}

// The recurrence with S = Gamma R, Gamma the cumulative decay: the same in exact arithmetic, 0 inf
// in float32 once Gamma underflows. H = 1.
std::vector<float> divided_by_cumulative_decay(const Case& c) {
  const std::int64_t width = c.shape.width;
  std::vector<float> gamma(static_cast<std::size_t>(width), 1.0f);
  std::vector<float> reduced(static_cast<std::size_t>(width * width), 0.0f);
  std::vector<float> o;
  for (std::int64_t at = 0; at < c.tokens * width; at += width) {
    for (std::int64_t i = 0; i < width; ++i) gamma[i] *= c.in.alpha[at + i];
    for (std::int64_t j = 0; j < width; ++j) {
      float error = c.in.v[at + j];
      for (std::int64_t i = 0; i < width; ++i) {
        error -= gamma[i] * reduced[i * width + j] * c.in.k[at + i];
      }
      float sum = 0.0f;
      for (std::int64_t i = 0; i < width; ++i) {
        reduced[i * width + j] += c.in.k[at + i] / gamma[i] * c.in.beta[at / width] * error;
        sum += gamma[i] * reduced[i * width + j] * c.in.q[at + i];
      }
      o.push_back(sum);
    }
  }
  return o;
}

TEST(Kda, F6) {
  const auto decay = static_cast<float>(std::exp(-5.0));
  for (const std::int64_t tokens : {64, 65, 96, 128, 129}) {
    Case c(1, 3, {0, tokens}, decay, decay);
    const Result r = run(c);
    const Comparison d = gradients_hold(r, gradient(c, Fault::kNone));
    EXPECT_TRUE(d) << tokens << " tokens: " << d.why;
    const Comparison value = values_hold(r, formula(c, Fault::kNone));
    EXPECT_TRUE(value) << tokens << " tokens: " << value.why;

    c.in.state.assign(c.in.state.size(), 0.0f);
    const auto want = formula(c, Fault::kNone).o;
    EXPECT_FALSE(within_share(divided_by_cumulative_decay(c), want)) << tokens << " tokens";
    c.in.alpha.assign(c.in.alpha.size(), 1.0f);
    const Comparison open =
        within_share(divided_by_cumulative_decay(c), formula(c, Fault::kNone).o);
    EXPECT_TRUE(open) << "not wrong in itself: " << open.why;
  }
}

TEST(Kda, F10) {
  Case c(2, 20, {0, 70});
  const Result before = run(c);
  const auto shift = [](std::vector<float>& x) {
    for (std::size_t i = x.size() / 70 * 66; i < x.size(); ++i) x[i] *= 0.5f;
  };
  for (auto* part : {&c.in.q, &c.in.k, &c.in.v, &c.in.alpha, &c.in.beta}) shift(*part);
  const Result after = run(c);
  EXPECT_TRUE(same_bits(rows(after.out.o, 40, 0, 66), rows(before.out.o, 40, 0, 66)));
  EXPECT_FALSE(same_bits(rows(after.out.o, 40, 66), rows(before.out.o, 40, 66)));
}

TEST(Kda, SameBits) {
  for (const Case& c : {Case(5, 84, {0, 5, 6, 9}), Case(3, 5, {0, 66, 67, 70})}) {
    const Comparison everywhere = same_bits_everywhere([&] { return flat(run(c)); });
    EXPECT_TRUE(everywhere) << everywhere.why;
    const Comparison in_place = same_bits_everywhere([&] { return flat(run(c, true)); });
    EXPECT_TRUE(in_place) << in_place.why;
    EXPECT_TRUE(same_bits(flat(run(c, true)), flat(run(c))));
  }
}

// Tokens [first, first + count) of c as one document, from zero states.
Case piece_of(const Case& c, std::int64_t first, std::int64_t count) {
  Case piece(c.shape.heads, c.shape.width, {0, count});
  const auto cut = [&](const std::vector<float>& all) {
    const std::int64_t width = static_cast<std::int64_t>(all.size()) / c.tokens;
    const auto part = rows(all, width, first, count);
    return std::vector<float>(part.begin(), part.end());
  };
  piece.in = {cut(c.in.q),     cut(c.in.k),    cut(c.in.v),
              cut(c.in.alpha), cut(c.in.beta), std::vector<float>(c.in.state.size(), 0.0f)};
  piece.d_o = cut(c.d_o);
  piece.d_state.assign(c.d_state.size(), 0.0f);
  return piece;
}

// Everything with a row a token that `piece` made, against the same rows of `whole`.
Comparison same_rows(const Result& piece, const Result& whole, std::int64_t tokens,
                     std::int64_t first, std::int64_t count) {
  using Pair = std::pair<const std::vector<float>*, const std::vector<float>*>;
  for (const auto& [got, all] :
       {Pair{&piece.out.o, &whole.out.o}, Pair{&piece.d.q, &whole.d.q},
        Pair{&piece.d.k, &whole.d.k}, Pair{&piece.d.v, &whole.d.v},
        Pair{&piece.d.alpha, &whole.d.alpha}, Pair{&piece.d.beta, &whole.d.beta}}) {
    const std::int64_t width = static_cast<std::int64_t>(all->size()) / tokens;
    const Comparison c = same_bits(*got, rows(*all, width, first, count));
    if (!c) return c;
  }
  return {true, 0.0, -1, ""};
}

TEST(Kda, PackedIsSeparate) {
  Case c(3, 20, {0, 66, 131, 140});
  c.in.state.assign(c.in.state.size(), 0.0f);
  c.d_state.assign(c.d_state.size(), 0.0f);
  const Result packed = run(c);
  for (std::size_t d = 0; d + 1 < c.documents.size(); ++d) {
    const std::int64_t first = c.documents[d];
    const std::int64_t count = c.documents[d + 1] - first;
    const Comparison same =
        same_rows(run(piece_of(c, first, count)), packed, c.tokens, first, count);
    EXPECT_TRUE(same) << "document " << d << ": " << same.why;
  }
}

// Two pieces with the state handed on, and its gradient handed back, are one piece: at a chunk
// border, before and after it, and where the pieces' chunks begin elsewhere than the whole's.
TEST(Kda, PiecesAreOne) {
  for (const std::int64_t tokens : {64, 65, 129}) {
    const Case c(2, 20, {0, tokens});
    const Result whole = run(c);
    for (const std::int64_t border :
         {std::int64_t{1}, std::int64_t{31}, tokens - 1, tokens / 64 * 64}) {
      if (border == tokens) continue;
      Case second = piece_of(c, border, tokens - border);
      Case first = piece_of(c, 0, border);
      first.in.state = c.in.state;
      second.in.state = run(first).out.state;
      second.d_state = c.d_state;
      const Result after = run(second);
      first.d_state = after.d.state;
      const Result before = run(first);
      const Comparison head = same_rows(before, whole, tokens, 0, border);
      const Comparison tail = same_rows(after, whole, tokens, border, tokens - border);
      EXPECT_TRUE(head) << tokens << " at " << border << ": " << head.why;
      EXPECT_TRUE(tail) << tokens << " at " << border << ": " << tail.why;
      EXPECT_TRUE(same_bits(after.out.state, whole.out.state));
      EXPECT_TRUE(same_bits(before.d.state, whole.d.state));
    }
  }
}

// Without a carried state, as training runs it: as with a state of zero.
TEST(Kda, NoStateIsZeroState) {
  Case c(2, 20, {0, 66, 70});
  c.in.state.assign(c.in.state.size(), 0.0f);
  std::vector<float> o(c.d_o.size());
  op::kda_forward({c.in.q, c.in.k, c.in.v, c.in.alpha, c.in.beta}, c.documents, c.shape, {}, {}, o);
  EXPECT_TRUE(same_bits(o, run(c).out.o));
}

// Each wrong version must be refused where the right one, by the same comparison, is not.
TEST(Kda, PlantedFaults) {
  const Case c(1, 3, {0, 66, 68});
  const Result r = run(c);
  EXPECT_TRUE(values_hold(r, formula(c, Fault::kNone)));
  EXPECT_TRUE(gradients_hold(r, gradient(c, Fault::kNone)));
  for (const Fault fault : {Fault::kUndecayedDelta, Fault::kReadBeforeWrite, Fault::kQueryScaled,
                            Fault::kStateTransposed, Fault::kNoBeta, Fault::kLeak}) {
    EXPECT_FALSE(values_hold(r, formula(c, fault))) << static_cast<int>(fault);
    EXPECT_FALSE(gradients_hold(r, gradient(c, fault))) << static_cast<int>(fault);
  }
  for (const Fault fault : {Fault::kQueryConstant, Fault::kValueConstant, Fault::kGateConstant,
                            Fault::kBetaConstant, Fault::kReadKeyConstant, Fault::kWriteKeyConstant,
                            Fault::kDeltaStateConstant, Fault::kCutAtChunk}) {
    EXPECT_TRUE(values_hold(r, formula(c, fault))) << static_cast<int>(fault);
    EXPECT_FALSE(gradients_hold(r, gradient(c, fault), Content::kSparse))
        << static_cast<int>(fault);
  }
}

void kda_bench(benchmark::State& state, bool backward) {
  const Case c(state.range(1), 128, {0, state.range(0)});
  Result r = run(c);
  const op::KdaInputs in{c.in.q, c.in.k, c.in.v, c.in.alpha, c.in.beta};
  std::vector<float> saved(static_cast<std::size_t>(op::kda_chunks(c.documents)) *
                           c.in.state.size());
  std::vector<float> scratch(
      static_cast<std::size_t>(op::kda_backward_scratch(c.shape, engine::base::threads())));
  op::kda_forward(in, c.documents, c.shape, {}, saved, r.out.o);
  for (auto _ : state) {
    if (backward) {
      op::kda_backward(in, saved, c.documents, c.shape, c.d_o, {}, scratch,
                       {r.d.q, r.d.k, r.d.v, r.d.alpha, r.d.beta});
    } else {
      op::kda_forward(in, c.documents, c.shape, {}, saved, r.out.o);
    }
    benchmark::ClobberMemory();
  }
  const auto rate = benchmark::Counter::kIsIterationInvariantRate;
  const auto rows_read = static_cast<double>(c.d_o.size());
  // Per state element and token, a multiply-add counting two: decay and three sums; backward: decay
  // and two sums again, then seven sums and the decay of the gradient.
  state.counters["bytes"] = {rows_read * 4 * (backward ? 9 : 5), rate};
  state.counters["operations"] = {rows_read * 128 * (backward ? 20 : 7), rate};
}
BENCHMARK_CAPTURE(kda_bench, forward, false)->Args({64, 8});
BENCHMARK_CAPTURE(kda_bench, backward, true)->Args({64, 8});

}  // namespace
}  // namespace checks::ops::kda
