#pragma once

#include <filesystem>

namespace engine::cli {

// Held while OUT is made, so that of two programs that make the same one the second is refused:
// both would write OUT.tmp. A file OUT.lock beside it, removed at the end; one that a kill left is
// taken over.
class OutputLock {
 public:
  // Creates the folders above OUT, as making OUT would.
  // Errors    Error if another process holds the lock, or it cannot be made
  explicit OutputLock(const std::filesystem::path& out);
  ~OutputLock();
  OutputLock(const OutputLock&) = delete;
  OutputLock& operator=(const OutputLock&) = delete;

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
};

}  // namespace engine::cli
