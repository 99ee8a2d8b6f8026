#include "checks/gradient_duals.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>

#include "checks/engine_run.h"
#include "checks/gradient_case.h"
#include "engine/base/rng.h"
#include "oracle/dual.h"
#include "oracle/model.h"

namespace checks {
namespace {

constexpr int kSlots = 8;
constexpr int kRandomDirections = 3;
constexpr int kDirections = 1 + kRandomDirections;
constexpr double kRandomAllowance = 2.65 * kGradientGate;
using Scalar = oracle::Dual<double, kSlots>;

struct Probe {
  std::string name;
  std::vector<double> gradient;
  // What the oracle found, direction by direction, and what <gradient, direction> is.
  double exact[kDirections] = {};
  double engine[kDirections] = {};
};

// Direction 0 is the gradient over its length; the others are signs.
std::vector<double> direction(const Probe& probe, int which) {
  std::vector<double> v(probe.gradient.size());
  double length = 0.0;
  for (const double g : probe.gradient) length += g * g;
  length = std::sqrt(length);
  const engine::base::CounterRng rng(static_cast<std::uint64_t>(which), probe.name);
  for (std::size_t i = 0; i < v.size(); ++i) {
    v[i] = which == 0 ? probe.gradient[i] / length : (rng.bits(i) & 1u) != 0 ? 1.0 : -1.0;
  }
  return v;
}

// A forward pass of the oracle that carries kSlots directions at once.
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
    options_.keep_trace = false;
  }

  // Slot i gets direction jobs[i] % kDirections of probe jobs[i] / kDirections.
  void differentiate(std::vector<Probe>& probes, const std::vector<std::size_t>& jobs) {
    for (std::size_t slot = 0; slot < jobs.size(); ++slot) set(probes, jobs[slot], slot, true);
    const Scalar loss = oracle::forward<Scalar>(checkpoint_, adapters_, batch_, options_).loss;
    for (std::size_t slot = 0; slot < jobs.size(); ++slot) {
      probes[jobs[slot] / kDirections].exact[jobs[slot] % kDirections] = loss.tangent[slot];
      set(probes, jobs[slot], slot, false);
    }
    options_.add_to_layer_input.clear();
    options_.add_to_bank_entry.clear();
  }

 private:
  void set(std::vector<Probe>& probes, std::size_t job, std::size_t slot, bool on) {
    Probe& probe = probes[job / kDirections];
    const int which = static_cast<int>(job % kDirections);
    const std::vector<double> v = direction(probe, which);
    std::vector<Scalar>& where = place(probe);
    for (std::size_t i = 0; i < v.size(); ++i) where[i].tangent[slot] = on ? v[i] : 0.0;
    if (!on) return;
    double product = 0.0;
    for (std::size_t i = 0; i < v.size(); ++i) product += v[i] * probe.gradient[i];
    probe.engine[which] = product;
  }

  std::vector<Scalar>& place(const Probe& probe) {
    const auto adapter = adapters_.tensors.find(probe.name);
    if (adapter != adapters_.tensors.end()) return adapter->second;
    const std::int64_t index = std::stoll(probe.name.substr(probe.name.find('.') + 1));
    auto& map =
        probe.name.starts_with("bank") ? options_.add_to_bank_entry : options_.add_to_layer_input;
    auto& values = map[index];
    values.resize(probe.gradient.size(), Scalar(0.0));
    return values;
  }

  oracle::Checkpoint checkpoint_;
  oracle::Batch batch_;
  oracle::Adapters<Scalar> adapters_;
  oracle::Options<Scalar> options_;
};

// The engine's gradient as if it were another: what <gradient, direction> would be then.
Probe with_gradient(Probe probe, const std::vector<double>& other) {
  for (int which = 0; which < kDirections; ++which) {
    const std::vector<double> v = direction(probe, which);
    probe.engine[which] = std::inner_product(v.begin(), v.end(), other.begin(), 0.0);
  }
  return probe;
}

