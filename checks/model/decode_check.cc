// Token by token is the whole pass: bits, whatever the cuts, the budget and the threads; and what is
// read for it.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "checks/compare.h"
#include "checks/engine_run.h"
#include "engine/base/parallel.h"
#include "engine/model/decoder.h"

namespace {

using checks::Engine;
using checks::same_bits;
using engine::base::RamBudget;
using engine::model::AdapterSet;
using engine::model::CarriedState;
using engine::model::Decoder;
using engine::model::Model;
using engine::model::SweepHooks;
using engine::model::SweepResult;

// More than a chunk of the KDA recurrence, so that cuts fall on, before and behind its border.
constexpr std::int64_t kTokens = 67;

std::vector<std::int32_t> ids() { return checks::random_ids(kTokens, 512, 11); }

struct Pass {
  std::vector<float> logits;  // [T,V]
  std::uint64_t bytes_read = 0, bytes_saved = 0;
};

// `before` sees what is carried in front of every sweep but the first.
using Meddle = std::function<void(CarriedState& carried, std::size_t sweep)>;

// Sweeps of these lengths; the last one is repeated as often as it fits.
Pass decode(Decoder& decoder, std::span<const std::int32_t> tokens, std::int64_t vocabulary,
            const std::vector<std::int64_t>& lengths, const Meddle& before = {}) {
  Pass pass;
  std::int64_t done = 0;
  for (std::size_t sweep = 0; done < std::ssize(tokens); ++sweep) {
    const std::int64_t count = std::min({lengths[std::min(sweep, lengths.size() - 1)],
                                         std::ssize(tokens) - done, decoder.most_at_once()});
    if (before && sweep > 0) before(decoder.carried(), sweep);
    const std::size_t at = pass.logits.size();
    pass.logits.resize(at + static_cast<std::size_t>(count * vocabulary));
    SweepHooks hooks;
    hooks.logits = [&](std::int64_t first, std::int64_t rows, std::span<const float> band) {
      for (std::int64_t t = 0; t < count; ++t) {
        std::copy_n(band.begin() + t * rows, rows,
                    pass.logits.begin() + static_cast<std::ptrdiff_t>(at) + t * vocabulary + first);
      }
    };
    const SweepResult result = decoder.run(
        tokens.subspan(static_cast<std::size_t>(done), static_cast<std::size_t>(count)), hooks);
    pass.bytes_read += result.bytes_read;
    pass.bytes_saved += result.bytes_saved;
    done += count;
  }
  return pass;
}

Pass decode(Engine& engine, const AdapterSet* adapters, const std::vector<std::int64_t>& lengths,
            const Meddle& before = {}) {
  const auto decoder = engine.model.decode(adapters, kTokens, kTokens);
  return decode(*decoder, ids(), engine.config().vocabulary, lengths, before);
}

std::vector<float> whole(Engine& engine, const AdapterSet* adapters) {
  return checks::run_forward(engine, checks::forward_batch(ids()), adapters).logits;
}

TEST(Decode, AnyCutsGiveTheBitsOfTheWholePass) {
  Engine engine(checks::tiny_checkpoint());
  const auto adapters = checks::random_adapter_set(engine, 4, 8.0, 3);
  for (const AdapterSet* set : std::initializer_list<const AdapterSet*>{nullptr, adapters.get()}) {
    const std::vector<float> want = whole(engine, set);
    for (const std::vector<std::int64_t>& lengths : std::vector<std::vector<std::int64_t>>{
             {kTokens}, {1}, {64, 1}, {63, 2}, {65, 2}, {5, 1, 2, 30, 3}, {40, 1}}) {
      const auto same = same_bits(decode(engine, set, lengths).logits, want);
      EXPECT_TRUE(same) << fmt::format("first cut at {}, adapters {}: ", lengths[0], set != nullptr)
                        << same.why;
    }
  }
}

// Wrong versions of what is carried, each in one layer alone, in front of the last sweep.
TEST(Decode, PlantedFaults) {
  Engine engine(checks::tiny_checkpoint());
  const std::vector<float> want = whole(engine, nullptr);
  const auto& is_mla = engine.config().is_mla;
  const auto layer_of = [&](bool mla) {
    return static_cast<std::int64_t>(std::ranges::find(is_mla, mla) - is_mla.begin());
  };
  const std::int64_t kda = layer_of(false), mla = layer_of(true);
  std::vector<float> state_before;
  const auto at_last = [](const Meddle& meddle) {
    return [meddle](CarriedState& carried, std::size_t sweep) {
      if (sweep == 2) meddle(carried, sweep);
    };
  };
  const auto clear = [](std::span<float> values) { std::ranges::fill(values, 0.0f); };
  const auto shift = [](std::span<float> rows, std::int64_t width) {
    std::copy_backward(rows.begin(), rows.end() - width, rows.end());
  };
  const std::int64_t rank = engine.config().kv_lora_rank;
  const std::vector<std::pair<const char*, Meddle>> faults = {
      {"nothing", [](CarriedState&, std::size_t) {}},
      {"query tail forgotten",
       at_last([&](CarriedState& c, std::size_t) { clear(c.kda(kda).q_tail); })},
      {"value tail forgotten",
       at_last([&](CarriedState& c, std::size_t) { clear(c.kda(kda).v_tail); })},
      {"key tail a token late", at_last([&](CarriedState& c, std::size_t) {
         shift(c.kda(kda).k_tail, engine.config().kda_inner());
       })},
      {"state forgotten", at_last([&](CarriedState& c, std::size_t) { clear(c.kda(kda).state); })},
      {"state before instead of after",
       [&](CarriedState& c, std::size_t sweep) {
         const std::span<float> state = c.kda(kda).state;
         if (sweep == 1) state_before.assign(state.begin(), state.end());
         if (sweep == 2) std::ranges::copy(state_before, state.begin());
       }},
      {"cache a position late",
       at_last([&](CarriedState& c, std::size_t) { shift(c.mla(mla).latent, rank); })},
      {"latents forgotten",
       at_last([&](CarriedState& c, std::size_t) { clear(c.mla(mla).latent); })},
      {"rope keys forgotten",
       at_last([&](CarriedState& c, std::size_t) { clear(c.mla(mla).rope); })},
  };
  for (const auto& [what, meddle] : faults) {
    const bool same =
        static_cast<bool>(same_bits(decode(engine, nullptr, {40, 26, 1}, meddle).logits, want));
    EXPECT_EQ(same, std::string(what) == "nothing") << what;
  }
  // A position too many: the row between was never written.
  const auto decoder = engine.model.decode(nullptr, kTokens, kTokens + 1);
  const Meddle jump = at_last([](CarriedState& c, std::size_t) { c.advance(1); });
  EXPECT_FALSE(same_bits(
      decode(*decoder, ids(), engine.config().vocabulary, {40, 26, 1}, jump).logits, want));
}

// Model and decoder within a budget, nothing reserved for the process.
struct Budgeted {
  explicit Budgeted(std::uint64_t bytes, std::int64_t prompt)
      : budget(bytes),
        model(checks::tiny_checkpoint(), budget, {std::filesystem::temp_directory_path(), false}),
        decoder(model.decode(nullptr, prompt, kTokens)) {}
  Pass run() { return decode(*decoder, ids(), model.config().vocabulary, {1}); }

