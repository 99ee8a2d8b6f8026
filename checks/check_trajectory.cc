// check_trajectory: ten training steps of the engine against ten of an independent float64 program
// (README.md section 6 of the gradient reference). Without arguments: every case that is found.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "checks/compare.h"
#include "checks/engine_run.h"
#include "checks/gradient_case.h"
#include "checks/reference.h"
#include "checks/resume_bound.h"
#include "checks/trajectory_case.h"
#include "engine/cli/waiting.h"

namespace {

namespace fs = std::filesystem;
using checks::Case;
using checks::kStepsOfACase;
using checks::NamedTensors;
using checks::TableRecord;
using checks::Tally;
using checks::Training;
using engine::train::AdamwClock;
using engine::train::AdamwNorm;
using engine::train::AdamwSettings;

// One step from given parameters and moments: of each tensor, the least error of its gradient that
// explains the update it got (resume_bound.h). The gradient itself may err by its gate, and the
// clip's factor, from the norm of all gradients, by as much again.
constexpr double kResumedGradient = 2 * checks::kGradientGate;

// Tokens whose sets of chosen experts differ, each printed with the reference's gap.
int routing_differences(const engine::model::Trace& trace, const NamedTensors& reference,
                        std::int64_t step) {
  const auto& want = checks::at(reference, fmt::format("route_idx.step{}", step));
  const auto& gap = checks::at(reference, fmt::format("gap.step{}", step));
  const auto layers = static_cast<std::size_t>(want.shape.at(0));
  const auto tokens = static_cast<std::size_t>(want.shape.at(1));
  const auto chosen = static_cast<std::size_t>(want.shape.at(2));
  if (trace.route_index.size() != layers) {
    throw std::runtime_error(fmt::format("{} routed layers traced, the reference has {}",
                                         trace.route_index.size(), layers));
  }
  int differences = 0;
  std::size_t at = 0;
  for (const auto& [layer, index] : trace.route_index) {
    if (index.size() != tokens * chosen) {
      throw std::runtime_error(fmt::format("layer {}: {} choices traced, wanted {}", layer,
                                           index.size(), tokens * chosen));
    }
    for (std::size_t t = 0; t < tokens; ++t) {
      const auto begin = static_cast<std::ptrdiff_t>(t * chosen);
      const auto width = static_cast<std::ptrdiff_t>(chosen);
      std::vector<std::int32_t> got(index.begin() + begin, index.begin() + begin + width);
      const auto first =
          want.data.begin() + static_cast<std::ptrdiff_t>(at * tokens * chosen) + begin;
      std::vector<std::int32_t> wanted(first, first + width);
      std::sort(got.begin(), got.end());
      std::sort(wanted.begin(), wanted.end());
      if (got == wanted) continue;
      ++differences;
      fmt::print("    step {} layer {} token {}: routed differently, gap {:.2e}\n", step, layer, t,
                 gap.data[at * tokens + t]);
    }
    ++at;
  }
  return differences;
}

struct Report {
  explicit Report(const std::string& out) : record("check_trajectory", out) {}
  Tally tally;
  TableRecord record;
  std::string table;  // the case at hand
};

void judge(Report& report, bool holds, const std::string& text,
           const TableRecord::Figures& figures = {}) {
  fmt::print("  {:<7} {}\n", holds ? "holds" : "FAILS", text);
  report.tally.record(holds);
  const bool planted = text.starts_with("planted");
  report.record.row(report.table, text,
                    planted ? (holds ? "refused" : "not refused") : (holds ? "holds" : "fails"),
                    figures);
}

void check_steps(Report& report, checks::Engine& engine, const Case& about) {
  const NamedTensors start = about.tensors("adapters_init");
  const NamedTensors routing = about.tensors("routing");
  Training training(engine, about, start);
  AdamwClock clock(about.settings);
  std::vector<double> losses, wanted;
  int rerouted = 0;
  fmt::print(
      "  step seq       loss   reference  difference  grad norm   relative  clip scale  "
      "rerouted\n");
  for (std::int64_t t = 1; t <= kStepsOfACase; ++t) {
    engine::model::Trace trace;
    const double loss = training.sweep(about.batch(t), &trace);
    const AdamwNorm norm = training.update(about, t, clock);
    const double want = about.result.number(about.place(t, "loss"));
    const double want_norm = about.result.number(about.place(t, "grad_norm"));
    const int differences = routing_differences(trace, routing, t);
    rerouted += differences;
    fmt::print(
        "  {:>4} {:>3} {:>10.6f}  {:>10.6f}  {:>10.2e}  {:>9.5f}  {:>9.2e}  {:>10.8f}  {:>8}\n", t,
        about.result.get<std::string>(about.place(t, "seq")), loss, want, loss - want, norm.norm,
        std::abs(norm.norm / want_norm - 1.0), norm.scale, differences);
    report.record.row(
        report.table, fmt::format("step {}", t),
        std::abs(loss - want) <= about.gates.loss ? "holds" : "fails",
        {{"loss", loss}, {"reference", want}, {"grad_norm", norm.norm}, {"rerouted", differences}});
    losses.push_back(loss);
    wanted.push_back(want);
    const std::string name = fmt::format("params_step{:02}", t);
    if (about.has(name)) {
      fmt::print("       update vector off by {:.2e}\n",
                 checks::relative_norm_error(training.moved(start),
                                             checks::moved(about.tensors(name), start)));
    }
  }
  const std::vector<double> allowed(losses.size(), about.gates.loss);
  const checks::Comparison followed = checks::compare(losses, wanted, allowed);
  judge(report, followed.holds,
        fmt::format("losses of {} steps within {:.0e} (worst {:.2e})", losses.size(),
                    about.gates.loss, followed.worst * about.gates.loss),
        {{"error", followed.worst * about.gates.loss}, {"allowed", about.gates.loss}});
  std::rotate(losses.begin(), losses.begin() + 1, losses.end());
  judge(report, !checks::compare(losses, wanted, allowed),
        "planted: losses of a run that is one step ahead are refused");
  if (about.gates.same_routing) {
    judge(report, rerouted == 0, fmt::format("routing identical ({} tokens differ)", rerouted));
  } else {
    fmt::print("  routing: {} tokens differ (reported, not judged: gaps near 1e-4)\n", rerouted);
  }
  const auto want_update = checks::moved(about.tensors("params_step10"), start);
  const double off = checks::relative_norm_error(training.moved(start), want_update);
  if (about.gates.update) {
    judge(report, off <= *about.gates.update,
          fmt::format("update after 10 steps off by {:.2e}, allowed {:.0e}", off,
                      *about.gates.update));
    const double earlier = checks::relative_norm_error(
        checks::moved(about.tensors("params_step02"), start), want_update);
    judge(report, earlier > *about.gates.update, "planted: the update after 2 steps is refused");
  } else {
    fmt::print("  update after 10 steps off by {:.2e} (reported, not judged)\n", off);
  }
}

// What is done wrong on purpose.
struct Resumption {
  bool with_moments = true;
  std::int64_t steps_before = 4;
  double rate = 1.0;      // times the learning rate
  double decay = 1.0;     // times the weight decay
  bool with_nan = false;  // one value of the first tensor, finite ones behind it
};

struct Resumed {
  double loss = 0.0;
  double update_off = 0.0;  // relative, of the whole vector
  double needed = 0.0;      // of the tensor that needs the largest error of its gradient
  std::string tensor;
};

// Step 5 from the reference's parameters and moments behind step 4, rounded to float32.
class Resume {
 public:
  Resume(checks::Engine& engine, const Case& about)
      : engine_(engine),
        about_(about),
        from_(about.tensors("params_step04")),
        state_(about.tensors("moments_step04")),
        to_(about.tensors("params_step05")) {}

