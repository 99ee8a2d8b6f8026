#include "checks/gradient_differences.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/multiprecision/cpp_bin_float.hpp>
#include <cmath>
#include <functional>
#include <map>
#include <optional>
#include <set>

#include "checks/engine_run.h"
#include "checks/gradient_case.h"
#include "engine/base/rng.h"

namespace checks {
namespace {

using boost::multiprecision::cpp_bin_float_50;
using engine::model::AdapterSet;
using Chosen = std::function<bool(const std::string&)>;
using Routing = std::map<std::int64_t, std::vector<std::int32_t>>;

constexpr double kStep = 0.08;     // of the tensors' norm, the largest
constexpr int kSteps = 9;          // each half of the one before
constexpr double kNoise = 5.1;     // sigma / h times this is what S(h) may err by
constexpr double kCoarse = 0.1;    // of the derivative: truncation and resolution together
constexpr double kSharp = 1.5e-4;  // likewise
constexpr double kEnough = 1e-4;   // likewise: no need to look for a better step
constexpr double kPlanted = 1e-3;  // a relative error of the gradient that sharp rows must see
constexpr std::uint64_t kSeeds = 32;
constexpr double kNoiseStep = 1e-7;  // of the norm of all adapters: displaces no loss measurably
constexpr int kNoisePoints = 64;

// Mean cross-entropy of float32 logits, 50 digits: what a difference of two losses loses is not here.
cpp_bin_float_50 loss_of(const EngineRun& run, const engine::model::Batch& batch) {
  const std::size_t width = run.logits.size() / batch.tokens.size();
  cpp_bin_float_50 sum = 0;
  for (std::size_t t = 0; t < batch.tokens.size(); ++t) {
    if (batch.targets[t] < 0) continue;
    const auto row = std::span(run.logits).subspan(t * width, width);
    cpp_bin_float_50 total = 0;
    for (const float logit : row) total += exp(cpp_bin_float_50(logit));
    sum += log(total) - row[static_cast<std::size_t>(batch.targets[t])];
  }
  return sum / batch.trained();
}

class Differences {
 public:
  Differences(const std::filesystem::path& model, std::int64_t tokens, bool large = false)
      : engine_(model),
        adapters_(large ? adapters_with_a_large_tensor(engine_)
                        : random_adapter_set(engine_, 4, 8.0, 2)) {
    batch_ = steady_batch(tokens);
    // Half of the tokens are trained: 50-digit exponentials are what takes the time.
    std::fill_n(batch_.targets.begin(), tokens / 2, -1);
    base_routing_ = chosen_sets(run_backward(engine_, batch_, *adapters_));
    for (const auto& tensor : adapters_->tensors()) {
      values_.insert(values_.end(), tensor.values.begin(), tensor.values.end());
      gradient_.insert(gradient_.end(), tensor.gradient.begin(), tensor.gradient.end());
    }
    measure_noise();
  }

  std::span<const engine::model::AdapterTensor> tensors() const { return adapters_->tensors(); }
  double noise() const { return noise_; }
  PlantedGradient planted() const {
    return {fmt::format("in the {} directions that resolve it, the gradient 1e-3 of itself too "
                        "small or too large: {} of {}",
                        planted_ / 2, refused_, planted_),
            planted_ > 0 && refused_ == planted_};
  }

  // The tensors whose names `chosen` answers yes to, along their gradient.
  GradientRow along_gradient(const std::string& name, const Chosen& chosen) {
    return row(name, only(gradient_, chosen));
  }
  GradientRow along_signs(const std::string& name, std::uint64_t seed, const Chosen& chosen) {
    return row(fmt::format("{}, random signs {}", name, seed), only(signs(seed), chosen));
  }

 private:
  // Of some random sequences the one whose closest choice of an expert is the clearest: a step can
  // be the larger.
  engine::model::Batch steady_batch(std::int64_t tokens) {
    engine::model::Batch best;
    float widest = -1.0f;
    for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
      engine::model::Batch batch =
          forward_batch(random_ids(tokens, engine_.config().vocabulary, seed));
      float least = INFINITY;
      for (const auto& [layer, gap] : run_forward(engine_, batch, adapters_.get()).trace.gap) {
        least = std::min(least, *std::ranges::min_element(gap));
      }
      if (!(least > widest)) continue;
      widest = least;
      best = std::move(batch);
    }
    return best;
  }

  // Zero outside the chosen tensors.
  std::vector<double> only(std::vector<double> v, const Chosen& chosen) const {
    std::size_t at = 0;
    for (const auto& tensor : adapters_->tensors()) {
      if (!chosen(tensor.name))
        std::fill_n(v.begin() + static_cast<std::ptrdiff_t>(at), tensor.values.size(), 0.0);
      at += tensor.values.size();
    }
    return v;
  }