  RamBudget budget;
  Model model;
  std::unique_ptr<Decoder> decoder;
};

// To within a page.
std::uint64_t least_bytes(std::int64_t prompt) {
  std::uint64_t refused = 0, granted = std::uint64_t{1} << 26;
  while (granted - refused > 4096) {
    const std::uint64_t middle = (granted + refused) / 2;
    try {
      Budgeted(middle, prompt);
      granted = middle;
    } catch (const engine::base::Error& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr("carried from token to token"));
      EXPECT_THAT(error.what(), testing::HasSubstr(fmt::format("{} tokens", kTokens)));
      refused = middle;
    }
  }
  return granted;
}

TEST(Decode, SameBitsAtEveryBudgetAndNumberOfThreads) {
  Engine engine(checks::tiny_checkpoint());
  const std::vector<float> want = whole(engine, nullptr);
  const int threads_before = engine::base::threads();
  std::vector<Pass> passes;
  engine::base::set_threads(4);  // with a row of scores each
  const std::uint64_t least = least_bytes(1);
  for (const int threads : {1, 4}) {
    engine::base::set_threads(threads);
    for (const std::uint64_t bytes : {least, least + 1'500'000, std::uint64_t{1} << 30}) {
      Budgeted run(bytes, 1);
      passes.push_back(run.run());
      EXPECT_LE(run.budget.peak_bytes(), bytes);
      const auto same = same_bits(passes.back().logits, want);
      EXPECT_TRUE(same) << threads << " threads, " << bytes << " bytes: " << same.why;
    }
  }
  engine::base::set_threads(threads_before);
  // What is wanted follows from the tokens alone; what of it is read, from the budget.
  for (const Pass& pass : passes) {
    EXPECT_EQ(pass.bytes_read + pass.bytes_saved, passes[0].bytes_read + passes[0].bytes_saved);
  }
  // With one slot of each, nothing is found again but a half or an expert twice running.
  EXPECT_LT(passes[0].bytes_saved * 100, passes[0].bytes_read);
  EXPECT_GT(passes[1].bytes_saved, passes[0].bytes_saved);
  EXPECT_GT(passes[2].bytes_saved, passes[1].bytes_saved);
}

// With room for everything, nothing is read twice but the rows of the embedding.
TEST(Decode, AmpleMemoryReadsEveryBlockOnce) {
  Engine engine(checks::tiny_checkpoint());
  const auto decoder = engine.model.decode(nullptr, kTokens, 2 * kTokens);
  const Pass first = decode(*decoder, ids(), 512, {kTokens});
  const Pass again = decode(*decoder, ids(), 512, {1});
  EXPECT_GT(first.bytes_read, again.bytes_read);
  EXPECT_GT(again.bytes_saved, 20 * again.bytes_read);
}

// A prompt longer than the budget has room for goes in pieces.
TEST(Decode, LongPromptsGoInPieces) {
  Engine engine(checks::tiny_checkpoint());
  const std::uint64_t least = least_bytes(kTokens);
  Budgeted run(least, kTokens);
  EXPECT_EQ(run.decoder->most_at_once(), 1);
  Budgeted more(least + 100'000, kTokens);
  EXPECT_GT(more.decoder->most_at_once(), 1);
  EXPECT_LT(more.decoder->most_at_once(), kTokens);
  const Pass pass = decode(*more.decoder, ids(), 512, {kTokens});
  EXPECT_LE(more.budget.peak_bytes(), least + 100'000);
  EXPECT_TRUE(same_bits(pass.logits, whole(engine, nullptr)));
}

}  // namespace
