#include "engine/cli/probe.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>

#include "engine/base/error.h"
#include "engine/base/rng.h"
#include "engine/base/sha256.h"
#include "engine/store/durable.h"
#include "engine/store/matrix_spool.h"

namespace engine::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kShown = 16;
// No tolerance is stated: which of two known answers a loader is nearer to needs none.
constexpr const char* kStatement =
    "Run `ids` and take the logits y behind the last one at the listed tokens. With s = sum (y - "
    "base)(adapted - base) / sum (adapted - base)^2 over them: s near 1, the adapter is applied; "
    "near 0, it is not; near r, alpha was taken for alpha/r; near alpha/r, the scale was applied "
    "twice. It is applied if y is nearer to `adapted` than to `base`, s > 1/2. A float32 program "
    "that sums in the order of docs/numerics.md has the very bits of `adapted`, and of all logits, "
    "float32 [ids, vocabulary], the SHA-256.";

struct Pass {
  std::vector<float> last;  // logits behind the last token
  std::string sha256;       // of all
};

Pass forward(const OpenModel& open, const model::Batch& batch, const model::AdapterSet* adapters,
             const std::filesystem::path& scratch) {
  store::MatrixSpool matrix(scratch, batch.size(), open.model->config().vocabulary);
  model::SweepHooks hooks;
  hooks.logits = [&](std::int64_t first, std::int64_t count, std::span<const float> band) {
    matrix.write_columns(first, count, band);
  };
  open.model->forward(batch, adapters, hooks);
  Pass pass;
  pass.last.resize(static_cast<std::size_t>(matrix.cols()));
  base::Sha256 hash;
  for (std::int64_t t = 0; t < matrix.rows(); ++t) {
    matrix.read_row(t, pass.last);
    if (!std::ranges::all_of(pass.last, [](float logit) { return std::isfinite(logit); })) {
      throw base::Error(
          "probe: logits behind token {} are not finite: no loader can prove anything", t);
    }
    hash.update_values(std::span<const float>(pass.last));
  }
  pass.sha256 = hash.hex();
  return pass;
}

model::Batch probe_batch(const ProbeSettings& settings, std::int64_t vocabulary) {
  const base::CounterRng rng(settings.seed, "probe ids");
  model::Batch batch;
  for (std::int64_t i = 0; i < settings.tokens; ++i) {
    batch.tokens.push_back(static_cast<std::int32_t>(rng.bits(static_cast<std::uint64_t>(i)) %
                                                     static_cast<std::uint32_t>(vocabulary)));
  }
  batch.targets.assign(batch.tokens.size(), -1);
  batch.documents = {0, batch.size()};
  return batch;
}

// Where the adapter moves the logits most, by falling distance, the lower id first on ties.
std::vector<std::size_t> most_moved(const Pass& base, const Pass& adapted) {
  std::vector<std::size_t> order(base.last.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto moved = [&](std::size_t i) {
    return std::abs(static_cast<double>(adapted.last[i]) - static_cast<double>(base.last[i]));
  };
  const auto shown = static_cast<std::ptrdiff_t>(std::min(kShown, order.size()));
  std::partial_sort(order.begin(), order.begin() + shown, order.end(),
                    [&](std::size_t i, std::size_t j) {
                      return moved(i) != moved(j) ? moved(i) > moved(j) : i < j;
                    });
  order.resize(static_cast<std::size_t>(shown));
  return order;
}

}  // namespace

void write_probe(const std::filesystem::path& folder, const adapter::Exported& exported,
                 const adapter::Base& base, const OpenModel& open, const ProbeSettings& settings,
                 const std::filesystem::path& scratch) {
  const model::Config& config = open.model->config();
  model::AdapterSet adapters(config, {exported.rank, exported.alpha, exported.targets},
                             *open.budget, {}, model::Gradients::kNone);
  std::map<std::string, std::span<float>> matrices;
  for (const model::AdapterTensor& tensor : adapters.tensors()) {
    matrices[tensor.name] = tensor.values;
  }
  adapter::import_values(exported, base.modules,
                         [&](const std::string& name) { return matrices.at(name); });
  const model::Batch batch = probe_batch(settings, config.vocabulary);
  open.model->require_budget(batch.documents, &adapters, false);
  const Pass without = forward(open, batch, nullptr, scratch);
  const Pass with = forward(open, batch, &adapters, scratch);

  Json tokens = Json::array();
  for (const std::size_t id : most_moved(without, with)) {
    const double was = without.last[id], is = with.last[id];
    tokens.push_back({{"id", id}, {"base", was}, {"adapted", is}, {"change", is - was}});
  }
  const Json probe = {{"format", "lazylora probe 1"},
                      {"config_sha256", config.sha256},
                      {"adapter_sha256", base::sha256_hex_of_file(exported.file)},
                      {"rank", exported.rank},
                      {"alpha", exported.alpha},
                      {"seed", settings.seed},
                      {"ids", batch.tokens},
                      {"logits", tokens},
                      {"base_logits_sha256", without.sha256},
                      {"adapted_logits_sha256", with.sha256},
                      {"statement", kStatement}};
  store::write_file_durably(folder / "probe.json", probe.dump(2) + "\n");
}

}  // namespace engine::cli
