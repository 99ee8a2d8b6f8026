// Losses of texts: which ids are scored, by which bytes they are divided, and from which logits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

#include "checks/compare.h"
#include "checks/engine_run.h"
#include "engine/base/error.h"
#include "engine/measure/eval_results.h"
#include "oracle/checkpoint.h"
#include "oracle/rmsnorm.h"

namespace {

namespace measure = engine::measure;
using checks::Engine;
using measure::Bos;
using measure::ChunkSettings;
using measure::EvalTask;
using measure::EvalUnit;
using testing::HasSubstr;

// Ids below 100 have one byte, others three.
std::int64_t bytes_of(std::int32_t id) { return id < 100 ? 1 : 3; }

EvalTask text_task(const std::vector<std::int32_t>& ids, const ChunkSettings& settings) {
  EvalTask task;
  task.name = "text:a.txt";
  task.kind = "text";
  task.sha256 = std::string(64, 'a');
  task.units = measure::chunk_units(ids, settings, bytes_of, "a.txt");
  task.has_bytes = true;
  task.words = 5;
  return task;
}

std::vector<std::int32_t> scored(const std::vector<EvalUnit>& units) {
  std::vector<std::int32_t> all;
  for (const EvalUnit& unit : units) {
    for (const std::int32_t target : unit.targets) {
      if (target >= 0) all.push_back(target);
    }
  }
  return all;
}

TEST(EvalUnits, OnPaper) {
  const std::vector<std::int32_t> ids{10, 11, 12, 13, 14, 15};
  const auto plain = measure::chunk_units(ids, {3, 3, Bos::kNone}, bytes_of, "t");
  ASSERT_EQ(plain.size(), 2u);
  EXPECT_EQ(plain[0].tokens, (std::vector<std::int32_t>{10, 11, 12}));
  EXPECT_EQ(plain[0].targets, (std::vector<std::int32_t>{11, 12, 13}));
  EXPECT_EQ(plain[1].tokens, (std::vector<std::int32_t>{13, 14}));
  EXPECT_EQ(plain[1].targets, (std::vector<std::int32_t>{14, 15}));
  const auto overlapping = measure::chunk_units(ids, {4, 2, Bos::kFirst, 7}, bytes_of, "t");
  ASSERT_EQ(overlapping.size(), 2u);
  EXPECT_EQ(overlapping[0].tokens, (std::vector<std::int32_t>{7, 10, 11, 12}));
  EXPECT_EQ(overlapping[0].targets, (std::vector<std::int32_t>{10, 11, 12, 13}));
  EXPECT_EQ(overlapping[1].tokens, (std::vector<std::int32_t>{11, 12, 13, 14}));
  EXPECT_EQ(overlapping[1].targets, (std::vector<std::int32_t>{-1, -1, 14, 15}));
  const auto each = measure::chunk_units(ids, {3, 3, Bos::kEach, 7}, bytes_of, "t");
  EXPECT_EQ(each[1].tokens, (std::vector<std::int32_t>{7, 13, 14}));
  EXPECT_EQ(each[1].targets, (std::vector<std::int32_t>{13, 14, 15}));
}

// Whatever chunk, stride and begin-of-text id: every id once, and the bytes are those of these ids.
TEST(EvalUnits, EveryIdIsScoredOnce) {
  const std::vector<std::int32_t> ids = checks::random_ids(61, 200, 3);
  for (const Bos bos : {Bos::kNone, Bos::kFirst, Bos::kEach}) {
    for (std::int64_t chunk = 1; chunk < 70; chunk += 6) {
      for (std::int64_t stride = 1; stride <= chunk; stride += 5) {
        const auto units = measure::chunk_units(ids, {chunk, stride, bos, 0}, bytes_of, "t");
        const std::vector<std::int32_t> want(ids.begin() + (bos == Bos::kNone ? 1 : 0), ids.end());
        ASSERT_EQ(scored(units), want) << chunk << " " << stride;
        std::int64_t bytes = 0, should = 0;
        for (const EvalUnit& unit : units) {
          bytes += unit.bytes;
          EXPECT_LE(static_cast<std::int64_t>(unit.tokens.size()), chunk);
        }
        for (const std::int32_t id : want) should += bytes_of(id);
        ASSERT_EQ(bytes, should);
      }
    }
  }
  EXPECT_THROW(measure::chunk_units(std::vector<std::int32_t>{1}, {}, bytes_of, "t"),
               engine::base::Error);
}

// The loss is of the logits behind the output mix and the final norm; from the last layer's own
// residual it is another. Logits in double from the engine's final norm differ from the engine's by
// at most (H + 1) 2^-24 sum |x w| each, a loss by twice the largest of them.
TEST(Evaluate, F12_LogitsAreThoseBehindTheOutputMix) {
  Engine engine(checks::tiny_checkpoint());
  const std::vector<std::int32_t> ids = checks::random_ids(20, 512, 4);
  const EvalTask task = text_task(ids, {});
  const auto scores = measure::score_units(engine.model, engine.budget, nullptr, task);
  const auto run = checks::run_forward(engine, measure::batch_of(task.units), nullptr);
  const oracle::Checkpoint checkpoint(checks::tiny_checkpoint());
  const auto& c = checkpoint.config();
  const auto head = checkpoint.tensor("language_model.lm_head.weight", {c.vocab, c.hidden});
  const auto norm = checkpoint.tensor("language_model.model.norm.weight", {c.hidden});

  double allowed = 0.0;
  std::int64_t correct = 0;
  const auto loss_from = [&](std::span<const double> rows) {
    double sum = 0.0;
    correct = 0;
    for (std::size_t t = 0; t < task.units[0].targets.size(); ++t) {
      std::vector<double> logits(static_cast<std::size_t>(c.vocab));
      double widest = 0.0;
      for (std::int64_t v = 0; v < c.vocab; ++v) {
        double magnitude = 0.0;
        for (std::int64_t h = 0; h < c.hidden; ++h) {
          const double term = rows[t * c.hidden + h] * (*head)[v * c.hidden + h];
          logits[v] += term;
          magnitude += std::abs(term);
        }
        widest = std::max(widest, magnitude);
      }
      allowed += 2.0 * static_cast<double>(c.hidden + 1) * 0x1p-24 * widest;
      const auto most = std::ranges::max_element(logits);
      double total = 0.0;
      for (const double logit : logits) total += std::exp(logit - *most);
      const std::int32_t target = task.units[0].targets[t];
      sum += *most + std::log(total) - logits[static_cast<std::size_t>(target)];
      correct += most - logits.begin() == target ? 1 : 0;
    }
    return sum;
  };
  const double mixed = loss_from(checks::widen(run.trace.values.at("final_norm")));
  const std::vector<double> want{mixed}, got{scores[0].nll}, within{allowed};
  EXPECT_TRUE(checks::compare(got, want, within).holds) << got[0] << " " << want[0];
  EXPECT_EQ(scores[0].correct, correct);
  // Planted: the residual behind the last layer instead.
  const std::vector<double> last = checks::widen(run.trace.values.at("h_out"));
  const std::vector<double> unmixed{loss_from(oracle::rmsnorm<double>(last, *norm, c.eps))};
  EXPECT_FALSE(checks::compare(got, unmixed, within).holds);
}

// Neither sweeps nor threads nor what else is scored changes a bit; an adapter with B = 0 neither.
TEST(Evaluate, SameBitsHoweverItIsSwept) {
  Engine engine(checks::tiny_checkpoint());
  const EvalTask task = text_task(checks::random_ids(50, 512, 5), {12, 8, Bos::kEach, 0});
  const auto nlls = [&](const engine::model::AdapterSet* adapters, std::int64_t batch) {
    std::vector<double> all;
    for (const auto& s :
         measure::score_units(engine.model, engine.budget, adapters, task, {batch})) {
      all.push_back(s.nll);
    }
    return all;
  };
  const std::vector<double> together = nlls(nullptr, 4096);
  EXPECT_EQ(nlls(nullptr, 1), together);
  EXPECT_EQ(nlls(nullptr, 25), together);
  engine::model::AdapterSet zero(engine.config(), {4, 8.0}, engine.budget);
  zero.initialize(1);
  EXPECT_EQ(nlls(&zero, 25), together);
  EXPECT_NE(nlls(checks::random_adapter_set(engine, 4, 8.0, 2).get(), 25), together);
}

// What an auditor does: bytes a token from loss and bits per byte, against the tokens and bytes that
// are printed. LazyLoRA's published pairs give 2.7998, 2.7509 and 4.7371 bytes a token for one text.
TEST(Evaluate, I8_TheNumbersClose) {
  Engine engine(checks::tiny_checkpoint());
  const std::vector<std::int32_t> ids = checks::random_ids(90, 512, 6);
  measure::Evaluation evaluation;
  const EvalTask task = text_task(ids, {16, 8, Bos::kNone});
  const auto adapters = checks::random_adapter_set(engine, 4, 8.0, 2);
  evaluation.tasks.push_back(measure::make_result(
      task, measure::score_pair(engine.model, engine.budget, *adapters, task), 1));
  evaluation.experts = engine.config().experts;
  evaluation.chosen = engine.config().chosen;
  const auto json = nlohmann::json::parse(measure::evaluation_json(evaluation));
  const auto& results = json["results"]["text:a.txt"];
  const auto& facts = json["lazylora"]["tasks"]["text:a.txt"];
  const double tokens = facts["tokens"], bytes = facts["bytes"];
  for (const std::string filter : {",none", ",base"}) {
    const double loss = results["loss" + filter], bits = results["bits_per_byte" + filter];
    EXPECT_NEAR(loss / (bits * std::log(2.0)), bytes / tokens, 1e-6);  // the case's own figure
    EXPECT_NEAR(results["perplexity" + filter], std::exp(loss), 1e-9 * std::exp(loss));
    // Planted: the bytes of the whole text, of which the first id was not scored.
    const double whole = bytes + static_cast<double>(bytes_of(ids[0]));
    EXPECT_GT(std::abs(loss / (bits * std::log(2.0)) - whole / tokens), 1e-6);
  }
  // The lines of the units say the same once more.
  double nll = 0.0;
  std::istringstream lines(measure::unit_lines(evaluation));
  for (std::string line; std::getline(lines, line);) {
    nll += nlohmann::json::parse(line)["nll"].get<double>();
  }
  EXPECT_EQ(nll / tokens, results["loss,none"]);
}

TEST(LayerNorms, AreThoseOfTheChange) {
  Engine engine(checks::tiny_checkpoint());
  const auto set = checks::random_adapter_set(engine, 3, 6.0, 8);
  set->tensors()[0].gradient[0] = 3.0f;
  set->tensors()[0].gradient[1] = -4.0f;
  const auto norms = measure::layer_norms(*set, engine.config().layers);
  ASSERT_EQ(static_cast<std::int64_t>(norms.size()), engine.config().layers);
  double gradients = 0.0;
  for (const measure::LayerNorms& layer : norms) {
    double squares = 0.0;
    for (std::size_t t = 0; t < engine::model::kTargetNames.size(); ++t) {
      const auto* pair = set->find(layer.layer, static_cast<engine::model::Target>(t));
      if (pair == nullptr) continue;
      const auto& [a, b, rank, in, out, scale] = pair->lora;
      for (std::int64_t o = 0; o < out; ++o) {
        for (std::int64_t i = 0; i < in; ++i) {
          double change = 0.0;
          for (std::int64_t r = 0; r < rank; ++r) {
            change += static_cast<double>(b[o * rank + r]) * a[r * in + i];
          }
          squares += scale * scale * change * change;
        }
      }
    }
    EXPECT_NEAR(layer.change, std::sqrt(squares), 1e-12 * std::sqrt(squares)) << layer.layer;
    gradients += layer.gradient;
  }
  EXPECT_EQ(gradients, 5.0);
}

TEST(Evaluate, PlantedFaults) {
  const std::vector<std::int32_t> ids = checks::random_ids(40, 512, 7);
  const auto units = measure::chunk_units(ids, {8, 4, Bos::kNone}, bytes_of, "t");
  const std::vector<std::int32_t> want(ids.begin() + 1, ids.end());
  // What a chunk has seen before is scored again.
  std::vector<std::int32_t> twice;
  for (const EvalUnit& unit : units) {
    for (std::size_t t = 0; t < unit.tokens.size(); ++t) {
      twice.push_back(t + 1 < unit.tokens.size() ? unit.tokens[t + 1] : unit.targets[t]);
    }
  }
  EXPECT_NE(twice, want);
  // Ids between two chunks are lost.
  const auto apart = measure::chunk_units(ids, {8, 8, Bos::kNone}, bytes_of, "t");
  std::vector<EvalUnit> lost(apart.begin() + 1, apart.end());
  EXPECT_NE(scored(lost), want);
  // A loss of a model that has NaN is not averaged away: the sum itself is asked.
  measure::UnitScore broken{std::nan(""), 3, 0};
  EvalTask task = text_task(ids, {64, 64});
  EXPECT_FALSE(std::isfinite(measure::sum_of(task, std::span(&broken, 1)).loss()));
}

}  // namespace
