#include "checks/throttled_sweep.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <string>
#include <utility>

#include "checks/engine_run.h"

namespace checks {
namespace {

using engine::model::Model;
using engine::model::ModelOptions;
using engine::store::Throttle;

double seconds(Throttle::Time time) { return std::chrono::duration<double>(time).count(); }

double own_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto of = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return of(usage.ru_utime) + of(usage.ru_stime);
}

// Of all processors, all processes, since the start: working, and in all.
std::pair<double, double> machine_seconds() {
  std::ifstream file("/proc/stat");
  std::string word;
  file >> word;
  double ticks[8] = {}, all = 0.0;
  for (double& tick : ticks) {
    file >> tick;
    all += tick;
  }
  const auto per_second = static_cast<double>(sysconf(_SC_CLK_TCK));
  return {(all - ticks[3] - ticks[4]) / per_second, all / per_second};
}

}  // namespace

ThrottledSweep::ThrottledSweep(std::filesystem::path model, std::int64_t tokens,
                               std::int64_t sequences, Throttle::Clock clock)
    : folder_(std::move(model)), tokens_(tokens), sequences_(sequences), clock_(clock) {
  engine::base::RamBudget ample(std::uint64_t{1} << 40);
  Model outline(folder_, ample);
  engine::model::AdapterSet adapters(outline.config(), {}, ample);
  engine::model::Plan plan =
      outline.plan(batch(outline.config().vocabulary).documents, &adapters, true);
  budget_bytes_ = ample.used_bytes() + static_cast<std::uint64_t>(plan.least_bytes()) +
                  12 * static_cast<std::uint64_t>(plan.expert_bytes) +
                  static_cast<std::uint64_t>(plan.weights_bytes);
}

engine::model::Batch ThrottledSweep::batch(std::int64_t vocabulary) const {
  engine::model::Batch batch;
  batch.documents = {0};
  for (std::int64_t i = 0; i < sequences_; ++i) {
    const engine::model::Batch one =
        forward_batch(random_ids(tokens_, vocabulary, 3 + static_cast<std::uint64_t>(i)));
    batch.tokens.insert(batch.tokens.end(), one.tokens.begin(), one.tokens.end());
    batch.targets.insert(batch.targets.end(), one.targets.begin(), one.targets.end());
    batch.documents.push_back(batch.size());
  }
  return batch;
}

ThrottledSample ThrottledSweep::run(double bytes_per_second) const {
  auto throttle = std::make_shared<Throttle>(bytes_per_second, clock_);
  ModelOptions options;
  options.reads.throttle = throttle;
  options.reads.direct = engine::store::DirectReads::kNever;
  engine::base::RamBudget budget(budget_bytes_);
  Model model(folder_, budget, options);
  engine::model::AdapterSet adapters(model.config(), {}, budget);
  adapters.initialize(1);
  ThrottledSample sample;
  const auto machine = machine_seconds();
  const double own = own_seconds();
  const Throttle::Time start = throttle->now(), waited = throttle->waited();
  sample.result = model.forward_backward(batch(model.config().vocabulary), adapters);
  sample.took = seconds(throttle->now() - start);
  sample.waited = seconds(throttle->waited() - waited);
  sample.computed = own_seconds() - own;
  const auto now = machine_seconds();
  sample.others =
      std::max(0.0, now.first - machine.first - sample.computed) / (now.second - machine.second);
  return sample;
}

}  // namespace checks
