#pragma once

#include <string_view>

namespace engine::cli {

// While it stands, the first SIGINT or SIGTERM is a wish: asked() says so from then on, and `heard`, a text
// that must stay, on standard error that it was heard. The second ends the process at once, as without this.
class StopSignals {
 public:
  explicit StopSignals(std::string_view heard);
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  static bool asked();
};

}  // namespace engine::cli