  Resumed run(const Resumption& how) const {
    Training training(engine_, about_, from_);
    for (const auto& tensor : training.moments.tensors()) {
      if (!how.with_moments) continue;
      const std::string name(tensor.name);
      std::ranges::copy(checks::at(state_, "m." + name).f32(), tensor.m.begin());
      std::ranges::copy(checks::at(state_, "v." + name).f32(), tensor.v.begin());
    }
    AdamwSettings settings = about_.settings;
    settings.weight_decay *= how.decay;
    Resumed resumed;
    resumed.loss = training.sweep(about_.batch(kStep), nullptr);
    const AdamwNorm norm = adamw_norm(training.moments.tensors(), settings.clip);
    AdamwClock clock(settings, how.steps_before);
    clock.tick();
    adamw_update(training.moments.tensors(), settings,
                 how.rate * learning_rate(about_.schedule, kStep), norm.scale, clock);
    if (how.with_nan) {
      training.adapters->tensors()[0].values[0] = std::numeric_limits<float>::quiet_NaN();
    }
    resumed.update_off =
        checks::relative_norm_error(training.moved(from_), checks::moved(to_, from_));
    for (const auto& tensor : training.adapters->tensors()) {
      const double needed = needed_by(tensor, norm.scale);
      // A NaN is kept, whatever comes behind it, and refused.
      if (std::isnan(resumed.needed) || needed <= resumed.needed) continue;
      resumed.needed = needed;
      resumed.tensor = tensor.name;
    }
    return resumed;
  }

