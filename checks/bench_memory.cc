// Usage: bench_memory MODEL TOKENS RAM [LAYER]
// What training holds and reads of a model of any size: one whole step (forward, backward, AdamW) on
// TOKENS random tokens, or forward and backward of one layer alone, from a random residual and bank.
// Adapters, gradients and moments are on disk where the budget cannot hold them, under $TMPDIR. Prints
// peak RSS and swap as part of the budget last; exit 1 if it is more than all of it, or if the adapters'
// gradient is nothing.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <exception>
#include <filesystem>
#include <numeric>
#include <optional>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/rng.h"
#include "engine/cli/waiting.h"
#include "engine/model/model.h"
#include "engine/train/moments.h"

namespace {

namespace base = engine::base;
namespace model = engine::model;
namespace train = engine::train;
using Clock = std::chrono::steady_clock;

std::vector<float> random_values(const std::string& name, std::int64_t count) {
  const base::CounterRng rng(1, name);
  std::vector<float> values(static_cast<std::size_t>(count));
  // Spread one, as the embedding's rows.
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = 3.4641f * (rng.uniform(i) - 0.5f);
  return values;
}

model::Batch random_batch(std::int64_t tokens, std::int64_t vocabulary) {
  const base::CounterRng rng(1, "ids");
  model::Batch batch;
  for (std::int64_t t = 0; t < tokens; ++t) {
    const std::uint64_t below = rng.bits(static_cast<std::uint64_t>(t));
    batch.tokens.push_back(
        static_cast<std::int32_t>((below * static_cast<std::uint64_t>(vocabulary)) >> 32));
  }
  batch.targets.assign(batch.tokens.begin() + 1, batch.tokens.end());
  batch.targets.push_back(-1);
  batch.documents = {0, tokens};
  return batch;
}

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

void say(const char* what, const model::SweepResult& result, Clock::time_point start) {
  const auto& distinct = result.distinct_experts;
  fmt::print("{}: {} distinct experts, {} bytes read, {} saved, {:.0f} s, RSS at most {}\n", what,
             std::accumulate(distinct.begin(), distinct.end(), std::int64_t{0}), result.bytes_read,
             result.bytes_saved, seconds_since(start), base::format_bytes(base::peak_rss_bytes()));
  std::fflush(stdout);
}

class Bench {
 public:
  Bench(const std::string& folder, std::int64_t tokens, std::uint64_t ram)
      : budget_(ram), model_(folder, budget_), batch_(random_batch(tokens, config().vocabulary)) {
    budget_.reserve("program, libraries, tensor index", base::rss_bytes() + (24 << 20));
    fmt::print("opened: {} tensors, RSS {}, reads {}\n", model_.shards().entries().size(),
               base::format_bytes(base::peak_rss_bytes()), model_.shards().how_read());
  }

  double step() {
    model::AdapterSet& adapters = take_adapters();
    train::Moments moments(adapters, budget_);
    Clock::time_point start = Clock::now();
    model::SweepHooks hooks;
    hooks.progress = [&](std::string_view direction, std::int64_t layer) {
      fmt::print("{} {}, {:.0f} s, {} bytes read\n", direction, layer, seconds_since(start),
                 model_.shards().bytes_read());
      std::fflush(stdout);
    };
    const model::SweepResult result = model_.forward_backward(batch_, adapters, hooks);
    fmt::print("loss {}, distinct experts {}\n", result.loss, result.distinct_experts);
    say("sweep", result, start);
    start = Clock::now();
    const train::AdamwSettings settings;
    const train::AdamwNorm norm = train::adamw_norm(moments.tensors(), settings.clip);
    train::AdamwClock clock(settings);
    clock.tick();
    train::adamw_update(moments.tensors(), settings, 1e-4, norm.scale, clock);
    fmt::print("update: {:.0f} s, norm of the gradient {:.6g}\n", seconds_since(start), norm.norm);
    return norm.norm;
  }

