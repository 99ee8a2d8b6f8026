#include <benchmark/benchmark.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "checks/ops/op_case.h"
#include "engine/ops/cross_entropy.h"

namespace checks::ops {
namespace {

namespace op = engine::ops;

constexpr std::int64_t kBand = op::kVocabBand;

struct Case {
  std::int64_t tokens = 0, vocabulary = 0;
  std::vector<float> logits;  // [T,V]
  std::vector<std::int32_t> targets;

  std::int64_t trained() const {
    return std::count_if(targets.begin(), targets.end(), [](std::int32_t t) { return t >= 0; });
  }
  // Two full bands and a ragged one; logits that rise or fall from band to band, so that the
  // running maximum grows at every border or never; targets at both sides of every border; one
  // masked token.
  static Case random(float slope) {
    Case c{7, 2 * kBand + 300, random_values("logits", 7 * (2 * kBand + 300), 6.0f), {}};
    for (std::int64_t i = 0; i < static_cast<std::int64_t>(c.logits.size()); ++i) {
      c.logits[static_cast<std::size_t>(i)] += slope * static_cast<float>(i % c.vocabulary / kBand);
    }
    for (const std::int64_t target :
         {std::int64_t{0}, kBand - 1, kBand, 2 * kBand - 1, 2 * kBand, c.vocabulary - 1}) {
      c.targets.push_back(static_cast<std::int32_t>(target));
    }
    c.targets.insert(c.targets.begin() + 3, -1);
    return c;
  }
};

struct Result {
  std::vector<float> maximum, target_logit;
  std::vector<double> denominator, nll;
  std::vector<float> d_logits;  // [T,V]
  double loss = 0.0;
};

// The whole op, the head handing over `step` vocabulary rows at a time.
Result run(const Case& c, std::int64_t step, std::int64_t count) {
  const auto tokens = static_cast<std::size_t>(c.tokens);
  Result r{std::vector<float>(tokens), std::vector<float>(tokens), std::vector<double>(tokens),
           std::vector<double>(tokens), std::vector<float>(c.logits.size())};
  const op::LossState state{r.maximum, r.denominator, r.target_logit};
  const auto for_every_step = [&](auto body) {
    for (std::int64_t first = 0; first < c.vocabulary; first += step) {
      const std::int64_t n = std::min(step, c.vocabulary - first);
      std::vector<float> part;
      for (std::int64_t t = 0; t < c.tokens; ++t) {
        append(part, rows(c.logits, 1, t * c.vocabulary + first, n));
      }
      body(first, n, part);
    }
  };
  op::cross_entropy_start(state);
  for_every_step([&](std::int64_t first, std::int64_t, const std::vector<float>& part) {
    op::cross_entropy_band(part, first, c.targets, state);
  });
  op::cross_entropy_finish(c.targets, state, r.nll);
  r.loss = std::accumulate(r.nll.begin(), r.nll.end(), 0.0) / static_cast<double>(count);
  for_every_step([&](std::int64_t first, std::int64_t n, std::vector<float>& part) {
    op::cross_entropy_backward(part, first, c.targets, state, count, part);  // in place
    for (std::int64_t t = 0; t < c.tokens; ++t) {
      std::copy_n(part.begin() + t * n, n, r.d_logits.begin() + t * c.vocabulary + first);
    }
  });
  return r;
}

enum class Fault {
  kNone,
  kShiftedLabel,   // the logits of a token scored with the next token's target
  kInvertedMask,   // trains on what is masked
  kAllTokens,      // divides by all tokens, masked ones too
  kMeanOfMeans,    // two sequences' means averaged
  kNoRescale,      // the sum is kept when the maximum grows
  kBorderDropped,  // the first row of every band is left out
  kBits,           // log2
  kNoOnehot,       // gradient = softmax
  kNotDivided      // gradient of the sum
};

struct Want {
  std::vector<double> nll, d_logits;
  double loss = 0.0;
};

Want formula(const Case& c, Fault fault) {
  Want w{std::vector<double>(c.targets.size(), 0.0), std::vector<double>(c.logits.size(), 0.0)};
  const auto count = static_cast<double>(fault == Fault::kAllTokens      ? c.tokens
                                         : fault == Fault::kInvertedMask ? c.tokens - c.trained()
                                                                         : c.trained());
  for (std::int64_t t = 0; t < c.tokens; ++t) {
    std::int64_t target =
        c.targets[static_cast<std::size_t>(fault == Fault::kShiftedLabel ? (t + 1) % c.tokens : t)];
    if (fault == Fault::kInvertedMask) target = target < 0 ? 0 : -1;
    if (target < 0) continue;
    const float* row = c.logits.data() + t * c.vocabulary;
    const double largest = *std::max_element(row, row + c.vocabulary);
    double sum = 0.0;
    double running = row[0];
    for (std::int64_t v = 0; v < c.vocabulary; ++v) {
      if (fault == Fault::kBorderDropped && v > 0 && v % kBand == 0) continue;
      if (v % kBand == 0) {
        const double band = *std::max_element(row + v, row + std::min(v + kBand, c.vocabulary));
        running = std::max(running, band);
      }
      sum += std::exp(row[v] - (fault == Fault::kNoRescale ? running : largest));
    }
    double nll = std::log(sum) + largest - row[target];
    if (fault == Fault::kBits) nll /= std::log(2.0);
    w.nll[static_cast<std::size_t>(t)] = nll;
    for (std::int64_t v = 0; v < c.vocabulary; ++v) {
      const double onehot = fault != Fault::kNoOnehot && v == target ? 1.0 : 0.0;
      w.d_logits[static_cast<std::size_t>(t * c.vocabulary + v)] =
          (std::exp(row[v] - largest) / sum - onehot) / (fault == Fault::kNotDivided ? 1.0 : count);
    }
  }
  w.loss = std::accumulate(w.nll.begin(), w.nll.end(), 0.0) / count;
  if (fault == Fault::kMeanOfMeans) {  // sequences of one token and of the rest
    const double rest = std::accumulate(w.nll.begin() + 1, w.nll.end(), 0.0);
    w.loss = (w.nll[0] + rest / (count - 1.0)) / 2.0;
  }
  return w;
}

// nll is a double made of float32 exponentials of float32 differences d = maximum - logit. A
// difference is rounded by d 2^-24, which moves log(sum) by the mean of d under the softmax:
// entropy - log(sum), at most log(V). The exponential adds its own 1.1 ULP. All else is in double.
Comparison within_nats(const Case& c, const std::vector<double>& got,
                       const std::vector<double>& want) {
  const double allowed = (std::log(static_cast<double>(c.vocabulary)) / 2 + 1.1) * 0x1p-23;
  return compare(got, want, std::vector<double>(want.size(), allowed));
}
Comparison same_loss(const Case& c, double got, double want) {
  return within_nats(c, std::vector<double>{got}, std::vector<double>{want});
}

TEST(CrossEntropy, Float64Reference) {
  CHECKS_NEED(path, reference_data("grad/ops/cross_entropy.safetensors"));
  const auto tensors = read_safetensors(path);
  for (const char* id : {"normal", "large", "one_target"}) {
    const GradCase in(tensors, id);
    const Case c{in.size("in.logits", 0), in.size("in.logits", 1), in.f32("in.logits"),
                 in.i32("in.targets")};
    const Result r = run(c, c.vocabulary, c.trained());
    expect_holds(compare(std::vector<double>{r.loss}, in.f64("out.loss"),
                         std::vector<double>{kOpShare * in.f64("out.loss").at(0)}),
                 std::string(id) + " loss");
    // Masked rows are zero, and in one_target nearly all are.
    expect_holds(within_share(r.d_logits, in.f64("grad.logits"), Content::kSparse),
                 std::string(id) + " d_logits");
  }
}

TEST(CrossEntropy, FormulaInDouble) {
  for (const float slope : {0.0f, 15.0f, -15.0f}) {
    const Case c = Case::random(slope);
    const Result r = run(c, kBand, c.trained());
    const Want want = formula(c, Fault::kNone);
    expect_holds(within_nats(c, r.nll, want.nll), fmt::format("slope {}", slope) + " nll");
    expect_holds(same_loss(c, r.loss, want.loss), fmt::format("slope {}", slope) + " loss");
    expect_holds(within_share(r.d_logits, want.d_logits, Content::kSparse),
                 fmt::format("slope {}", slope) + " d_logits");
  }
}

// The gradient of a row sums to zero; a probability near one must not lose its small complement.
TEST(CrossEntropy, ConfidentToken) {
  Case c{1, 40, std::vector<float>(40, 0.0f), {5}};
  c.logits[5] = 18.0f;
  const Result r = run(c, kBand, 1);
  const double rest = 39.0 * std::exp(-18.0);
  expect_holds(
      compare(std::vector<double>{r.d_logits[5]}, std::vector<double>{-rest / (1.0 + rest)},
              std::vector<double>{kOpShare * rest}),
      "d_logits");
  expect_holds(
      compare(r.nll, std::vector<double>{std::log1p(rest)}, std::vector<double>{kOpShare * rest}),
      "nll");
}

TEST(CrossEntropy, SameBits) {
  const Case c = Case::random(15.0f);
  const auto everything = [&](const Case& batch, std::int64_t step) {
    const Result r = run(batch, step, c.trained());
    std::vector<float> all = r.maximum;
    append(all, r.target_logit);
    append(all, r.d_logits);
    for (const double value : r.nll) {  // both halves of the double
      all.push_back(static_cast<float>(value));
      all.push_back(static_cast<float>(value - static_cast<double>(all.back())));
    }
    return all;
  };
  expect_holds(same_bits_everywhere([&] { return everything(c, kBand); }),
               "threads and instruction sets");
  // However many bands the head hands over at a time, the sums are taken a band at a time.
  const std::vector<float> all = everything(c, kBand);
  EXPECT_TRUE(same_bits(everything(c, 2 * kBand), all));
  EXPECT_TRUE(same_bits(everything(c, c.vocabulary), all));

  const Result batch = run(c, kBand, c.trained());
  for (std::int64_t t = 0; t < c.tokens; ++t) {
    const auto at = static_cast<std::size_t>(t);
    Case one{1, c.vocabulary, {}, {c.targets[at]}};
    append(one.logits, rows(c.logits, c.vocabulary, t));
    const Result alone = run(one, kBand, c.trained());
    EXPECT_EQ(alone.nll[0], batch.nll[at]);
    const auto d = rows(batch.d_logits, c.vocabulary, t);
    EXPECT_TRUE(std::equal(d.begin(), d.end(), alone.d_logits.begin(), alone.d_logits.end()));
  }
}

TEST(CrossEntropy, NanIsNotHidden) {
  for (const std::size_t place : {0u, 5u}) {
    Case c{1, 40, random_values("logits", 40, 1.0f), {7}};
    c.logits[place] = std::nanf("");
    EXPECT_TRUE(std::isnan(run(c, kBand, 1).loss));
  }
}

TEST(CrossEntropy, PlantedFaults) {
  const Case c = Case::random(15.0f);
  const Result r = run(c, kBand, c.trained());
  EXPECT_TRUE(same_loss(c, r.loss, formula(c, Fault::kNone).loss));
  for (const Fault fault :
       {Fault::kShiftedLabel, Fault::kInvertedMask, Fault::kAllTokens, Fault::kMeanOfMeans,
        Fault::kNoRescale, Fault::kBorderDropped, Fault::kBits}) {
    EXPECT_FALSE(same_loss(c, r.loss, formula(c, fault).loss)) << static_cast<int>(fault);
  }
  EXPECT_TRUE(within_share(r.d_logits, formula(c, Fault::kNone).d_logits, Content::kSparse));
  for (const Fault fault :
       {Fault::kShiftedLabel, Fault::kInvertedMask, Fault::kAllTokens, Fault::kNoRescale,
        Fault::kBorderDropped, Fault::kNoOnehot, Fault::kNotDivided}) {
    EXPECT_FALSE(within_share(r.d_logits, formula(c, fault).d_logits, Content::kSparse))
        << static_cast<int>(fault);
  }
}

void cross_entropy_bench(benchmark::State& state, bool backward) {
  Case c{state.range(0), kBand, random_values("logits", state.range(0) * kBand, 6.0f), {}};
  for (std::int64_t t = 0; t < c.tokens; ++t) c.targets.push_back(static_cast<std::int32_t>(t));
  Result r = run(c, kBand, c.tokens);
  const op::LossState loss{r.maximum, r.denominator, r.target_logit};
  for (auto _ : state) {
    if (backward) {
      op::cross_entropy_backward(c.logits, 0, c.targets, loss, c.tokens, r.d_logits);
    } else {
      op::cross_entropy_band(c.logits, 0, c.targets, loss);
    }
    benchmark::ClobberMemory();
  }
  const auto elements = static_cast<double>(c.logits.size());
  const auto rate = benchmark::Counter::kIsIterationInvariantRate;
  // A comparison, a difference, an exponential and a sum, or the latter's share of the gradient.
  state.counters["bytes"] = {elements * 4 * (backward ? 2 : 1), rate};
  state.counters["operations"] = {elements * (backward ? 5 : 4), rate};
}
BENCHMARK_CAPTURE(cross_entropy_bench, forward, false)->Arg(128)->UseRealTime();
BENCHMARK_CAPTURE(cross_entropy_bench, backward, true)->Arg(128)->UseRealTime();

}  // namespace
}  // namespace checks::ops
