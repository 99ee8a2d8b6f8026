#include "checks/gradient_duals.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <memory>
#include <numbers>

#include "checks/engine_run.h"
#include "checks/gradient_differences.h"
#include "checks/oracle_run.h"
#include "engine/base/rng.h"
#include "oracle/dual.h"

namespace checks {
namespace {

constexpr int kDirections = 8;
constexpr int kSeeds = 3;
constexpr double kAllowed = 2e-4;
constexpr double kPlanted = 1e-3;
using Scalar = oracle::Dual<double, kDirections>;

// What is differentiated: the loss, or <weights, logits>.
struct Functional {
  std::string name;
  std::vector<float> weights;  // [T,V]; empty for the loss
};

struct Probe {
  std::string name;
  int first;                                                 // number of its first direction
  std::vector<std::vector<double>> gradients;                // the engine's, one a functional
  std::vector<std::array<double, kDirections>> derivatives;  // the oracle's, likewise
};

double norm_of(const std::vector<double>& values) {
  double sum = 0.0;
  for (const double v : values) sum += v * v;
  return std::sqrt(sum);
}

// Normal deviates, by the method of Box and Muller.
std::vector<double> direction(const std::string& name, int which, std::size_t size) {
  const engine::base::CounterRng rng(static_cast<std::uint64_t>(which), name);
  std::vector<double> v(size);
  for (std::size_t i = 0; i < size; ++i) {
    const double radius = std::sqrt(-2.0 * std::log1p(-double{rng.uniform(2 * i)}));
    v[i] = radius * std::cos(2.0 * std::numbers::pi * rng.uniform(2 * i + 1));
  }
  return v;
}

std::vector<float> signs(std::size_t size, std::uint64_t seed) {
  const engine::base::CounterRng rng(seed, "weights of the logits");
  std::vector<float> w(size);
  for (std::size_t i = 0; i < size; ++i) w[i] = (rng.bits(i) & 1u) != 0 ? 1.0f : -1.0f;
  return w;
}

// A forward pass of the oracle that carries the directions of one probe.
class DualRun {
 public:
  DualRun(const std::filesystem::path& model, const oracle::Adapters<double>& adapters,
          const oracle::Batch& batch, const std::vector<std::vector<std::int32_t>>& routing)
      : checkpoint_(model), batch_(batch) {
    adapters_.rank = adapters.rank;
    adapters_.alpha = adapters.alpha;
    for (const auto& [name, values] : adapters.tensors) {
      for (const double value : values) adapters_.tensors[name].push_back(Scalar(value));
    }
    options_.replay_routing = &routing;
  }

  void differentiate(Probe& probe, const std::vector<Functional>& functionals) {
    std::vector<Scalar>& where = place(probe);
    for (int which = 0; which < kDirections; ++which) {
      const std::vector<double> v = direction(probe.name, probe.first + which, where.size());
      for (std::size_t i = 0; i < v.size(); ++i) where[i].tangent[which] = v[i];
    }
    const auto trace = oracle::forward<Scalar>(checkpoint_, adapters_, batch_, options_);
    for (Scalar& element : where) element.tangent.fill(0.0);
    options_.add_to_layer_input.clear();
    options_.add_to_bank_entry.clear();
    for (const Functional& functional : functionals) {
      std::array<double, kDirections> found = trace.loss.tangent;
      if (!functional.weights.empty()) found.fill(0.0);
      for (std::size_t i = 0; i < functional.weights.size(); ++i) {
        for (int which = 0; which < kDirections; ++which) {
          found[which] += functional.weights[i] * trace.logits[i].tangent[which];
        }
      }
      probe.derivatives.push_back(found);
    }
  }

 private:
  std::vector<Scalar>& place(const Probe& probe) {
    const auto adapter = adapters_.tensors.find(probe.name);
    if (adapter != adapters_.tensors.end()) return adapter->second;
    const std::int64_t index = std::stoll(probe.name.substr(probe.name.find('.') + 1));
    auto& map =
        probe.name.starts_with("bank") ? options_.add_to_bank_entry : options_.add_to_layer_input;
    auto& values = map[index];
    values.resize(probe.gradients.front().size(), Scalar(0.0));
    return values;
  }

