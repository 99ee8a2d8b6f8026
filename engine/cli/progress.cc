#include "engine/cli/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <optional>

#include "engine/cli/say.h"

namespace engine::cli {
namespace {

std::string bar(double part) {
  constexpr int kWidth = 20;
  const int filled = static_cast<int>(std::clamp(part, 0.0, 1.0) * kWidth);
  return std::string(static_cast<std::size_t>(filled), '#') +
         std::string(static_cast<std::size_t>(kWidth - filled), '.');
}

// A line that wraps could not be redrawn in place.
std::size_t columns(std::FILE* terminal) {
  winsize size{};
  const bool known = ::ioctl(::fileno(terminal), TIOCGWINSZ, &size) == 0 && size.ws_col > 1;
  return known ? size.ws_col - 1u : 79u;
}

// Nothing where no time has passed.
std::string rate(double amount, double seconds, const char* unit) {
  if (!(seconds > 0.0)) return "";
  return fmt::format("  {:.4g} {}", amount / seconds, unit);
}

}  // namespace

std::string format_seconds(double seconds) {
  if (seconds < 9.995) return fmt::format("{:.3g} s", seconds);  // else it would be 10.0
  const auto whole = static_cast<std::int64_t>(seconds + 0.5);
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{} min {:02} s", whole / 60, whole % 60);
  return fmt::format("{} h {:02} min", whole / 3600, whole % 3600 / 60);
}

ProgressLine::ProgressLine(std::FILE* to, const train::Settings& settings, std::int64_t layers)
    : to_(to), terminal_(::isatty(::fileno(to)) == 1), settings_(settings), layers_(layers) {}

ProgressLine::~ProgressLine() { erase(); }

void ProgressLine::move(const train::Movement& m) {
  if (!terminal_) return;
  const bool down = m.direction == "backward";
  const double halves = m.direction == "evaluation" ? 1.0 : 2.0;
  const double walked = static_cast<double>(down ? 2 * layers_ - m.layer : m.layer + 1);
  draw(fmt::format("[{}] step {}/{} {} layer {}/{}{}{}",
                   bar(walked / (halves * static_cast<double>(layers_))), m.step,
                   settings_.schedule.total, m.direction, m.layer, layers_,
                   rate(static_cast<double>(m.bytes_read) * 1e-6, m.seconds, "MB/s"), last_));
}

void ProgressLine::finish_step(const train::StepReport& report) {
  cadence_.add_step(report.seconds);
  last_ = fmt::format("  loss {:.6f}{}", report.loss, to_go(report.step));
  note(fmt::format("step {}/{}  loss {:.6f}  lr {:.3g}  norm {:.3g}  {} trained{}{}{}", report.step,
                   settings_.schedule.total, report.loss, report.learning_rate, report.grad_norm,
                   report.trained,
                   rate(static_cast<double>(report.tokens), report.seconds, "tokens/s"),
                   rate(static_cast<double>(report.bytes_read) * 1e-6, report.seconds, "MB/s"),
                   to_go(report.step)));
}

void ProgressLine::finish_evaluation(std::int64_t step, const train::Evaluation& evaluation,
                                     double seconds) {
  cadence_.add_evaluation(seconds);
  note(fmt::format("held out, behind step {}  loss {:.6f}  {} trained in {} sequences  {}", step,
                   evaluation.loss, evaluation.trained, evaluation.sequences,
                   format_seconds(seconds)));
}

void ProgressLine::finish_checkpoint(std::int64_t step, const std::string& folder, double seconds) {
  cadence_.add_checkpoint(seconds);
  note(fmt::format("step {} saved in {}", step, folder));
}

std::string ProgressLine::to_go(std::int64_t step) const {
  const std::optional<double> seconds = cadence_.seconds_for(train::remaining(settings_, step));
  return seconds ? fmt::format("  {} to go", format_seconds(*seconds)) : "";
}

void ProgressLine::note(const std::string& text) {
  erase();
  put(harmless(text) + '\n');
}

void ProgressLine::draw(const std::string& text) {
  put("\r\x1b[K" + harmless(text).substr(0, columns(to_)));
  drawn_ = true;
}

void ProgressLine::erase() {
  if (!drawn_) return;
  put("\r\x1b[K");
  drawn_ = false;
}

// Whoever cannot be told is no reason to stop what is being told of, so this does not throw.
void ProgressLine::put(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), to_);
  std::fflush(to_);
}

}  // namespace engine::cli