GradientRow judge(const Probe& probe) {
  GradientRow row;
  row.name = probe.name;
  double norm = 0.0;
  for (const double g : probe.gradient) norm += g * g;
  row.norm = std::sqrt(norm);
  const double along = std::abs(probe.engine[0] - probe.exact[0]) / row.norm;
  double square = 0.0;
  for (int which = 1; which < kDirections; ++which) {
    const double error = (probe.engine[which] - probe.exact[which]) / row.norm;
    square += error * error / kRandomDirections;
  }
  const double around = std::sqrt(square);
  // The larger of the two, in units of its own allowance.
  const bool along_is_worse = !(around / kRandomAllowance > along / kGradientGate);
  row.error = along_is_worse ? along : around;
  row.allowed = along_is_worse ? kGradientGate : kRandomAllowance;
  row.outcome = along <= kGradientGate && around <= kRandomAllowance ? GradientRow::Outcome::kHolds
                                                                     : GradientRow::Outcome::kFails;
  return row;
}

}  // namespace

GradientTable check_against_duals(const std::filesystem::path& model, std::int64_t tokens,
                                  bool quick) {
  Engine engine(model);
  engine::model::Batch batch = forward_batch(random_ids(tokens, engine.config().vocabulary, 8));
  const std::int64_t border = tokens * 2 / 3;
  batch.targets[static_cast<std::size_t>(border - 1)] = -1;
  batch.documents = {0, border, tokens};
  const auto adapters = random_adapter_set(engine, 4, 8.0, 1);
  const EngineRun run = run_backward(engine, batch, *adapters);

  std::vector<Probe> probes;
  const auto add = [&](const std::string& name, std::span<const float> gradient) {
    Probe probe;
    probe.name = name;
    probe.gradient.assign(gradient.begin(), gradient.end());
    probes.push_back(std::move(probe));
  };
  for (const auto& tensor : adapters->tensors()) add(tensor.name, tensor.gradient);
  for (const auto& [name, gradient] : run.trace.gradients) {
    if (name.starts_with("h_in.") || name.starts_with("bank.")) add(name, gradient);
  }
  if (quick) {
    std::vector<Probe> some;
    for (std::size_t i = 0; i < probes.size(); i += 7) some.push_back(std::move(probes[i]));
    probes = std::move(some);
  }

  std::vector<std::vector<std::int32_t>> routing(static_cast<std::size_t>(engine.config().layers));
  for (const auto& [layer, index] : run.trace.route_index) {
    routing[static_cast<std::size_t>(layer)] = index;
  }
  const std::int64_t jobs = static_cast<std::int64_t>(probes.size()) * kDirections;
  const std::int64_t runs = (jobs + kSlots - 1) / kSlots;
  const oracle::Adapters<double> values = oracle_adapters(*adapters);
#pragma omp parallel
  {
    DualRun dual(model, values, oracle_batch(batch), routing);
#pragma omp for schedule(dynamic)
    for (std::int64_t r = 0; r < runs; ++r) {
      std::vector<std::size_t> slots;
      for (std::int64_t job = r * kSlots; job < std::min(jobs, (r + 1) * kSlots); ++job) {
        slots.push_back(static_cast<std::size_t>(job));
      }
      dual.differentiate(probes, slots);
    }
  }
  GradientTable table;
  table.title = fmt::format("every gradient against the oracle's dual numbers, {} tokens", tokens);
  for (const Probe& probe : probes) table.rows.push_back(judge(probe));

  // Along itself, where the gate is 5e-4; and at right angles to itself, an error that the direction
  // of the gradient alone would not show.
  for (const Probe* probe : {&probes.front(), &probes.back()}) {
    std::vector<double> scaled = probe->gradient, turned = probe->gradient;
    for (double& g : scaled) g *= 1.001;
    for (std::size_t i = 0; i + 1 < turned.size(); i += 2) {  // orthogonal to the gradient
      turned[i] += 0.05 * probe->gradient[i + 1];
      turned[i + 1] -= 0.05 * probe->gradient[i];
    }
    table.plant(probe->name + " off by 1e-3 of itself", judge(with_gradient(*probe, scaled)));
    table.plant(probe->name + " turned by 0.05", judge(with_gradient(*probe, turned)));
  }
  return table;
}

}  // namespace checks
