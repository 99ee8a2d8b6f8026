// `lazylora train`, but that the sequences of a step are computed one at a time: each in a sweep of its
// own that names the trained tokens of the whole step, gradients added up, one update behind the last.
// The program itself has no such choice: a step is one sweep over its sequences, whatever the memory,
// and refused where that does not fit. The mathematics is the same, so must the bytes of the run be;
// checks/one_hash.sh and checks/check_hash.sh compare them.
//
// What a log says of a whole step is put together here: the loss from the tokens' losses, in the order
// in which a sweep adds them, and the experts of a layer from both choices.

#include <fmt/format.h>

#include <exception>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "checks/engine_run.h"
#include "engine/data/ids.h"
#include "engine/model/trace.h"
#include "engine/store/scale_scan.h"
#include "engine/train/trainer.h"

namespace {

namespace model = engine::model;
namespace train = engine::train;

model::Batch sequence_of(const model::Batch& step, std::size_t d, bool with_whole_count) {
  const std::int64_t begin = step.documents[d], end = step.documents[d + 1];
  model::Batch one;
  one.tokens.assign(step.tokens.begin() + begin, step.tokens.begin() + end);
  one.targets.assign(step.targets.begin() + begin, step.targets.begin() + end);
  one.documents = {0, end - begin};
  if (with_whole_count) one.loss_tokens = step.trained();
  return one;
}

model::SweepResult one_at_a_time(model::Model& model, const model::Batch& step,
                                 model::AdapterSet& adapters, const model::SweepHooks& hooks,
                                 bool with_whole_count) {
  model::SweepResult whole;
  whole.distinct_experts.assign(static_cast<std::size_t>(model.config().layers), 0);
  std::vector<std::set<std::int32_t>> experts(whole.distinct_experts.size());
  double sum = 0.0;
  for (std::size_t d = 0; d + 1 < step.documents.size(); ++d) {
    model::Trace trace;
    trace.routing_only = true;
    model::SweepHooks also = hooks;
    also.trace = &trace;
    const model::Batch one = sequence_of(step, d, with_whole_count);
    const model::SweepResult part = model.forward_backward(one, adapters, also);
    double document = 0.0;
    for (const double nll : part.nll) document += nll;
    sum += document;
    whole.trained += part.trained;
    for (const auto& [layer, index] : trace.route_index) {
      experts[static_cast<std::size_t>(layer)].insert(index.begin(), index.end());
    }
    // An expert of both would count twice; what this is run on has no such group.
    if (part.nan_groups > 0) throw engine::base::Error("scale bytes of 255: not put together here");
  }
  for (std::size_t l = 0; l < experts.size(); ++l) {
    whole.distinct_experts[l] = static_cast<std::int64_t>(experts[l].size());
  }
  whole.loss = sum / static_cast<double>(step.trained());
  return whole;
}

int run(const std::vector<std::string>& arguments) {
  checks::Engine engine(arguments.at(0));
  train::Job job;
  job.run = arguments.at(1);
  bool with_whole_count = true;
  for (std::size_t i = 2; i < arguments.size(); ++i) {
    const auto equals = arguments[i].find('=');
    if (arguments[i] == "--mean-of-means") {
      with_whole_count = false;
    } else if (equals != std::string::npos) {
      train::set(job.settings, arguments[i].substr(0, equals), arguments[i].substr(equals + 1));
    } else {
      job.sequence_names.push_back(arguments[i]);
      job.sequences.push_back(
          engine::data::read_ids(arguments[i], engine.config().vocabulary, &engine.budget));
    }
  }
  job.identity.config_sha256 = engine.config().sha256;
  job.identity.headers_sha256 = train::headers_digest(engine.model.shards());
  std::vector<engine::store::Finding> findings;
  job.scales = engine::store::scan_scales(engine.model.shards(), job.settings.strict, findings);
  engine::store::throw_first_error(findings);
  train::OpenRun open = train::open_run(std::move(job));
  model::AdapterSet adapters(engine.config(), open.job.settings.adapter, engine.budget);
  const train::SweepFunctions sweep{
      [&](const model::Batch& step, model::AdapterSet& set, const model::SweepHooks& hooks) {
        return one_at_a_time(engine.model, step, set, hooks, with_whole_count);
      },
      {}};
  train::Trainer trainer(std::move(open), adapters, engine.budget, sweep);
  return trainer.run() ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (arguments.size() < 3) {
    fmt::print(stderr, "usage: {} MODEL RUN [SETTING=VALUE...] [--mean-of-means] IDS...\n",
               argv[0]);
    return 2;
  }
  try {
    return run(arguments);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}: {}\n", argv[0], error.what());
    return 1;
  }
}
