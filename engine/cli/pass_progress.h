#pragma once

#include <cstdint>

namespace engine::cli {

// Redraws one line of stderr a percent; nothing where nobody looks.
class PassProgress {
 public:
  explicit PassProgress(std::uint64_t total);
  ~PassProgress();
  PassProgress(const PassProgress&) = delete;
  PassProgress& operator=(const PassProgress&) = delete;

  void add(std::uint64_t bytes);

 private:
  std::uint64_t total_;
  std::uint64_t done_ = 0;
  std::uint64_t percent_ = 0;
  bool shown_;
};

}  // namespace engine::cli
