#include "engine/cli/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>

namespace engine::cli {
namespace {

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

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

}  // namespace

std::string format_seconds(double seconds) {
  const auto whole = static_cast<std::int64_t>(seconds + 0.5);
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{} min {:02} s", whole / 60, whole % 60);
  return fmt::format("{} h {:02} min", whole / 3600, whole % 3600 / 60);
}

ProgressLine::ProgressLine(std::FILE* to, std::int64_t steps, std::int64_t first_step,
                           std::int64_t layers)
    : to_(to),
      terminal_(::isatty(::fileno(to)) == 1),
      steps_(steps),
      first_step_(first_step),
      layers_(layers),
      started_(seconds_now()) {}

ProgressLine::~ProgressLine() { erase(); }

void ProgressLine::move(std::int64_t step, std::string_view direction, std::int64_t layer) {
  if (!terminal_) return;
  const bool forward = direction == "forward";
  const double walked = static_cast<double>(forward ? layer + 1 : 2 * layers_ - layer);
  const double part = (static_cast<double>(step - 1) + walked / static_cast<double>(2 * layers_)) /
                      static_cast<double>(steps_);
  draw(fmt::format("[{}] step {}/{} {:<8} layer {:>2}/{} {}", bar(part), step, steps_, direction,
                   layer, layers_, last_));
}

void ProgressLine::finish_step(std::int64_t step, const std::string& text) {
  const double cadence = (seconds_now() - started_) / static_cast<double>(step - first_step_ + 1);
  last_ = fmt::format("{}  {} to go", text,
                      format_seconds(cadence * static_cast<double>(steps_ - step)));
  note(fmt::format("step {}/{}  {}", step, steps_, last_));
}

void ProgressLine::note(const std::string& text) {
  erase();
  put(text + '\n');
}

void ProgressLine::draw(const std::string& text) {
  put("\r\x1b[K" + text.substr(0, columns(to_)));
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
