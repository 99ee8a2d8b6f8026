#pragma once

#include <string_view>

namespace engine::cli {

// From here on, where something is unfinished, the first SIGINT or SIGTERM is a wish that it stops
// (engine/store/unfinished.h). Elsewhere it ends the process at once, and so does the second anywhere.
void hear_signals();

// While it stands, the first SIGINT or SIGTERM is a wish of another kind, for what is to be saved and not removed:
// asked() says so from then on, and `heard`, a text that must stay, on standard error that it was heard.
class StopSignals {
 public:
  explicit StopSignals(std::string_view heard);
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  static bool asked();
};

}  // namespace engine::cli
