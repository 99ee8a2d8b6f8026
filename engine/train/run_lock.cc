#include "engine/train/run_lock.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "engine/base/error.h"

namespace engine::train {
namespace {

std::filesystem::path lock_of(const std::filesystem::path& run) { return run / "lock"; }

// Of an open file, not of a process: closing the same file elsewhere in it does not give it up.
struct flock whole_file() {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  return lock;
}

}  // namespace

RunLock::RunLock(const std::filesystem::path& run)
    : descriptor_(::open(lock_of(run).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644)) {
  if (descriptor_ < 0) throw base::Error("{}: {}", lock_of(run).string(), std::strerror(errno));
  struct flock lock = whole_file();
  if (::fcntl(descriptor_, F_OFD_SETLK, &lock) == 0) return;
  const int reason = errno;
  ::close(descriptor_);
  if (reason == EAGAIN || reason == EACCES) {
    throw base::Error("{}: another process works on this run (it holds {})", run.string(),
                      lock_of(run).string());
  }
  throw base::Error("{}: {}", lock_of(run).string(), std::strerror(reason));
}

RunLock::~RunLock() { ::close(descriptor_); }

bool RunLock::held(const std::filesystem::path& run) {
  const int descriptor = ::open(lock_of(run).c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0 && errno == ENOENT) return false;
  if (descriptor < 0) throw base::Error("{}: {}", lock_of(run).string(), std::strerror(errno));
  struct flock lock = whole_file();
  const bool asked = ::fcntl(descriptor, F_OFD_GETLK, &lock) == 0;
  const int reason = errno;
  ::close(descriptor);
  if (!asked) throw base::Error("{}: {}", lock_of(run).string(), std::strerror(reason));
  return lock.l_type != F_UNLCK;
}

}  // namespace engine::train