 private:
  static constexpr std::int64_t kStep = 5;

  // Always by the rules of the reference: what was done wrong is to be found out.
  double needed_by(const engine::model::AdapterTensor& tensor, double scale) const {
    const AdamwClock clock(about_.settings, kStep);
    const checks::ResumedStep step{about_.settings, learning_rate(about_.schedule, kStep),
                                   clock.correction1(), clock.correction2()};
    const auto& from = checks::at(from_, tensor.name).data;
    const auto& to = checks::at(to_, tensor.name).data;
    const auto& m = checks::at(state_, "m." + tensor.name).data;
    const auto& v = checks::at(state_, "v." + tensor.name).data;
    std::vector<checks::ResumedElement> elements;
    for (std::size_t i = 0; i < from.size(); ++i) {
      elements.push_back({from[i], m[i], v[i], scale * static_cast<double>(tensor.gradient[i]),
                          static_cast<double>(tensor.values[i]) - to[i]});
    }
    return checks::explained_by(step, elements, kResumedGradient);
  }

  checks::Engine& engine_;
  const Case& about_;
  NamedTensors from_, state_, to_;
};

void check_resume(Report& report, checks::Engine& engine, const Case& about) {
  if (!about.has("moments_step04") || !about.has("params_step05")) {
    fmt::print("  no state behind step 4 in this case: no resume to check\n");
    return;
  }
  const Resume resume(engine, about);
  const Resumed right = resume.run({});
  const double loss_off = std::abs(right.loss - about.result.number(about.place(5, "loss")));
  judge(report, loss_off <= about.gates.loss,
        fmt::format("resumed at step 5: loss off by {:.2e}, allowed {:.0e}", loss_off,
                    about.gates.loss));
  judge(report, right.needed <= kResumedGradient,
        fmt::format("resumed at step 5: update off by {:.2e}; the most that a gradient has to err "
                    "by for it is {:.2e} ({}), allowed {:.0e}",
                    right.update_off, right.needed, right.tensor, kResumedGradient));
  for (const auto& [what, how] : {
           std::pair{"without moments", Resumption{.with_moments = false}},
           std::pair{"with AdamW's t from 1 again", Resumption{.steps_before = 0}},
           std::pair{"with AdamW's t one too high", Resumption{.steps_before = 5}},
           std::pair{"with a learning rate 1e-3 of itself too large", Resumption{.rate = 1.001}},
           std::pair{"without weight decay", Resumption{.decay = 0.0}},
           std::pair{"with a NaN in the first tensor", Resumption{.with_nan = true}},
       }) {
    const Resumed wrong = resume.run(how);
    judge(report, !(wrong.needed <= kResumedGradient),
          fmt::format("planted: {}: update off by {:.2e}, a gradient would have to err by {:.2e}: "
                      "refused",
                      what, wrong.update_off, wrong.needed));
  }
}

void check_case(Report& report, const fs::path& model, const fs::path& folder) {
  const Case about(folder);
  fmt::print("\n{} (eps {})\n", folder.string(), about.settings.eps);
  report.table = folder.filename().string();
  checks::Engine engine(model);
  check_steps(report, engine, about);
  check_resume(report, engine, about);
}

}  // namespace

int main(int argc, char** argv) {
  engine::cli::wait_passively(argv);
  CLI::App app("Ten training steps of the engine against an independent float64 trajectory.");
  std::string model, reference, out;
  auto* model_option = app.add_option("--model", model, "checkpoint folder");
  auto* reference_option = app.add_option("--reference", reference, "folder of one trajectory");
  reference_option->needs(model_option);
  model_option->needs(reference_option);
  app.add_option("--out", out, "write the tables as JSON lines");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  try {
    Report report(out);
    if (!model.empty()) {
      check_case(report, model, reference);
      return report.tally.finish(report.record);
    }
    const auto checkpoint = checks::reference_data("ckpt_tiny");
    for (const char* name : {"tiny_traj", "tiny_traj_wc"}) {
      const auto folder = checks::reference_data(std::string("grad/") + name);
      if (checkpoint && folder) {
        check_case(report, *checkpoint, *folder);
      } else {
        report.tally.absent(checkpoint ? folder : checkpoint);
      }
    }
    return report.tally.finish(report.record);
  } catch (const std::exception& error) {
    fmt::print(stderr, "check_trajectory: {}\n", error.what());
    return 1;
  }
}