  double layer(std::int64_t layer) {
    const std::int64_t wide = batch_.size() * config().hidden,
                       entries = config().bank_before(layer);
    // What is given to the layer is this program's, not the sweep's.
    budget_.reserve("given residual, gradient and bank",
                    static_cast<std::uint64_t>((entries + 2) * wide) * sizeof(float));
    std::vector<std::vector<float>> bank;
    for (std::int64_t entry = 0; entry < entries; ++entry) {
      bank.push_back(random_values(fmt::format("bank {}", entry), wide));
    }
    std::vector<float> h = random_values("h", wide), d_h = random_values("d_h", wide);
    model::AdapterSet& adapters = take_adapters();
    const Clock::time_point start = Clock::now();
    const model::SweepResult result =
        model_.forward_backward_layer(layer, batch_, bank, h, d_h, adapters);
    say("layer, up and down", result, start);
    double sum = 0.0;
    for (const model::AdapterTensor& tensor : adapters.tensors()) {
      if (!tensor.name.starts_with(fmt::format("layers.{}.", layer))) continue;
      for (const float g : tensor.gradient) sum += static_cast<double>(g) * g;
    }
    fmt::print("norm of the layer's gradient {:.6g}\n", std::sqrt(sum));
    return std::sqrt(sum);
  }

  const base::RamBudget& budget() const { return budget_; }

 private:
  const model::Config& config() const { return model_.config(); }

  model::AdapterSet& take_adapters() {
    const model::AdapterSet outline(config(), {});
    const std::int64_t least = model_.plan(batch_.documents, &outline, true).least_bytes();
    const bool on_disk =
        static_cast<std::uint64_t>(least + outline.memory_bytes(false)) > budget_.free_bytes();
    adapters_.emplace(config(), model::AdapterSettings(), budget_,
                      on_disk ? std::filesystem::temp_directory_path() : std::filesystem::path());
    adapters_->initialize(1);
    // B is zero at first, and so would A's gradient be.
    for (const model::AdapterTensor& tensor : adapters_->tensors()) {
      for (std::size_t i = 0; i < tensor.values.size(); i += 7) tensor.values[i] += 0.01f;
      adapters_->put_away(tensor);
    }
    fmt::print("adapters, gradients and moments {}\n{}", on_disk ? "on disk" : "in memory",
               model_.plan(batch_.documents, &*adapters_, true).table());
    std::fflush(stdout);
    return *adapters_;
  }

  base::RamBudget budget_;
  model::Model model_;
  model::Batch batch_;
  std::optional<model::AdapterSet> adapters_;
};

int bench_all(const std::string& folder, std::int64_t tokens, const std::string& ram,
              const std::optional<std::int64_t>& layer) {
  const std::uint64_t bytes = base::parse_bytes(ram);
  // Asked of the configuration alone, before headers are read.
  if (const std::int64_t layers = model::load_config(folder).layers; layer && *layer >= layers) {
    throw base::Error("layer {}: the model has {}, from 0 on", *layer, layers);
  }
  Bench bench(folder, tokens, bytes);
  const double norm = layer ? bench.layer(*layer) : bench.step();
  const auto peak = static_cast<double>(base::peak_rss_bytes() + base::swap_bytes());
  const auto limit = static_cast<double>(bench.budget().limit_bytes());
  fmt::print("peak RSS and swap / budget: {:.0f} MB / {:.0f} MB = {:.3f}\n", peak / 1e6,
             limit / 1e6, peak / limit);
  return peak <= limit && norm > 0.0 && std::isfinite(norm) ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  engine::cli::wait_passively(argv);
  CLI::App app("What training holds and reads: one step, or one layer up and down.");
  std::string model, ram;
  std::int64_t tokens = 0;
  std::optional<std::int64_t> layer;
  app.add_option("model", model, "checkpoint folder")->required();
  app.add_option("tokens", tokens, "random tokens")
      ->required()
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 24));
  app.add_option("ram", ram, "memory budget, as 3GB")->required();
  app.add_option("layer", layer, "this layer alone")->check(CLI::NonNegativeNumber);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  try {
    return bench_all(model, tokens, ram, layer);
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_memory: {}\n", error.what());
    return 1;
  }
}