  oracle::Checkpoint checkpoint_;
  oracle::Batch batch_;
  oracle::Adapters<Scalar> adapters_;
  oracle::Options<Scalar> options_;
};

// `gradient` stands for the engine's of this functional.
GradientRow judge(const Probe& probe, std::size_t functional, const std::string& name,
                  const std::vector<double>& gradient) {
  GradientRow row;
  row.name = name.empty() ? probe.name : fmt::format("{}, {}", probe.name, name);
  row.norm = norm_of(probe.gradients[functional]);
  double square = 0.0;
  for (int which = 0; which < kDirections; ++which) {
    const std::vector<double> v = direction(probe.name, probe.first + which, gradient.size());
    double product = 0.0;
    for (std::size_t i = 0; i < v.size(); ++i) product += v[i] * gradient[i];
    const double error = (product - probe.derivatives[functional][which]) / row.norm;
    square += error * error / kDirections;
  }
  row.error = std::sqrt(square);
  row.allowed = kAllowed;
  row.outcome = GradientRow::judge(row.error, row.allowed);
  return row;
}

// The gradient with an error of kPlanted of its length: along itself, in its middle element, and
// in all elements alike with random signs.
std::vector<std::vector<double>> wrong_versions(const std::string& name,
                                                const std::vector<double>& gradient) {
  const double length = kPlanted * norm_of(gradient);
  const std::vector<float> sign = signs(gradient.size(), name.size());
  std::vector<std::vector<double>> wrong(3, gradient);
  for (double& g : wrong[0]) g *= 1.0 + kPlanted;
  wrong[1][gradient.size() / 2] += length;
  for (std::size_t i = 0; i < gradient.size(); ++i) {
    wrong[2][i] += sign[i] * length / std::sqrt(static_cast<double>(gradient.size()));
  }
  return wrong;
}

void add_rows(const std::vector<Probe>& probes, std::size_t functional, const std::string& name,
              GradientTable& table) {
  std::size_t refused = 0, planted = 0;
  for (const Probe& probe : probes) {
    const std::vector<double>& gradient = probe.gradients[functional];
    table.rows.push_back(judge(probe, functional, name, gradient));
    for (const std::vector<double>& wrong : wrong_versions(probe.name, gradient)) {
      ++planted;
      const GradientRow row = judge(probe, functional, name, wrong);
      refused += row.outcome == GradientRow::Outcome::kFails ? 1 : 0;
    }
  }
  table.planted.push_back({fmt::format("a relative error of 1e-3 in any one tensor{}{}: {} of {}",
                                       name.empty() ? "" : ", ", name, refused, planted),
                           planted > 0 && refused == planted});
}

// Two documents; nothing predicts across the border.
engine::model::Batch batch_of(std::int64_t tokens, std::int64_t vocabulary) {
  engine::model::Batch batch = forward_batch(random_ids(tokens, vocabulary, 8));
  const std::int64_t border = tokens * 2 / 3;
  batch.targets[static_cast<std::size_t>(border - 1)] = -1;
  batch.documents = {0, border, tokens};
  return batch;
}

// The engine's gradients of one functional, tensors in the order of probes; made where missing.
void collect(Engine& engine, const engine::model::Batch& batch, engine::model::AdapterSet& adapters,
             const Functional& functional, EngineRun& run, std::vector<Probe>& probes) {
  adapters.clear_gradients();
  run = run_backward(engine, batch, adapters, functional.weights);
  std::size_t at = 0;
  const auto add = [&](const std::string& name, std::span<const float> gradient) {
    if (at == probes.size()) probes.push_back({name, 0, {}, {}});
    probes[at++].gradients.emplace_back(gradient.begin(), gradient.end());
  };
  for (const auto& tensor : adapters.tensors()) add(tensor.name, tensor.gradient);
  for (const auto& [name, gradient] : run.trace.gradients) {
    if (name.starts_with("h_in.") || name.starts_with("bank.")) add(name, gradient);
  }
}

// The oracle's derivatives of every probe, with the experts that the engine chose.
void differentiate(Engine& engine, const std::filesystem::path& model,
                   const engine::model::Batch& batch, const engine::model::AdapterSet& adapters,
                   const EngineRun& run, const std::vector<Functional>& functionals,
                   std::vector<Probe>& probes) {
  std::vector<std::vector<std::int32_t>> routing(static_cast<std::size_t>(engine.config().layers));
  for (const auto& [layer, index] : run.trace.route_index) {
    routing[static_cast<std::size_t>(layer)] = index;
  }
  const oracle::Adapters<double> values = oracle_adapters(adapters);
  const auto count = static_cast<std::int64_t>(probes.size());
#pragma omp parallel
  {
    DualRun dual(model, values, oracle_batch(batch), routing);
#pragma omp for schedule(dynamic)
    for (std::int64_t i = 0; i < count; ++i) {
      dual.differentiate(probes[static_cast<std::size_t>(i)], functionals);
    }
  }
}

}  // namespace

std::vector<GradientTable> check_against_duals(const std::filesystem::path& model,
                                               std::int64_t tokens, bool quick) {
  Engine engine(model);
  const engine::model::Batch batch = batch_of(tokens, engine.config().vocabulary);
  const auto adapters = random_adapter_set(engine, 4, 8.0, 1);

  std::vector<Functional> functionals = {{"", {}}};
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    const auto size = static_cast<std::size_t>(tokens * engine.config().vocabulary);
    functionals.push_back({fmt::format("w {}", seed), signs(size, seed)});
  }
  std::vector<Probe> probes;
  EngineRun run;
  for (const Functional& functional : functionals) {
    collect(engine, batch, *adapters, functional, run, probes);
  }
  if (quick) {
    std::vector<Probe> some;
    for (std::size_t i = 0; i < probes.size(); i += 7) some.push_back(std::move(probes[i]));
    probes = std::move(some);
  }

