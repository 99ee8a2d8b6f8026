#include "engine/cli/stop_signals.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>

#include "engine/store/unfinished.h"

namespace engine::cli {
namespace {

std::atomic<bool> heard{false};
std::string_view line;  // as long as a handler is set it does not change
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler may touch it");

// A signal that is ignored stays so: a shell means it that starts this in the background.
void set(void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;  // a read or write under way goes on
  for (const int signal : {SIGINT, SIGTERM}) {
    struct sigaction before {};
    ::sigaction(signal, nullptr, &before);
    if (before.sa_handler != SIG_IGN) ::sigaction(signal, &action, nullptr);
  }
}

// Only what a signal handler may do, here and below.
void wish_or_end(int signal) {
  set(SIG_DFL);
  if (!store::wish_to_stop()) ::raise(signal);
}

void hear(int) {
  heard = true;
  set(SIG_DFL);
  static_cast<void>(::write(STDERR_FILENO, line.data(), line.size()) < 0);
}

}  // namespace

void hear_signals() { set(wish_or_end); }

StopSignals::StopSignals(std::string_view when_heard) {
  heard = false;
  line = when_heard;
  set(hear);
}

StopSignals::~StopSignals() { hear_signals(); }

bool StopSignals::asked() { return heard; }

}  // namespace engine::cli
