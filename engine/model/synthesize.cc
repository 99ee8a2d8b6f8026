#include "engine/model/synthesize.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/rng.h"
#include "engine/model/draw.h"
#include "engine/model/recipes.h"
#include "engine/model/vocabulary.h"
#include "engine/store/durable.h"
#include "engine/store/safetensors_writer.h"

namespace engine::model {

namespace {

constexpr std::int64_t kPartBytes = 32 << 20;
static_assert(kPartBytes % static_cast<std::int64_t>(kDrawStep) == 0);

// Fisher-Yates, keyed by the layer.
std::vector<std::int64_t> expert_order(const Config& config, std::int64_t layer,
                                       std::uint64_t seed) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(config.experts));
  std::iota(order.begin(), order.end(), 0);
  const base::CounterRng rng(seed, fmt::format("order of the experts of layer {}", layer));
  for (std::size_t i = order.size(); i > 1; --i) {
    const std::uint64_t below = (std::uint64_t{rng.bits(i)} * i) >> 32;
    std::swap(order[i - 1], order[below]);
  }
  return order;
}

// What may not be torn apart between shards: the run of a layer, an expert, the run of no layer.
std::vector<std::vector<Recipe>> all_runs(const CheckpointShape& shape, std::uint64_t seed) {
  const Config& config = shape.config;
  std::vector<std::vector<Recipe>> runs;
  for (std::int64_t n = 0; n < config.layers; ++n) {
    const std::size_t first = runs.size();
    runs.push_back(layer_recipes(config, n));
    if (!config.is_dense(n)) {
      for (const std::int64_t expert : expert_order(config, n, seed)) {
        runs.push_back(expert_recipes(config, n, expert));
      }
    }
    if (!shape.sparse || std::ranges::count(shape.real_layers, n) > 0) continue;
    for (std::size_t run = first; run < runs.size(); ++run) make_holes(runs[run]);
  }
  runs.push_back(model_recipes(config));
  return runs;
}

std::uint64_t bytes_of(std::span<const Recipe> recipes) {
  std::uint64_t bytes = 0;
  for (const Recipe& recipe : recipes) bytes += recipe.spec.bytes();
  return bytes;
}

// Shards of about the same size, cut between runs.
std::vector<std::vector<Recipe>> shards_of(std::vector<std::vector<Recipe>> runs,
                                           std::int64_t count) {
  std::uint64_t total = 0;
  for (const auto& run : runs) total += bytes_of(run);
  std::vector<std::vector<Recipe>> shards(static_cast<std::size_t>(count));
  std::uint64_t before = 0;
  for (auto& run : runs) {
    std::vector<Recipe>& shard = shards[before * static_cast<std::uint64_t>(count) / total];
    before += bytes_of(run);
    std::move(run.begin(), run.end(), std::back_inserter(shard));
  }
  return shards;
}

std::string shard_name(std::size_t shard, std::size_t shards) {
  return fmt::format("model-{:05}-of-{:05}.safetensors", shard + 1, shards);
}

std::uint64_t write_shard(const std::filesystem::path& path, std::span<const Recipe> recipes,
                          std::uint64_t seed, std::span<std::byte> buffer) {
  std::vector<store::TensorSpec> specs;
  for (const Recipe& recipe : recipes) specs.push_back(recipe.spec);
  store::SafetensorsWriter writer(path, std::move(specs));
  for (const Recipe& recipe : recipes) {
    if (recipe.hole) {
      writer.skip(recipe.spec.name);
      continue;
    }
    const std::uint64_t all = recipe.spec.bytes();
    for (std::uint64_t at = 0; at < all; at += buffer.size()) {
      const auto part = buffer.first(std::min<std::uint64_t>(buffer.size(), all - at));
      draw(recipe, seed, at, part);
      writer.append(part);
    }
  }
  writer.finish();
  return writer.size();
}

std::string index_json(std::span<const std::vector<Recipe>> shards) {
  std::uint64_t total = 0;
  nlohmann::json map = nlohmann::json::object();
  for (std::size_t i = 0; i < shards.size(); ++i) {
    total += bytes_of(shards[i]);
    for (const Recipe& recipe : shards[i]) map[recipe.spec.name] = shard_name(i, shards.size());
  }
  const nlohmann::ordered_json index = {{"metadata", {{"total_size", total}}},
                                        {"weight_map", std::move(map)}};
  return index.dump(2) + '\n';
}

}  // namespace

void synthesize(const std::filesystem::path& out, const CheckpointShape& shape, std::uint64_t seed,
                base::RamBudget& budget, const std::function<void(const WrittenFile&)>& written) {
  store::require_unused(out, store::EmptyFolder::kTaken);
  const auto report = [&](std::string name, std::uint64_t bytes, std::size_t tensors) {
    if (written) written({std::move(name), bytes, static_cast<std::int64_t>(tensors)});
  };
  for (const std::int64_t layer : shape.real_layers) {
    if (layer < 0 || layer >= shape.config.layers) {
      throw base::Error("real layer {}: the shape has layers 0 ... {}", layer,
                        shape.config.layers - 1);
    }
  }
  auto buffer = budget.take<std::byte>("part of a tensor", kPartBytes);
  const auto shards = shards_of(all_runs(shape, seed), shape.shards);

  store::TemporaryFolder folder(out);
  const auto write_text = [&](const std::string& name, const std::string& text) {
    store::write_file_durably(folder.path() / name, text);
    report(name, text.size(), 0);
  };
  write_text("config.json", config_json(shape.config));
  for (std::size_t i = 0; i < shards.size(); ++i) {
    const std::string name = shard_name(i, shards.size());
    report(name, write_shard(folder.path() / name, shards[i], seed, buffer.span()),
           shards[i].size());
  }
  write_text("model.safetensors.index.json", index_json(shards));
  write_text("tiktoken.model", vocabulary_file(shape.config.vocabulary));
  write_text("tokenizer_config.json", tokenizer_config_json(shape.config.vocabulary));
  folder.commit();
}

}  // namespace engine::model
