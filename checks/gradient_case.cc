#include "checks/gradient_case.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "checks/compare.h"
#include "checks/engine_run.h"
#include "checks/json_file.h"

namespace checks {
namespace {

using engine::model::AdapterSet;
using engine::model::Batch;

double norm_of(const std::vector<double>& values) {
  double sum = 0.0;
  for (const double v : values) sum += v * v;
  return std::sqrt(sum);
}

GradientRow row_of(const std::string& name, const std::vector<double>& got,
                   const std::vector<double>& want) {
  GradientRow row;
  row.name = name;
  row.norm = norm_of(want);
  row.error = relative_norm_error(got, want);
  row.allowed = kGradientGate;
  row.outcome = GradientRow::judge(row.error, row.allowed);
  return row;
}

GradientRow exact_row(const std::string& name, bool holds) {
  GradientRow row;
  row.name = name;
  row.error = holds ? 0.0 : 1.0;
  row.outcome = GradientRow::judge(row.error, 0.0);
  return row;
}

Batch batch_of(const NamedTensors& file, std::int64_t vocabulary) {
  Batch batch;
  batch.tokens = at(file, "input_ids").i32();
  batch.targets = at(file, "targets").i32();
  const std::vector<std::int32_t> document = at(file, "doc_ids").i32();
  if (batch.tokens.empty() || batch.targets.size() != batch.tokens.size() ||
      document.size() != batch.tokens.size()) {
    throw std::runtime_error(fmt::format("{}: {} input_ids, {} targets, {} doc_ids", file.source,
                                         batch.tokens.size(), batch.targets.size(),
                                         document.size()));
  }
  for (const auto* ids : {&batch.tokens, &batch.targets}) {
    const std::int32_t least = ids == &batch.tokens ? 0 : -1;
    for (const std::int32_t id : *ids) {
      if (id >= least && id < vocabulary) continue;
      throw std::runtime_error(
          fmt::format("{}: id {}, the model has {}", file.source, id, vocabulary));
    }
  }
  for (std::size_t t = 0; t < document.size(); ++t) {
    if (t == 0 || document[t] != document[t - 1]) {
      batch.documents.push_back(static_cast<std::int64_t>(t));
    }
  }
  batch.documents.push_back(batch.size());
  return batch;
}

Batch document_of(const Batch& batch, std::size_t d) {
  const std::int64_t begin = batch.documents[d];
  const std::int64_t end = batch.documents[d + 1];
  Batch alone;
  alone.tokens.assign(batch.tokens.begin() + begin, batch.tokens.begin() + end);
  alone.targets.assign(batch.targets.begin() + begin, batch.targets.begin() + end);
  alone.documents = {0, end - begin};
  alone.loss_tokens = batch.trained();
  return alone;
}

std::vector<float> all_gradients(const AdapterSet& adapters) {
  std::vector<float> all;
  for (const auto& tensor : adapters.tensors()) {
    all.insert(all.end(), tensor.gradient.begin(), tensor.gradient.end());
  }
  return all;
}

// The documents of a packed sequence, each in a sweep of its own: logits and summed gradients must
// have the bits of the packed run.
void add_isolation_rows(Engine& engine, const Batch& batch, AdapterSet& adapters,
                        const EngineRun& packed, GradientTable& table) {
  const std::vector<float> want = all_gradients(adapters);
  adapters.clear_gradients();
  std::vector<float> logits;
  for (std::size_t d = 0; d + 1 < batch.documents.size(); ++d) {
    const Batch alone = document_of(batch, d);
    const EngineRun run = alone.trained() > 0 ? run_backward(engine, alone, adapters)
                                              : run_forward(engine, alone, &adapters);
    logits.insert(logits.end(), run.logits.begin(), run.logits.end());
  }
  table.rows.push_back(
      exact_row("documents apart: same logits, bitwise", bool(same_bits(logits, packed.logits))));
  table.rows.push_back(exact_row("documents apart: same gradients, bitwise",
                                 bool(same_bits(all_gradients(adapters), want))));
}

void add_stream_rows(const EngineRun& run, const NamedTensors& stream, GradientTable& table) {
  for (const auto& [key, want] : stream) {
    const bool is_value = key.starts_with("value.");
    const std::string point = key.substr(key.find('.') + 1);
    if (point == "logits") {
      if (is_value) table.rows.push_back(row_of(key, widen(run.logits), want.data));
    } else if (point == "nll") {
      if (is_value) table.rows.push_back(row_of(key, run.result.nll, want.data));
    } else {
      const auto& kept = is_value ? run.trace.values : run.trace.gradients;
      const auto found = kept.find(point);
      // The last layer's output and the trunk's own points have no second name; what the engine
      // does not keep is a gap in the check and fails.
      table.rows.push_back(found == kept.end() ? exact_row(key + " (not kept)", false)
                                               : row_of(key, widen(found->second), want.data));
    }
  }
}

// One tensor off by 1e-3 of itself; one that has lost its largest element; two that have changed
// places.
void add_planted_rows(const AdapterSet& adapters, const NamedTensors& gradients,
                      GradientTable& table) {
  const auto& tensor = adapters.tensors().front();
  const std::vector<double>& want = at(gradients, tensor.name).data;
  std::vector<double> scaled = widen(std::span<const float>(tensor.gradient));
  std::vector<double> lost = scaled;
  for (double& g : scaled) g *= 1.001;
  table.plant(tensor.name + " off by 1e-3 of itself", row_of(tensor.name, scaled, want));
  *std::ranges::max_element(lost, {}, [](double g) { return std::abs(g); }) = 0.0;
  table.plant(tensor.name + " without its largest element", row_of(tensor.name, lost, want));
  for (const auto& other : adapters.tensors()) {
    if (other.name == tensor.name || other.gradient.size() != want.size()) continue;
    table.plant(tensor.name + " in the place of " + other.name,
                row_of(tensor.name, widen(std::span<const float>(other.gradient)), want));
    break;
  }
}

}  // namespace

GradientTable check_gradient_case(const std::filesystem::path& model,
                                  const std::filesystem::path& folder) {
  const JsonFile result(folder / "result.json");
  Engine engine(model);
  const auto rank = result.get<std::int64_t>("/r");
  const auto alpha = result.get<double>("/alpha");
  const auto adapters =
      adapter_set(engine, rank, alpha, read_safetensors(folder / "adapters.safetensors"));
  const Batch batch =
      batch_of(read_safetensors(folder / "batch.safetensors"), engine.config().vocabulary);
  const double wanted = result.number("/loss");
  const EngineRun run = run_backward(engine, batch, *adapters);

  GradientTable table;
  table.title =
      fmt::format("{} against float64 automatic differentiation", folder.filename().string());
  GradientRow loss;
  loss.name = "loss (difference in nats)";
  loss.norm = wanted;
  loss.error = std::abs(run.result.loss - wanted);
  loss.allowed = kLossGate;
  loss.outcome = GradientRow::judge(loss.error, loss.allowed);
  table.rows.push_back(loss);

  GradientRow wrong_loss = loss;
  wrong_loss.error += 2 * kLossGate;
  wrong_loss.outcome = GradientRow::judge(wrong_loss.error, wrong_loss.allowed);
  table.plant("a loss off by twice the gate", wrong_loss);

  const NamedTensors routing = read_safetensors(folder / "routing.safetensors");
  for (const auto& [name, want] : routing) {
    if (!name.starts_with("route_idx.")) continue;
    const auto got = run.trace.route_index.find(std::stoll(name.substr(name.find('.') + 1)));
    if (got == run.trace.route_index.end()) {
      throw std::runtime_error(
          fmt::format("{}: {}: the model has no experts in this layer", routing.source, name));
    }
    table.rows.push_back(exact_row(name, got->second == want.i32()));
    if (table.planted.size() > 1) continue;
    std::vector<std::int32_t> other = got->second;
    other.back() += 1;
    table.plant("another expert in " + name, exact_row(name, other == want.i32()));
  }
  const NamedTensors gradients = read_safetensors(folder / "lora_grads.safetensors");
  for (const auto& tensor : adapters->tensors()) {
    table.rows.push_back(row_of(tensor.name, widen(std::span<const float>(tensor.gradient)),
                                at(gradients, tensor.name).data));
  }
  add_planted_rows(*adapters, gradients, table);
  add_stream_rows(run, read_safetensors(folder / "stream.safetensors"), table);
  if (batch.documents.size() > 2) add_isolation_rows(engine, batch, *adapters, run, table);
  return table;
}

}  // namespace checks
