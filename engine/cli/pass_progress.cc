#include "engine/cli/pass_progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

#include "engine/base/budget.h"

namespace engine::cli {

PassProgress::PassProgress(std::uint64_t total)
    : total_(total), shown_(::isatty(STDERR_FILENO) == 1) {}

PassProgress::~PassProgress() {
  if (shown_) fmt::print(stderr, "\r{:60}\r", "");
}

void PassProgress::add(std::uint64_t bytes) {
  done_ += bytes;
  if (!shown_ || done_ * 100 / total_ == percent_) return;
  percent_ = done_ * 100 / total_;
  fmt::print(stderr, "\rreading {:>3} % of {}", percent_, base::format_bytes(total_));
  std::fflush(stderr);
}

}  // namespace engine::cli
