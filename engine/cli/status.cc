#include "engine/cli/status.h"

#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "engine/base/decimal.h"
#include "engine/cli/common.h"
#include "engine/cli/progress.h"
#include "engine/train/status.h"

namespace engine::cli {
namespace {

struct StatusArguments {
  std::string run, stalled_after;
  bool json = false;
};

void line(const char* name, const std::string& text) { say("{:<9} {}\n", name, text); }

// Epochs of the data taken, in hundredths.
double epochs(const train::RunStatus& status) {
  if (status.sequences == 0) return 0.0;
  return static_cast<double>(status.cursor) / static_cast<double>(status.sequences);
}

std::string standing(const train::RunStatus& s) {
  std::string text = fmt::format("{}: {} of {} steps", train::name_of(s.standing), s.step, s.steps);
  if (s.standing == train::Standing::kRunning || s.standing == train::Standing::kStalled) {
    if (s.where) text += fmt::format("; in {}", train::describe(*s.where));
    text += fmt::format("; last sign of life {} ago", format_seconds(s.silent_seconds));
  } else if (s.standing == train::Standing::kDead) {
    if (s.where) {
      text +=
          fmt::format("; it {} in {}", train::verb_of(s.where->ending), train::describe(*s.where));
    }
    text += "; its command with --resume goes on";
  }
  return text;
}

void print_screen(const std::string& run, const train::RunStatus& s) {
  line("run", fmt::format("{} in {}", s.run_id, run));
  line("state", standing(s));
  std::string losses;
  for (const train::LossAt& at : s.losses) losses += fmt::format("{:.6f}  ", at.loss);
  if (!s.losses.empty()) {
    line("loss",
         fmt::format("{}(steps {} ... {})", losses, s.losses.front().step, s.losses.back().step));
  }
  if (s.held_out) {
    line("held out", fmt::format("{:.6f}  (behind step {})", s.held_out->loss, s.held_out->step));
  }
  line("data",
       fmt::format("{} sequences taken, {:.2f} times all {}", s.cursor, epochs(s), s.sequences));
  if (s.seconds_a_step) {
    line("cadence", format_seconds(*s.seconds_a_step) + " a step, with what is due between");
    line("to go", format_seconds(*s.seconds_to_go));
  }
  line("saved", s.checkpoint.empty() ? "nothing yet"
                                     : fmt::format("{} ({})", s.checkpoint.string(),
                                                   base::format_bytes(s.checkpoint_bytes)));
  line("memory",
       fmt::format("{} resident, at most {}, {} swapped", base::format_bytes(s.rss_bytes),
                   base::format_bytes(s.peak_rss_bytes), base::format_bytes(s.swap_bytes)));
  line("disk", fmt::format("{} free", base::format_bytes(s.disk_free_bytes)));
}

nlohmann::ordered_json json_of(const std::string& run, const train::RunStatus& s) {
  using Json = nlohmann::ordered_json;
  const auto number = [](const std::optional<double>& value) {
    return value && std::isfinite(*value) ? Json(*value) : Json(nullptr);
  };
  const auto loss = [&](const train::LossAt& at) {
    return Json{{"step", at.step}, {"loss", number(at.loss)}};
  };
  Json losses = Json::array();
  for (const train::LossAt& at : s.losses) losses.push_back(loss(at));
  // Its file says how it ended only once it has.
  const bool alive =
      s.standing == train::Standing::kRunning || s.standing == train::Standing::kStalled;
  Json where = nullptr;
  if (s.where) {
    where = {{"step", s.where->step},
             {"phase", s.where->phase},
             {"layer", s.where->layer},
             {"ending", alive ? Json(nullptr) : Json(train::verb_of(s.where->ending))}};
  }
  return {{"run", s.run_id},
          {"folder", run},
          {"state", train::name_of(s.standing)},
          {"step", s.step},
          {"steps", s.steps},
          {"losses", losses},
          {"held_out", s.held_out ? loss(*s.held_out) : Json(nullptr)},
          {"cursor", s.cursor},
          {"sequences", s.sequences},
          {"seconds_a_step", number(s.seconds_a_step)},
          {"seconds_to_go", number(s.seconds_to_go)},
          {"silent_seconds", number(s.silent_seconds)},
          {"where", where},
          {"checkpoint", s.checkpoint.empty() ? Json(nullptr) : Json(s.checkpoint.string())},
          {"checkpoint_step", s.checkpoint_step},
          {"checkpoint_bytes", s.checkpoint_bytes},
          {"rss_bytes", s.rss_bytes},
          {"peak_rss_bytes", s.peak_rss_bytes},
          {"swap_bytes", s.swap_bytes},
          {"disk_free_bytes", s.disk_free_bytes}};
}

void run_status(const StatusArguments& given) {
  std::optional<double> stalled_after;
  if (!given.stalled_after.empty()) {
    stalled_after = base::parse_decimal<double>(given.stalled_after);
    if (!stalled_after || !(*stalled_after >= 0.0)) {
      throw CLI::ValidationError(fmt::format(
          "--stalled-after is \"{}\": must be seconds, 0 or more", given.stalled_after));
    }
  }
  const train::RunStatus status = train::read_status(given.run, stalled_after);
  if (given.json) {
    say_json(json_of(given.run, status)
                 .dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) +
             '\n');
  } else {
    print_screen(given.run, status);
  }
  throw CLI::RuntimeError(static_cast<int>(status.standing));
}

}  // namespace

void add_status_command(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("status", "how a run stands, whether it is at work or not");
  command->footer(
      "Exit codes: 0 finished; 3 running; 4 stalled; 5 dead, whatever it died of; 1 no run, or it "
      "cannot be read or contradicts itself; 2 bad usage. Whether a process works on the run is "
      "asked of the kernel: it "
      "holds a lock on RUN/lock for as long as it lives.");
  const auto given = std::make_shared<StatusArguments>();
  command->add_option("run", given->run, "run folder")->required();
  command->add_flag("--json", given->json, "as JSON");
  command
      ->add_option("--stalled-after", given->stalled_after,
                   "seconds without a sign of life that are too many (default: five steps' time, a "
                   "minute at least)")
      ->type_name("SECONDS")
      ->check(refuse_empty);
  command->callback([given] { run_status(*given); });
}

}  // namespace engine::cli
