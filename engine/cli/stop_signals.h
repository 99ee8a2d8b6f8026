#pragma once

namespace engine::cli {

// While it stands, the first SIGINT or SIGTERM is a wish: asked() says so from then on, and a line on
// standard error that it was heard. The second ends the process at once, as without this.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  static bool asked();
};

}  // namespace engine::cli
