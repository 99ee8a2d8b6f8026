#pragma once

#include <filesystem>

namespace engine::store {

// What is being written and does not bear its name yet. As long as it stands, SIGINT or SIGTERM is a wish: whoever
// writes it, or computes what is to be written, asks for it between two pieces and stops with an Error, behind which
// what was written is removed as behind any other. Signals are the process's, and so is this.
class Unfinished {
 public:
  explicit Unfinished(std::filesystem::path name);
  ~Unfinished() { finish(); }
  Unfinished(const Unfinished&) = delete;
  Unfinished& operator=(const Unfinished&) = delete;

  // It bears its name.
  void finish();
  bool is_finished() const { return finished_; }

 private:
  friend void stop_if_wished();
  const std::filesystem::path name_;
  bool finished_ = false;
};

// For a signal's handler. False if nothing is unfinished: then there is nothing to remove.
bool wish_to_stop() noexcept;

// Cost      a look at a flag
// Errors    Error naming what is unfinished, the outermost, once it is wished to stop
void stop_if_wished();

}  // namespace engine::store
