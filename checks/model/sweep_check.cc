// The whole model on make-model's tiny checkpoint: what must not change a bit, what is read, what
// is refused.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "checks/compare.h"
#include "checks/engine_run.h"
#include "engine/base/parallel.h"
#include "engine/model/expert_stream.h"
#include "engine/ops/kernels.h"

namespace {

using checks::Engine;
using checks::EngineRun;
using checks::same_bits;
using engine::model::AdapterSet;
using engine::model::Batch;

constexpr std::int64_t kTokens = 21;

Batch two_documents() {
  Batch batch = checks::forward_batch(checks::random_ids(kTokens, 512, 5));
  batch.documents = {0, 8, kTokens};
  batch.targets[7] = -1;
  return batch;
}

Batch slice(const Batch& batch, std::size_t document) {
  const auto begin = batch.documents[document];
  const auto end = batch.documents[document + 1];
  Batch part;
  part.tokens.assign(batch.tokens.begin() + begin, batch.tokens.begin() + end);
  part.targets.assign(batch.targets.begin() + begin, batch.targets.begin() + end);
  part.documents = {0, end - begin};
  part.loss_tokens = batch.trained();
  return part;
}

std::vector<float> gradients_of(const AdapterSet& adapters) {
  std::vector<float> all;
  for (const auto& tensor : adapters.tensors()) {
    all.insert(all.end(), tensor.gradient.begin(), tensor.gradient.end());
  }
  return all;
}

struct Bits {
  std::vector<float> logits, gradients;
  double loss = 0.0;
};

Bits bits_of(Engine& engine, const Batch& batch) {
  const auto adapters = checks::random_adapter_set(engine, 4, 8.0, 3);
  const EngineRun run = checks::run_backward(engine, batch, *adapters);
  return {run.logits, gradients_of(*adapters), run.result.loss};
}

void expect_same(const Bits& got, const Bits& want, const std::string& what) {
  const auto logits = same_bits(got.logits, want.logits);
  EXPECT_TRUE(logits) << what << ": logits " << logits.why;
  const auto gradients = same_bits(got.gradients, want.gradients);
  EXPECT_TRUE(gradients) << what << ": gradients " << gradients.why;
  EXPECT_EQ(got.loss, want.loss) << what;
}

TEST(Sweep, SameBitsForThreadsAndInstructionSets) {
  Engine engine(checks::tiny_checkpoint());
  const int threads_before = engine::base::threads();
  const std::string set_before = engine::ops::kernels().instruction_set;
  const Bits want = bits_of(engine, two_documents());
  for (const int threads : {1, 2, 3, 7}) {
    engine::base::set_threads(threads);
    expect_same(bits_of(engine, two_documents()), want, fmt::format("{} threads", threads));
  }
  engine::base::set_threads(threads_before);
  for (const std::string& set : engine::ops::instruction_sets()) {
    ASSERT_TRUE(engine::ops::choose_instruction_set(set));
    expect_same(bits_of(engine, two_documents()), want, set);
  }
  ASSERT_TRUE(engine::ops::choose_instruction_set(set_before));
  // A planted fault: another document border is another result.
  Batch moved = two_documents();
  moved.documents[1] = 9;
  const Bits other = bits_of(engine, moved);
  EXPECT_FALSE(same_bits(other.logits, want.logits));
  EXPECT_FALSE(same_bits(other.gradients, want.gradients));
}

// Tokens in any micro-batches (here: documents in sweeps of their own), gradients added up.
TEST(Sweep, CaseF4TokensInSeveralSweeps) {
  Engine engine(checks::tiny_checkpoint());
  const Batch whole = two_documents();
  const Bits want = bits_of(engine, whole);
  const auto adapters = checks::random_adapter_set(engine, 4, 8.0, 3);
  Bits got;
  std::vector<double> nll;
  for (std::size_t d = 0; d < 2; ++d) {
    const EngineRun run = checks::run_backward(engine, slice(whole, d), *adapters);
    got.logits.insert(got.logits.end(), run.logits.begin(), run.logits.end());
    got.loss += run.result.loss;
    nll.insert(nll.end(), run.result.nll.begin(), run.result.nll.end());
  }
  got.gradients = gradients_of(*adapters);
  EXPECT_TRUE(same_bits(got.logits, want.logits));
  EXPECT_TRUE(same_bits(got.gradients, want.gradients));
  // The loss of every token, whoever else is in the sweep; and so of every sequence.
  EXPECT_EQ(nll, checks::run_forward(engine, whole, adapters.get()).result.nll);
  // Two means, each over all trained tokens, rounded once more when added.
  EXPECT_NEAR(got.loss, want.loss, 4 * std::numeric_limits<double>::epsilon() * want.loss);
}

// The walk over the layers in pieces, bank and residual carried between them by hand.
TEST(Sweep, CaseF4LayersOneByOne) {
  Engine engine(checks::tiny_checkpoint());
  const Batch batch = two_documents();
  const EngineRun whole = checks::run_forward(engine, batch, nullptr);
  std::vector<float> h = whole.trace.values.at("embed");
  std::vector<std::vector<float>> bank;
  for (std::int64_t layer = 0; layer < engine.config().layers; ++layer) {
    const std::vector<float> entered = h;
    engine.model.forward_layer(layer, batch, bank, h, nullptr, nullptr);
    if (engine.config().is_boundary(layer)) bank.push_back(entered);
    const auto next = whole.trace.values.find(engine::model::Trace::at("h_in", layer + 1));
    const bool last = next == whole.trace.values.end();
    EXPECT_TRUE(same_bits(h, last ? whole.trace.values.at("h_out") : next->second)) << layer;
  }
}

TEST(Sweep, CaseF8ZeroAdapterIsTheBaseModel) {
  Engine engine(checks::tiny_checkpoint());
  engine::model::AdapterSettings settings;
  AdapterSet adapters(engine.config(), settings, engine.budget);
  adapters.initialize(7);  // A drawn, B zero
  const EngineRun with = checks::run_forward(engine, two_documents(), &adapters);
  const EngineRun without = checks::run_forward(engine, two_documents(), nullptr);
  EXPECT_TRUE(same_bits(with.logits, without.logits));
  // The test must be able to see an adapter: one B that is not zero.
  for (const auto& tensor : adapters.tensors()) {
    if (tensor.name == "layers.3.v.lora_B") tensor.values[0] = 1e-3f;
  }
  EXPECT_FALSE(
      same_bits(checks::run_forward(engine, two_documents(), &adapters).logits, without.logits));
  settings.targets.push_back("g");
  EXPECT_THAT([&] { AdapterSet refused(engine.config(), settings, engine.budget); },
              testing::ThrowsMessage<engine::base::Error>(
                  testing::AllOf(testing::HasSubstr("\"g\""), testing::HasSubstr("dense_gate"))));
}

TEST(Sweep, AdaptersThatAreNotTrainedTakeTheMemoryOfTheirValuesAlone) {
  Engine engine(checks::tiny_checkpoint());
  const auto trained = checks::random_adapter_set(engine, 4, 8.0, 3);
  const std::uint64_t before = engine.budget.used_bytes();
  AdapterSet applied(engine.config(), trained->settings(), engine.budget, {},
                     engine::model::Gradients::kNone);
  EXPECT_EQ(engine.budget.used_bytes() - before,
            sizeof(float) * static_cast<std::uint64_t>(trained->parameters()));
  for (std::size_t i = 0; i < applied.tensors().size(); ++i) {
    std::ranges::copy(trained->tensors()[i].values, applied.tensors()[i].values.begin());
    EXPECT_TRUE(applied.tensors()[i].gradient.empty());
  }
  EXPECT_TRUE(same_bits(checks::run_forward(engine, two_documents(), &applied).logits,
                        checks::run_forward(engine, two_documents(), trained.get()).logits));
}

// An output gate's rows are no adapter's: widths follow the projection that is adapted.
TEST(Sweep, CaseF14WidthMismatchIsRefused) {
  Engine engine(checks::tiny_checkpoint());
  checks::NamedTensors values;
  AdapterSet all(engine.config(), {}, engine.budget);
  for (const auto& tensor : all.tensors()) {
    values[tensor.name] = {{tensor.rows, tensor.cols},
                           std::vector<double>(tensor.values.begin(), tensor.values.end())};
  }
  EXPECT_NO_THROW(checks::adapter_set(engine, 16, 32.0, values));
  values["layers.3.q.lora_B"].shape[0] += engine.config().mla_output();
  EXPECT_ANY_THROW(checks::adapter_set(engine, 16, 32.0, values));
}

TEST(Sweep, CaseF10TheFutureDoesNotReachThePast) {
  Engine engine(checks::tiny_checkpoint());
  Batch batch = checks::forward_batch(checks::random_ids(kTokens, 512, 5));
  const std::vector<float> want = checks::run_forward(engine, batch, nullptr).logits;
  const std::int64_t kept = 13;
  for (std::int64_t t = kept; t < kTokens; ++t) {
    std::int32_t& token = batch.tokens[static_cast<std::size_t>(t)];
    token = (token + 101) % 512;
  }
  const std::vector<float> got = checks::run_forward(engine, batch, nullptr).logits;
  const auto border = static_cast<std::size_t>(kept * 512);
  EXPECT_TRUE(same_bits(std::span(got).first(border), std::span(want).first(border)));
  EXPECT_FALSE(same_bits(std::span(got).subspan(border), std::span(want).subspan(border)));
}

TEST(Sweep, CaseF12LastResidualAndOutputMixHaveTheirOwnNames) {
  Engine engine(checks::tiny_checkpoint());
  const EngineRun run = checks::run_forward(engine, two_documents(), nullptr);
  EXPECT_FALSE(same_bits(run.trace.values.at("h_out"), run.trace.values.at("final_res")));
}

TEST(Sweep, CaseJ8ThreeTimesTheSame) {
  Engine engine(checks::tiny_checkpoint());
  const EngineRun first = checks::run_forward(engine, two_documents(), nullptr);
  for (int again = 0; again < 2; ++again) {
    bits_of(engine, two_documents());  // other work in between
    const EngineRun run = checks::run_forward(engine, two_documents(), nullptr);
    EXPECT_TRUE(same_bits(run.logits, first.logits));
    EXPECT_EQ(run.trace.route_index, first.trace.route_index);
  }
}

TEST(Sweep, CaseG14UnroutedExpertsGiveAZeroGradientAndNothingElse) {
  Engine engine(checks::tiny_checkpoint());
  Batch batch = two_documents();
  std::fill(batch.targets.begin(), batch.targets.end(), -1);
  const auto adapters = checks::random_adapter_set(engine, 4, 8.0, 3);
  const EngineRun run = checks::run_backward(engine, batch, *adapters);
  EXPECT_EQ(run.result.trained, 0);
  EXPECT_TRUE(std::isnan(run.result.loss));
  EXPECT_EQ(run.result.bytes_read, 0u);
  const std::vector<float> gradients = gradients_of(*adapters);
  EXPECT_TRUE(std::all_of(gradients.begin(), gradients.end(), [](float g) { return g == 0.0f; }));
}

// One layer alone, given what the whole sweep had there, bit for bit.
TEST(Sweep, OneLayerUpAndDownIsThatOfTheWholeSweep) {
  Engine engine(checks::tiny_checkpoint());
  const Batch batch = two_documents();
  const auto adapters = checks::random_adapter_set(engine, 4, 8.0, 3);
  EngineRun whole = checks::run_backward(engine, batch, *adapters);
  using engine::model::Trace;
  for (const std::int64_t layer : {5, 7}) {  // KDA, MLA; entries of layers 0 and 4 are in the bank
    std::vector<std::vector<float>> bank = {whole.trace.values[Trace::at("h_in", 0)],
                                            whole.trace.values[Trace::at("h_in", 4)]};
    std::vector<float> h = whole.trace.values[Trace::at("h_in", layer)];
    std::vector<float> d_h = whole.trace.gradients[Trace::at("h_in", layer + 1)];
    const auto alone = checks::random_adapter_set(engine, 4, 8.0, 3);
    engine.model.forward_backward_layer(layer, batch, bank, h, d_h, *alone);
    EXPECT_TRUE(same_bits(h, whole.trace.values[Trace::at("h_in", layer + 1)]));
    EXPECT_TRUE(same_bits(d_h, whole.trace.gradients[Trace::at("h_in", layer)]));
    std::size_t compared = 0;
    for (std::size_t i = 0; i < alone->tensors().size(); ++i) {
      const auto& tensor = alone->tensors()[i];
      if (!tensor.name.starts_with(fmt::format("layers.{}.", layer))) continue;
      EXPECT_TRUE(same_bits(tensor.gradient, adapters->tensors()[i].gradient)) << tensor.name;
      ++compared;
    }
    EXPECT_EQ(compared, 16u);
    // Planted: a bank without its second entry.
    bank[1].assign(bank[1].size(), 0.0f);
    h = whole.trace.values[Trace::at("h_in", layer)];
    d_h = whole.trace.gradients[Trace::at("h_in", layer + 1)];
    engine.model.forward_backward_layer(layer, batch, bank, h, d_h, *alone);
    EXPECT_FALSE(same_bits(d_h, whole.trace.gradients[Trace::at("h_in", layer)]));
  }
}

std::uint64_t tensor_bytes(const Engine& engine, bool (*wanted)(const std::string&)) {
  std::uint64_t bytes = 0;
  for (const auto& entry : engine.model.shards().entries()) {
    if (wanted(std::string(entry.name))) bytes += entry.bytes;
  }
  return bytes;
}

// Distinct experts times their bytes, everything else once, embedding rows for distinct tokens; the
// backward sweep reads layers, head and output mix once more and no embedding.
TEST(Sweep, ReadsWhatTheIdentitySays) {
  Engine engine(checks::tiny_checkpoint());
  const auto& config = engine.config();
  const Batch batch = two_documents();
  const std::uint64_t trunk = tensor_bytes(engine, [](const std::string& name) {
    return name.find(".experts.") == std::string::npos &&
           name.find("embed_tokens") == std::string::npos;
  });
  const std::set<std::int32_t> tokens(batch.tokens.begin(), batch.tokens.end());
  const std::uint64_t embedding = tokens.size() * static_cast<std::uint64_t>(config.hidden) * 2;
  const EngineRun run = checks::run_forward(engine, batch, nullptr);
  std::uint64_t experts = 0;
  for (const std::int64_t distinct : run.result.distinct_experts) {
    experts += static_cast<std::uint64_t>(distinct * engine::model::ExpertStream::bytes(config));
  }
  EXPECT_GT(experts, 0u);
  EXPECT_EQ(run.result.bytes_read, trunk + experts + embedding);
  const auto adapters = checks::random_adapter_set(engine, 4, 8.0, 3);
  const EngineRun both = checks::run_backward(engine, batch, *adapters);
  std::uint64_t again = 0;
  for (const std::int64_t distinct : both.result.distinct_experts) {
    again += static_cast<std::uint64_t>(distinct * engine::model::ExpertStream::bytes(config));
  }
  // Gate and up of a dense MLP are not in memory together: the way down asks for them twice.
  const std::uint64_t dense_again = tensor_bytes(engine, [](const std::string& name) {
    return name.find(".mlp.gate_proj") != std::string::npos ||
           name.find(".mlp.up_proj") != std::string::npos;
  });
  EXPECT_EQ(both.result.bytes_read + both.result.bytes_saved,
            2 * (trunk + again) + dense_again + embedding);
  // With memory for everything the way down reads nothing.
  EXPECT_EQ(both.result.bytes_read, trunk + again + embedding);
}

TEST(Sweep, BudgetIsPlannedExactlyAndRefusedBeforeWork) {
  const Batch batch = two_documents();
  engine::base::RamBudget ample(std::uint64_t{1} << 40);
  engine::model::Model model(checks::tiny_checkpoint(), ample);
  AdapterSet adapters(model.config(), {}, ample);
  const std::uint64_t held = ample.used_bytes();
  const engine::model::Plan plan = model.plan(batch.documents, &adapters, true);
  model.forward_backward(batch, adapters);
  EXPECT_EQ(ample.used_bytes(), held);
  EXPECT_EQ(ample.peak_bytes(), held + static_cast<std::uint64_t>(plan.total_bytes()));

  const auto least = static_cast<std::uint64_t>(plan.least_bytes());
  for (const bool fits : {true, false}) {
    engine::base::RamBudget tight(held + least - (fits ? 0 : 1));
    engine::model::Model small(checks::tiny_checkpoint(), tight);
    AdapterSet own(small.config(), {}, tight);
    if (fits) {
      EXPECT_NO_THROW(small.forward_backward(batch, own));
      EXPECT_EQ(tight.peak_bytes(), held + least);
      continue;
    }
    const std::uint64_t read = small.shards().bytes_read();
    EXPECT_THAT([&] { small.forward_backward(batch, own); },
                testing::ThrowsMessage<engine::base::Error>(
                    testing::AllOf(testing::HasSubstr("weights of half a layer"),
                                   testing::HasSubstr("activations of half a layer"))));
    EXPECT_EQ(small.shards().bytes_read(), read);
  }
}

// A forward sweep has no gradient: what it is planned to take is less, and that is what it takes.
TEST(Sweep, AForwardSweepIsPlannedWithoutGradients) {
  const Batch batch = two_documents();
  engine::base::RamBudget ample(std::uint64_t{1} << 40);
  engine::model::Model model(checks::tiny_checkpoint(), ample);
  const std::uint64_t held = ample.used_bytes();
  const engine::model::Plan plan = model.plan(batch.documents, nullptr, false);
  model.forward(batch, nullptr);
  EXPECT_EQ(ample.used_bytes(), held);
  EXPECT_EQ(ample.peak_bytes(), held + static_cast<std::uint64_t>(plan.total_bytes()));
  const engine::model::Plan both = model.plan(batch.documents, nullptr, true);
  EXPECT_LT(plan.residual_bytes, both.residual_bytes);
  EXPECT_LT(plan.bank_bytes, both.bank_bytes);

  const auto least = static_cast<std::uint64_t>(plan.least_bytes());
  engine::base::RamBudget enough(held + least), less(held + least - 1);
  engine::model::Model fits(checks::tiny_checkpoint(), enough);
  EXPECT_NO_THROW(fits.forward(batch, nullptr));
  EXPECT_EQ(enough.peak_bytes(), held + least);
  engine::model::Model lacks(checks::tiny_checkpoint(), less);
  EXPECT_THROW(lacks.forward(batch, nullptr), engine::base::Error);
}

TEST(Sweep, ATokenOutsideTheVocabularyIsNamed) {
  Engine engine(checks::tiny_checkpoint());
  Batch batch = two_documents();
  batch.tokens[4] = 512;
  EXPECT_THAT([&] { engine.model.forward(batch, nullptr); },
              testing::ThrowsMessage<engine::base::Error>(
                  testing::AllOf(testing::HasSubstr("512"), testing::HasSubstr("position 4"))));
}

}  // namespace
