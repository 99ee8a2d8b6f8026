#include "engine/store/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cassert>
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
std::shared_ptr<Descriptor> open_regular(const std::filesystem::path& path, Identity& identity,
                                         int flags = 0) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) throw_not_opened(path, errno);
  require_regular(path, status);
  const int value = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC | flags);
  if (value < 0) throw_not_opened(path, errno);
  auto descriptor = std::make_shared<Descriptor>(value);
  if (::fstat(value, &status) != 0) throw_not_opened(path, errno);
  require_regular(path, status);
  // An io_uring read of a descriptor that may not block fails where it would have to wait.
  ::fcntl(value, F_SETFL, ::fcntl(value, F_GETFL) & ~O_NONBLOCK);
  identity = identity_of(status);
  return descriptor;
}

bool may_come_back(int error) { return error == EIO || error == ENODEV || error == ENXIO; }

// A kernel or file system that does not say is tried with the block size.
std::uint32_t alignment_from_statx(int descriptor) {
#ifdef STATX_DIOALIGN
  struct statx status {};
  if (::statx(descriptor, "", AT_EMPTY_PATH, STATX_DIOALIGN, &status) == 0 &&
      (status.stx_mask & STATX_DIOALIGN) != 0) {
    return std::max(status.stx_dio_mem_align, status.stx_dio_offset_align);
  }
#endif
  return kBlock;
}

void require_range(const std::filesystem::path& path, std::uint64_t offset, std::size_t bytes) {
  constexpr std::uint64_t kEnd = std::numeric_limits<off_t>::max();
  if (offset > kEnd || bytes > kEnd - offset) {
    throw Error("{}: a read of {} bytes at offset {} is beyond what a file can hold", path.string(),
                bytes, offset);
  }
}

}  // namespace

struct File::State {
  std::filesystem::path path;
  ReadSettings settings;
  Identity identity;
  // Guards what stands below; a thread keeps the descriptor that it reads from alive.
  std::mutex mutex;
  std::shared_ptr<Descriptor> descriptor;
  std::shared_ptr<Descriptor> direct;  // none: reads are buffered
  std::string why_buffered = "direct reads were not asked for";
  std::atomic<std::uint64_t> retried = 0;

  std::shared_ptr<Descriptor> current() {
    const std::lock_guard lock(mutex);
    return descriptor;
  }

  std::shared_ptr<Descriptor> current_direct() {
    const std::lock_guard lock(mutex);
    return direct;
  }

  void set_direct(std::shared_ptr<Descriptor> fresh, std::string why) {
    const std::lock_guard lock(mutex);
    direct = std::move(fresh);
    why_buffered = std::move(why);
  }

  ssize_t transfer(int from, std::byte* to, std::size_t count, std::uint64_t offset) const {
    return settings.pread(from, to, count, static_cast<off_t>(offset));
  }

  void open_direct();
  std::size_t read_blocks(std::uint64_t offset, std::size_t bytes, std::span<std::byte> room);
  void read_on(std::uint64_t offset, std::size_t got, std::span<std::byte> out);

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
    const bool was_direct = current_direct() != nullptr;
    {
      const std::lock_guard lock(mutex);
      descriptor = std::move(fresh);
    }
    if (was_direct) open_direct();
  }
};

std::size_t room_bytes(std::uint64_t offset, std::size_t bytes) {
  const std::size_t before = offset % kBlock;
  return (before + bytes + kBlock - 1) / kBlock * kBlock;
}

void File::State::open_direct() {
  Identity found;
  std::shared_ptr<Descriptor> fresh;
  try {
    fresh = open_regular(path, found, O_DIRECT);
  } catch (const Error& refused) {
    return set_direct(nullptr, std::string("refused when opened: ") + refused.what());
  }
  if (found != identity) return set_direct(nullptr, path.string() + ": another file stands there");
  const std::uint32_t alignment = settings.direct_alignment(fresh->value());
  if (alignment == 0 || kBlock % alignment != 0) {
    return set_direct(nullptr, fmt::format("{}: direct reads there want an alignment of {}, {} can "
                                           "be had",
                                           path.string(), alignment, kBlock));
  }
  set_direct(std::move(fresh), "");
}

