#include "checks/engine_run.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "engine/base/rng.h"
#include "engine/model/synthesize.h"

namespace checks {
namespace {

constexpr std::uint64_t kAmple = std::uint64_t{1} << 40;

EngineRun run(Engine& engine, const engine::model::Batch& batch,
              const engine::model::AdapterSet* adapters, engine::model::AdapterSet* trained,
              std::span<const float> logit_weights = {}) {
  EngineRun run;
  const std::int64_t vocabulary = engine.config().vocabulary;
  run.logits.resize(static_cast<std::size_t>(batch.size() * vocabulary));
  engine::model::SweepHooks hooks;
  hooks.trace = &run.trace;
  hooks.logits = [&](std::int64_t first, std::int64_t count, std::span<const float> band) {
    for (std::int64_t t = 0; t < batch.size(); ++t) {
      std::copy_n(band.begin() + t * count, count, run.logits.begin() + t * vocabulary + first);
    }
  };
  if (!logit_weights.empty()) {
    hooks.logit_gradient = [&](std::int64_t first, std::int64_t count, std::span<float> band) {
      for (std::int64_t t = 0; t < batch.size(); ++t) {
        std::copy_n(logit_weights.begin() + t * vocabulary + first, count,
                    band.begin() + t * count);
      }
    };
  }
  run.result = trained != nullptr ? engine.model.forward_backward(batch, *trained, hooks)
                                  : engine.model.forward(batch, adapters, hooks);
  return run;
}

// A folder that goes with the process.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "lazylora-check.XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error(name + ": cannot be made");
    path_ = name;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace

Engine::Engine(const std::filesystem::path& folder)
    : budget(kAmple), model(folder, budget, {std::filesystem::temp_directory_path(), false}) {}

EngineRun run_forward(Engine& engine, const engine::model::Batch& batch,
                      const engine::model::AdapterSet* adapters) {
  return run(engine, batch, adapters, nullptr);
}

EngineRun run_backward(Engine& engine, const engine::model::Batch& batch,
                       engine::model::AdapterSet& adapters, std::span<const float> logit_weights) {
  return run(engine, batch, &adapters, &adapters, logit_weights);
}

engine::model::Batch forward_batch(const std::vector<std::int32_t>& ids) {
  engine::model::Batch batch;
  batch.tokens = ids;
  batch.targets.assign(ids.begin() + 1, ids.end());
  batch.targets.push_back(-1);
  batch.documents = {0, batch.size()};
  return batch;
}

std::unique_ptr<engine::model::AdapterSet> adapter_set(Engine& engine, std::int64_t rank,
                                                       double alpha, const NamedTensors& values) {
  engine::model::AdapterSettings settings;
  settings.rank = rank;
  settings.alpha = alpha;
  auto set = std::make_unique<engine::model::AdapterSet>(engine.config(), settings, engine.budget);
  for (const engine::model::AdapterTensor& tensor : set->tensors()) {
    const NamedTensor& given = at(values, tensor.name);
    if (given.shape != std::vector<std::int64_t>{tensor.rows, tensor.cols}) {
      throw std::runtime_error(fmt::format("{}: {} is [{}], the model's is [{},{}]", values.source,
                                           tensor.name, fmt::join(given.shape, ","), tensor.rows,
                                           tensor.cols));
    }
    std::copy(given.data.begin(), given.data.end(), tensor.values.begin());
  }
  if (values.size() != set->tensors().size()) {
    throw std::runtime_error(fmt::format("{}: holds {} adapter tensors, the model has {}",
                                         values.source, values.size(), set->tensors().size()));
  }
  return set;
}

std::unique_ptr<engine::model::AdapterSet> random_adapter_set(Engine& engine, std::int64_t rank,
                                                              double alpha, std::uint64_t seed) {
  engine::model::AdapterSettings settings;
  settings.rank = rank;
  settings.alpha = alpha;
  auto set = std::make_unique<engine::model::AdapterSet>(engine.config(), settings, engine.budget);
  set->initialize(seed);
  for (const engine::model::AdapterTensor& tensor : set->tensors()) {
    if (tensor.name.back() != 'B') continue;
    const engine::base::CounterRng rng(seed, tensor.name);
    for (std::size_t i = 0; i < tensor.values.size(); ++i) {
      float sum = -2.0f;  // four uniforms have mean 2 and variance 1/3
      for (std::uint64_t j = 0; j < 4; ++j) sum += rng.uniform(4 * i + j);
      tensor.values[i] = 0.02f * 1.7320508f * sum;
    }
  }
  return set;
}

std::vector<std::int32_t> random_ids(std::int64_t count, std::int64_t vocabulary,
                                     std::uint64_t seed) {
  const engine::base::CounterRng rng(seed, "token ids");
  std::vector<std::int32_t> ids;
  for (std::int64_t i = 0; i < count; ++i) {
    ids.push_back(static_cast<std::int32_t>(rng.bits(static_cast<std::uint64_t>(i)) %
                                            static_cast<std::uint32_t>(vocabulary)));
  }
  return ids;
}

const std::filesystem::path& tiny_checkpoint() {
  static const TemporaryFolder folder;
  static const std::filesystem::path model = [] {
    const std::filesystem::path made = folder.path() / "tiny";
    engine::base::RamBudget budget(kAmple);
    engine::model::synthesize(made, engine::model::checkpoint_shape("tiny"), 1, budget);
    return made;
  }();
  return model;
}

void Tally::skip(const std::string& reason) {
  fmt::print("skipped: {}\n", reason);
  ++skipped_;
}

void Tally::absent(const Lookup& lookup) {
  if (!lookup.incomplete) return skip(lookup.why);
  fmt::print("DOES NOT HOLD  {}\n", lookup.why);
  record(false);
}

int Tally::finish() const {
  fmt::print("{} passed, {} failed, {} skipped\n", passed_, failed_, skipped_);
  return failed_ == 0 && passed_ + skipped_ > 0 ? 0 : 1;
}

int Tally::finish(TableRecord& record) const {
  record.finish(passed_, failed_, skipped_);
  return finish();
}

}  // namespace checks
