#pragma once

#include <filesystem>

namespace engine::train {

// Says that a process works on a run: a lock on RUN/lock, which the kernel takes back when the process
// ends, however it ends. A process id in a file would be a guess: ids are given out again, and a
// process that was killed cannot remove the file.
class RunLock {
 public:
  // Errors    Error if another process works on the run, or RUN/lock cannot be made
  explicit RunLock(const std::filesystem::path& run);
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

  // Whether some process holds it. Asks without taking it: a run that starts at the same moment is
  // not disturbed. On network file systems the answer is only as good as their locks.
  // Errors    Error if RUN/lock is there and cannot be asked
  static bool held(const std::filesystem::path& run);

 private:
  int descriptor_ = -1;
};

}  // namespace engine::train