// Whole blocks into `room`, for as long as that goes well; returns how many of the bytes wanted are
// there. Every trouble is left to read_on, the one place that knows about troubles.
//
// A call may come up short in the middle of a block, by a multiple of a sector: the block is asked
// for again as a whole. To go on from where the transfer stopped would ask for an offset that the
// device need not accept; to take the block for read would deliver what was in the room before.
std::size_t File::State::read_blocks(std::uint64_t offset, std::size_t bytes,
                                     std::span<std::byte> room) {
  const std::size_t before = offset % kBlock;
  const std::size_t length = room_bytes(offset, bytes);
  const std::size_t chunk = std::max(settings.chunk_bytes / kBlock * kBlock, kBlock);
  std::size_t whole = 0;  // bytes of whole blocks that are there
  while (whole < before + bytes) {
    const std::shared_ptr<Descriptor> from = current_direct();
    if (!from) break;
    const ssize_t count = transfer(from->value(), room.data() + whole,
                                   std::min(chunk, length - whole), offset - before + whole);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EINVAL) {
      set_direct(nullptr, fmt::format("{}: refused when read at offset {}: {}", path.string(),
                                      offset - before + whole, reason(EINVAL)));
    }
    if (count <= 0) break;
    const std::size_t there = whole + static_cast<std::size_t>(count);
    if (there >= before + bytes) return bytes;
    if (there / kBlock * kBlock == whole) break;
    whole = there / kBlock * kBlock;
  }
  return whole > before ? whole - before : 0;
}

File::File(const std::filesystem::path& path, const ReadSettings& settings)
    : state_(std::make_unique<State>()) {
  state_->path = path;
  state_->settings = settings;
  if (settings.pread == nullptr) state_->settings.pread = ::pread;
  if (settings.direct_alignment == nullptr) {
    state_->settings.direct_alignment = alignment_from_statx;
  }
  state_->descriptor = open_regular(path, state_->identity);
}
File::~File() = default;
File::File(File&& other) noexcept = default;
File& File::operator=(File&& other) noexcept = default;

// Bytes [offset + got, offset + out.size()).
void File::State::read_on(std::uint64_t offset, std::size_t got, std::span<std::byte> out) {
  std::shared_ptr<Descriptor> from = current();
  int attempt = 1;
  while (got < out.size()) {
    const std::size_t wanted = std::min(settings.chunk_bytes, out.size() - got);
    const std::uint64_t at = offset + got;
    const ssize_t count = transfer(from->value(), out.data() + got, wanted, at);
    if (count > 0) {
      got += static_cast<std::size_t>(count);
      continue;
    }
    if (count == 0) {
      throw Error("{}: short read at offset {}, got {} of {} bytes (the file had {} when opened)",
                  path.string(), offset, got, out.size(), identity.size);
    }
    const int error = errno;
    if (error == EINTR) continue;
    if (!may_come_back(error) || attempt >= settings.attempts) {
      throw Error("{}: read of {} bytes at offset {} failed after {} of them, attempt {} of {}: {}",
                  path.string(), out.size(), offset, got, attempt, settings.attempts,
                  reason(error));
    }
    std::this_thread::sleep_for(settings.first_pause * (1 << (attempt - 1)));
    ++attempt;
    ++retried;
    reopen(at, error);
    from = current();
  }
}

void File::read(std::uint64_t offset, std::span<std::byte> out) const {
  require_range(state_->path, offset, out.size());
  state_->read_on(offset, 0, out);
}

std::span<std::byte> File::read_within(std::uint64_t offset, std::size_t bytes,
                                       std::span<std::byte> room) const {
  require_range(state_->path, offset, bytes);
  assert(room.size() >= room_bytes(offset, bytes));
  const std::span<std::byte> wanted = room.subspan(offset % kBlock, bytes);
  state_->read_on(offset, state_->read_blocks(offset, bytes, room), wanted);
  return wanted;
}

RawRead File::raw(std::uint64_t offset, std::size_t bytes) const {
  require_range(state_->path, offset, bytes);
  const std::size_t before = offset % kBlock;
  if (std::shared_ptr<Descriptor> direct = state_->current_direct()) {
    const int descriptor = direct->value();
    return {std::move(direct),         descriptor,    true, offset - before, 0,
            room_bytes(offset, bytes), before + bytes};
  }
  std::shared_ptr<Descriptor> buffered = state_->current();
  const int descriptor = buffered->value();
  return {std::move(buffered), descriptor, false, offset, before, bytes, bytes};
}

void File::read_directly() { state_->open_direct(); }

std::string File::why_buffered() const {
  const std::lock_guard lock(state_->mutex);
  return state_->why_buffered;
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
