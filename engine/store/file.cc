#include "engine/store/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <limits>
#include <mutex>
#include <system_error>
#include <thread>

#include "engine/base/error.h"

namespace engine::store {
namespace {

using base::Error;

std::string reason(int error) { return std::generic_category().message(error); }

struct Identity {
  std::uint64_t size = 0;
  std::int64_t modified_ns = 0;
  std::uint64_t inode = 0;
  bool operator==(const Identity&) const = default;
};

Identity identity_of(const struct stat& status) {
  return {static_cast<std::uint64_t>(status.st_size),
          static_cast<std::int64_t>(status.st_mtim.tv_sec) * 1'000'000'000 +
              static_cast<std::int64_t>(status.st_mtim.tv_nsec),
          static_cast<std::uint64_t>(status.st_ino)};
}

class Descriptor {
 public:
  explicit Descriptor(int value) : value_(value) {}
  ~Descriptor() {
    if (value_ >= 0) ::close(value_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int value() const { return value_; }

 private:
  int value_;
};

std::string kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISFIFO(mode)) return "a FIFO";
  if (S_ISSOCK(mode)) return "a socket";
  if (S_ISCHR(mode)) return "a character device";
  if (S_ISBLK(mode)) return "a block device";
  return "no regular file";
}

void require_regular(const std::filesystem::path& path, const struct stat& status) {
  if (!S_ISREG(status.st_mode)) {
    throw Error("{}: is {}, not a regular file", path.string(), kind_of(status.st_mode));
  }
}

[[noreturn]] void throw_not_opened(const std::filesystem::path& path, int error) {
  struct stat link {};
  if (error == ENOENT && ::lstat(path.c_str(), &link) == 0 && S_ISLNK(link.st_mode)) {
    std::error_code ignored;
    throw Error("{}: is a link to {}, which is not there", path.string(),
                std::filesystem::read_symlink(path, ignored).string());
  }
  throw Error("{}: cannot be opened: {}", path.string(), reason(error));
}

// Looks at the kind before opening: to open a FIFO for reading waits for a writer. O_NONBLOCK is
// for the moment in between, in which the path may have become one.
std::shared_ptr<Descriptor> open_regular(const std::filesystem::path& path, Identity& identity) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) throw_not_opened(path, errno);
  require_regular(path, status);
  const int value = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  if (value < 0) throw_not_opened(path, errno);
  auto descriptor = std::make_shared<Descriptor>(value);
  if (::fstat(value, &status) != 0) throw_not_opened(path, errno);
  require_regular(path, status);
  identity = identity_of(status);
  return descriptor;
}

bool may_come_back(int error) { return error == EIO || error == ENODEV || error == ENXIO; }

}  // namespace

struct File::State {
  std::filesystem::path path;
  ReadSettings settings;
  Identity identity;
  std::mutex mutex;  // guards `descriptor`; a thread keeps the one it reads from alive
  std::shared_ptr<Descriptor> descriptor;
  std::atomic<std::uint64_t> retried = 0;

  std::shared_ptr<Descriptor> current() {
    const std::lock_guard lock(mutex);
    return descriptor;
  }

  // A device that is not back yet leaves the old descriptor in place: the next attempt fails as
  // well.
  void reopen(std::uint64_t offset, int error) {
    Identity found;
    std::shared_ptr<Descriptor> fresh;
    try {
      fresh = open_regular(path, found);
    } catch (const Error&) {
      return;
    }
    if (found != identity) {
      throw Error(
          "{}: read failed at offset {} ({}), and another file stands there now: size {} was {}, "
          "modified {} ns was {} ns, inode {} was {}",
          path.string(), offset, reason(error), found.size, identity.size, found.modified_ns,
          identity.modified_ns, found.inode, identity.inode);
    }
    const std::lock_guard lock(mutex);
    descriptor = std::move(fresh);
  }
};

File::File(const std::filesystem::path& path, const ReadSettings& settings)
    : state_(std::make_unique<State>()) {
  state_->path = path;
  state_->settings = settings;
  if (settings.pread == nullptr) state_->settings.pread = ::pread;
  state_->descriptor = open_regular(path, state_->identity);
}
File::~File() = default;
File::File(File&& other) noexcept = default;
File& File::operator=(File&& other) noexcept = default;

void File::read(std::uint64_t offset, std::span<std::byte> out) const {
  constexpr std::uint64_t kEnd = std::numeric_limits<off_t>::max();
  if (offset > kEnd || out.size() > kEnd - offset) {
    throw Error("{}: a read of {} bytes at offset {} is beyond what a file can hold",
                state_->path.string(), out.size(), offset);
  }
  const ReadSettings& settings = state_->settings;
  std::shared_ptr<Descriptor> descriptor = state_->current();
  int attempt = 1;
  std::size_t got = 0;
  while (got < out.size()) {
    const std::size_t wanted = std::min(settings.chunk_bytes, out.size() - got);
    const std::uint64_t at = offset + got;
    const ssize_t count =
        settings.pread(descriptor->value(), out.data() + got, wanted, static_cast<off_t>(at));
    if (count > 0) {
      got += static_cast<std::size_t>(count);
      continue;
    }
    if (count == 0) {
      throw Error("{}: short read at offset {}, got {} of {} bytes (the file had {} when opened)",
                  state_->path.string(), offset, got, out.size(), state_->identity.size);
    }
    const int error = errno;
    if (error == EINTR) continue;
    if (!may_come_back(error) || attempt >= settings.attempts) {
      throw Error("{}: read of {} bytes at offset {} failed after {} of them, attempt {} of {}: {}",
                  state_->path.string(), out.size(), offset, got, attempt, settings.attempts,
                  reason(error));
    }
    std::this_thread::sleep_for(settings.first_pause * (1 << (attempt - 1)));
    ++attempt;
    ++state_->retried;
    state_->reopen(at, error);
    descriptor = state_->current();
  }
}

std::uint64_t File::size() const { return state_->identity.size; }
std::int64_t File::modified_ns() const { return state_->identity.modified_ns; }
const std::filesystem::path& File::path() const { return state_->path; }
std::uint64_t File::reads_retried() const { return state_->retried; }

std::string read_text(const std::filesystem::path& path, std::uint64_t limit_bytes) {
  const File file(path);
  if (file.size() == 0) throw Error("{}: is empty", path.string());
  if (file.size() > limit_bytes) {
    throw Error("{}: has {} bytes, more than the {} expected at most", path.string(), file.size(),
                limit_bytes);
  }
  std::string text(file.size(), '\0');
  file.read(0, std::as_writable_bytes(std::span(text)));
  return text;
}

}  // namespace engine::store