  // Every token's experts as a set: their order is by score, and where two of them swap places the
  // loss is as smooth as elsewhere.
  Routing chosen_sets(const EngineRun& run) const {
    Routing sets = run.trace.route_index;
    for (auto& [layer, index] : sets) {
      for (auto at = index.begin(); at != index.end(); at += engine_.config().chosen) {
        std::sort(at, at + engine_.config().chosen);
      }
    }
    return sets;
  }

  std::vector<double> signs(std::uint64_t seed) const {
    const engine::base::CounterRng rng(seed, "direction");
    std::vector<double> v(values_.size());
    for (std::size_t i = 0; i < v.size(); ++i) v[i] = (rng.bits(i) & 1u) != 0 ? 1.0 : -1.0;
    return v;
  }

  // Loss at values + step * v (v of length 1), rounded to float32; the displacement that was really
  // made is measured along v. Sets flipped_ if any token changed its experts.
  std::pair<cpp_bin_float_50, double> loss_at(const std::vector<double>& v, double step) {
    std::size_t at = 0;
    double moved = 0.0;
    for (const auto& tensor : adapters_->tensors()) {
      for (float& value : tensor.values) {
        value = static_cast<float>(values_[at] + step * v[at]);
        moved += (value - values_[at]) * v[at];
        ++at;
      }
    }
    const EngineRun run = run_forward(engine_, batch_, adapters_.get());
    flipped_ = flipped_ || chosen_sets(run) != base_routing_;
    return {loss_of(run, batch_), moved};
  }

  // The slope of the secant through -step and +step.
  double slope(const std::vector<double>& v, double step) {
    const auto [above, moved_up] = loss_at(v, step);
    const auto [below, moved_down] = loss_at(v, -step);
    return static_cast<double>((above - below) / (moved_up - moved_down));
  }

  void measure_noise() {
    std::vector<double> v = signs(0);
    for (double& x : v) x /= std::sqrt(static_cast<double>(v.size()));
    double norm = 0.0, along = 0.0, square = 0.0;
    for (std::size_t i = 0; i < v.size(); ++i) {
      norm += values_[i] * values_[i];
      along += v[i] * gradient_[i];
    }
    const auto [start, at_start] = loss_at(v, 0.0);
    for (int point = 1; point <= kNoisePoints; ++point) {
      const auto [loss, moved] = loss_at(v, point * kNoiseStep * std::sqrt(norm));
      const double predicted = along * (moved - at_start);
      const double off = static_cast<double>(loss - start) - predicted;
      square += off * off / kNoisePoints;
    }
    noise_ = std::sqrt(square / 2);  // both ends of each difference have theirs
  }

  GradientRow row(const std::string& name, std::vector<double> v) {
    double length = 0.0, norm = 0.0, product = 0.0;
    for (const double x : v) length += x * x;
    length = std::sqrt(length);
    for (std::size_t i = 0; i < v.size(); ++i) {
      v[i] /= length;
      norm += v[i] == 0.0 ? 0.0 : values_[i] * values_[i];
      product += v[i] * gradient_[i];
    }
    GradientRow row;
    row.name = name;
    row.norm = std::abs(product);
    // The third of these steps need not be larger than resolution asks for.
    const double needed = 4 * kNoise * noise_ / (kEnough * row.norm);
    const Extrapolation best = extrapolate(v, std::min(kStep * std::sqrt(norm), needed), row.norm);
    if (!best.found) {
      row.outcome = GradientRow::Outcome::kRoutingFlip;
      return row;
    }
    row.error = std::abs(best.slope - product) / row.norm;
    row.allowed = best.uncertainty / row.norm + kGradientGate;
    row.outcome = GradientRow::judge(row.error, row.allowed);
    // What contradicts is a failure, however coarse.
    if (row.outcome == GradientRow::Outcome::kHolds && best.uncertainty > kCoarse * row.norm) {
      row.outcome = GradientRow::Outcome::kBelowResolution;
    }
    if (best.uncertainty <= kSharp * row.norm) plant(best, product, row);
    return row;
  }

  struct Extrapolation {
    bool found = false;
    double slope = 0.0;        // S(h)
    double uncertainty = 0.0;  // truncation and resolution
  };

  // Of the steps, the one with the least uncertainty. Stops where resolution alone is above the
  // best, for it doubles from step to step.
  Extrapolation extrapolate(const std::vector<double>& v, double step, double norm) {
    Extrapolation best;
    std::vector<std::optional<double>> slopes;
    for (int k = 0; k < kSteps; ++k, step /= 2) {
      flipped_ = false;
      const double difference = slope(v, step);
      slopes.push_back(flipped_ ? std::nullopt : std::optional(difference));
      const std::size_t at = slopes.size() - 1;
      if (at < 2 || !slopes[at] || !slopes[at - 1] || !slopes[at - 2]) continue;
      const double near = (4 * *slopes[at] - *slopes[at - 1]) / 3;
      const double far = (4 * *slopes[at - 1] - *slopes[at - 2]) / 3;
      const double resolution = kNoise * noise_ / step;
      const double uncertainty = std::abs(near - far) / 15 + resolution;
      if (!best.found || uncertainty < best.uncertainty) {
        best = {true, (16 * near - far) / 15, uncertainty};
      }
      if (best.uncertainty <= kEnough * norm || 2 * resolution >= best.uncertainty) break;
    }
    return best;
  }