  differentiate(engine, model, batch, *adapters, run, functionals, probes);
  std::vector<GradientTable> tables(2);
  tables[0].title = fmt::format("gradients of the loss against dual numbers, {} tokens", tokens);
  tables[1].title =
      fmt::format("adjoint identity <w, J v> = <J^T w, v> of the whole model, {} tokens", tokens);
  for (std::size_t f = 0; f < functionals.size(); ++f) {
    add_rows(probes, f, functionals[f].name, tables[f == 0 ? 0 : 1]);
  }
  return tables;
}

GradientTable check_large_tensor(const std::filesystem::path& model, std::int64_t tokens,
                                 int groups) {
  Engine engine(model);
  const engine::model::Batch batch = batch_of(tokens, engine.config().vocabulary);
  const auto adapters = adapters_with_a_large_tensor(engine);
  const std::vector<Functional> loss = {{"", {}}};
  EngineRun run;
  std::vector<Probe> all, probes;
  collect(engine, batch, *adapters, loss.front(), run, all);
  for (const Probe& probe : all) {
    if (probe.name != kLargeTensor) continue;
    for (int group = 0; group < groups; ++group) {
      probes.push_back(probe);
      probes.back().first = group * kDirections;
    }
  }
  differentiate(engine, model, batch, *adapters, run, loss, probes);
  GradientTable table;
  table.title = fmt::format("G12: {} of norm {} against dual numbers, {} times {} directions",
                            kLargeTensor, kLargeNorm, groups, kDirections);
  add_rows(probes, 0, "", table);
  for (std::size_t i = 0; i < table.rows.size(); ++i) {
    table.rows[i].name += fmt::format(", directions {} ...", probes[i].first);
  }
  return table;
}

}  // namespace checks
