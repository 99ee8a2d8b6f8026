#include "engine/cli/output_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>

#include "engine/base/error.h"

namespace engine::cli {
namespace {

std::filesystem::path lock_name(const std::filesystem::path& out) {
  std::filesystem::path whole = std::filesystem::absolute(out).lexically_normal();
  if (!whole.has_filename()) whole = whole.parent_path();  // "a/b/" is "a/b"
  return whole += ".lock";
}

// Whoever held the lock before may have removed the name since it was opened here.
bool still_named(int descriptor, const std::filesystem::path& path) {
  struct stat held {
  }, named{};
  return ::fstat(descriptor, &held) == 0 && ::stat(path.c_str(), &named) == 0 &&
         held.st_ino == named.st_ino && held.st_dev == named.st_dev;
}

}  // namespace

OutputLock::OutputLock(const std::filesystem::path& out) : path_(lock_name(out)) {
  std::error_code failed;
  std::filesystem::create_directories(path_.parent_path(), failed);
  descriptor_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (descriptor_ < 0) throw base::Error("{}: {}", path_.string(), std::strerror(errno));
  if (::flock(descriptor_, LOCK_EX | LOCK_NB) == 0 && still_named(descriptor_, path_)) return;
  ::close(descriptor_);
  throw base::Error("{}: another process is making it ({})", out.string(), path_.string());
}

OutputLock::~OutputLock() {
  ::unlink(path_.c_str());
  ::close(descriptor_);
}

}  // namespace engine::cli