  // The same comparison with a gradient that is off by 1e-3 of itself, either way.
  void plant(const Extrapolation& best, double product, const GradientRow& row) {
    for (const double factor : {1.0 - kPlanted, 1.0 + kPlanted}) {
      const double error = std::abs(best.slope - factor * product) / row.norm;
      ++planted_;
      refused_ += GradientRow::judge(error, row.allowed) == GradientRow::Outcome::kFails ? 1 : 0;
    }
  }

  Engine engine_;
  engine::model::Batch batch_;
  std::unique_ptr<AdapterSet> adapters_;
  std::vector<double> values_, gradient_;
  Routing base_routing_;
  bool flipped_ = false;
  double noise_ = 0.0;
  int planted_ = 0, refused_ = 0;
};

}  // namespace

GradientTable check_against_differences(const std::filesystem::path& model, std::int64_t tokens,
                                        bool quick) {
  Differences differences(model, tokens);
  GradientTable table;
  std::vector<std::string> names;
  std::set<std::string> layers, kinds;  // "layers.3.", ".q.lora_A"
  for (const auto& tensor : differences.tensors()) {
    const std::size_t behind_layer = tensor.name.find('.', std::string_view("layers.").size());
    names.push_back(tensor.name);
    layers.insert(tensor.name.substr(0, behind_layer + 1));
    kinds.insert(tensor.name.substr(behind_layer));
  }
  const auto add = [&](const std::string& name, const auto& chosen) {
    table.rows.push_back(differences.along_gradient(name, chosen));
  };
  for (std::size_t i = 0; i < names.size(); i += quick ? 7 : 1) {
    add(names[i], [&](const std::string& name) { return name == names[i]; });
  }
  for (const std::string& layer : layers) {
    add(layer + "*", [&](const std::string& name) { return name.starts_with(layer); });
  }
  for (const std::string& kind : kinds) {
    add("*" + kind, [&](const std::string& name) { return name.ends_with(kind); });
  }
  add("all adapters", [](const std::string&) { return true; });
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    table.rows.push_back(
        differences.along_signs("all adapters", seed, [](const std::string&) { return true; }));
  }
  table.title =
      fmt::format("central differences of the whole model, {} tokens, noise of the loss {:.2e}",
                  tokens, differences.noise());
  table.planted.push_back(differences.planted());
  return table;
}

std::unique_ptr<AdapterSet> adapters_with_a_large_tensor(Engine& engine) {
  auto adapters = random_adapter_set(engine, 4, 8.0, 2);
  for (const auto& tensor : adapters->tensors()) {
    if (tensor.name != kLargeTensor) continue;
    double square = 0.0;
    for (const float value : tensor.values) square += double{value} * value;
    const double factor = kLargeNorm / std::sqrt(square);
    for (float& value : tensor.values) value = static_cast<float>(factor * value);
    return adapters;
  }
  throw std::runtime_error(fmt::format("the model has no adapter tensor {}", kLargeTensor));
}

GradientTable check_random_directions(const std::filesystem::path& model, std::int64_t tokens,
                                      std::uint64_t count) {
  Differences differences(model, tokens, true);
  GradientTable table;
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::string one = i % 2 == 0
                                ? kLargeTensor
                                : differences.tensors()[i / 4 % differences.tensors().size()].name;
    const bool all = i % 4 == 1;
    table.rows.push_back(
        differences.along_signs(all ? "all adapters" : one, i + 1,
                                [&](const std::string& name) { return all || name == one; }));
  }
  // A derivative wrong by e shows where e is above what is allowed and what it errs by already.
  const auto shows = [&](double e) {
    return std::ranges::count_if(table.rows, [&](const GradientRow& row) {
      return row.outcome == GradientRow::Outcome::kHolds && e > row.allowed + row.error;
    });
  };
  const double coarse = 2 * (kCoarse + kGradientGate);
  table.planted.push_back(
      {fmt::format(
           "a derivative wrong by {:.3g} of itself, in {} resolved directions of {} (by 1e-2 "
           "it shows in {}, by 5e-3 in {}, by 2e-3 in {})",
           coarse, shows(coarse), count, shows(1e-2), shows(5e-3), shows(2e-3)),
       shows(coarse) > 0 && shows(coarse) == shows(INFINITY)});
  table.title = fmt::format("G12: {} random directions, {} has norm {}, noise of the loss {:.2e}",
                            count, kLargeTensor, kLargeNorm, differences.noise());
  return table;
}

}  // namespace checks
