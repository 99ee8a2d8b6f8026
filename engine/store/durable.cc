#include "engine/store/durable.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "engine/base/error.h"
#include "engine/store/at_path.h"

namespace engine::store {

namespace {

using base::Error;

// "a/b/" and "a/./b" name the same folder as "a/b": the temporary must stand beside it, not in it.
std::filesystem::path plain_name(const std::filesystem::path& path) {
  const std::filesystem::path whole = absolute_path(path).lexically_normal();
  return whole.has_filename() ? whole : whole.parent_path();
}

void sync_descriptor(int descriptor, const std::filesystem::path& path) {
  if (::fsync(descriptor) != 0) {
    throw Error("{}: cannot be made durable (fsync): {}", path.string(), std::strerror(errno));
  }
}

void sync_path(const std::filesystem::path& path, int flags) {
  const int descriptor = ::open(path.c_str(), flags | O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) {
    throw Error("{}: cannot be opened to make it durable: {}", path.string(), std::strerror(errno));
  }
  try {
    sync_descriptor(descriptor, path);
  } catch (...) {
    ::close(descriptor);
    throw;
  }
  ::close(descriptor);
}

std::filesystem::path temporary_name(std::filesystem::path name) { return name += ".lazylora-tmp"; }

void rename_durably(const std::filesystem::path& from, const std::filesystem::path& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) {
    throw Error("{}: cannot be renamed to {}: {}", from.string(), to.string(),
                std::strerror(errno));
  }
  sync_path(to.parent_path(), O_DIRECTORY);
}

// Whoever had it before may have renamed or removed it since it was opened here.
bool still_named(int descriptor, const std::filesystem::path& path) {
  struct stat held {
  }, named{};
  return ::fstat(descriptor, &held) == 0 && ::stat(path.c_str(), &named) == 0 &&
         held.st_ino == named.st_ino && held.st_dev == named.st_dev;
}

int claim(const std::filesystem::path& temporary, int flags) {
  for (;;) {
    const int descriptor = ::open(temporary.c_str(), flags | O_CLOEXEC, 0666);
    if (descriptor < 0) {
      throw Error("{}: cannot be opened for writing: {}", temporary.string(), std::strerror(errno));
    }
    // A file system without locks has no say in this.
    if (::flock(descriptor, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
      ::close(descriptor);
      throw Error("{}: another process is writing it", temporary.string());
    }
    if (still_named(descriptor, temporary)) return descriptor;
    ::close(descriptor);
  }
}

void create_folder(const std::filesystem::path& folder) {
  std::error_code failed;
  std::filesystem::create_directories(folder, failed);
  if (failed) throw Error("{}: cannot be created: {}", folder.string(), failed.message());
}

// An empty file that is ours alone.
int claim_file(const std::filesystem::path& temporary) {
  create_folder(temporary.parent_path());
  // Not O_TRUNC: that would empty the file of a writer who is at work.
  const int descriptor = claim(temporary, O_RDWR | O_CREAT);
  // What is no regular file holds nothing.
  if (::ftruncate(descriptor, 0) == 0 || errno == EINVAL) return descriptor;
  const int reason = errno;
  ::close(descriptor);
  throw Error("{}: cannot be emptied: {}", temporary.string(), std::strerror(reason));
}

// An empty folder that is ours alone.
int claim_folder(const std::filesystem::path& folder) {
  create_folder(folder);
  const int descriptor = claim(folder, O_RDONLY | O_DIRECTORY);
  std::error_code failed;
  for (const auto& entry : std::filesystem::directory_iterator(folder, failed)) {
    if (!failed) std::filesystem::remove_all(entry.path(), failed);
  }
  if (!failed) return descriptor;
  ::close(descriptor);
  throw Error("{}: cannot be emptied: {}", folder.string(), failed.message());
}

}  // namespace

void require_unused(const std::filesystem::path& out, EmptyFolder empty) {
  const std::filesystem::path name = plain_name(out);
  std::error_code failed;
  const std::filesystem::file_status status = std::filesystem::symlink_status(name, failed);
  if (!std::filesystem::exists(status)) return;
  if (std::filesystem::is_symlink(status)) {
    throw Error("{}: is a link to {}, and nothing is written over: name the place itself",
                out.string(), std::filesystem::read_symlink(name, failed).string());
  }
  if (empty == EmptyFolder::kRefused) {
    throw Error("{}: is there already, and nothing is written over", out.string());
  }
  if (!std::filesystem::is_directory(status) || !store::is_empty(name)) {
    throw Error("{}: is there already and is no empty folder, and nothing is written over",
                out.string());
  }
}

DurableFile::DurableFile(const std::filesystem::path& path)
    : final_(plain_name(path)),
      temporary_(temporary_name(final_)),
      unfinished_(final_),
      descriptor_(claim_file(temporary_)) {}

DurableFile::~DurableFile() {
  if (!unfinished_.is_finished()) ::unlink(temporary_.c_str());
  ::close(descriptor_);
}

void DurableFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    stop_if_wished();
    const ssize_t written = ::write(descriptor_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) {
      throw Error("{}: write failed at offset {}, {} bytes not written: {}", temporary_.string(),
                  size_, bytes.size(), written < 0 ? std::strerror(errno) : "nothing accepted");
    }
    size_ += static_cast<std::uint64_t>(written);
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

void DurableFile::skip(std::uint64_t bytes) {
  const std::uint64_t end = size_ + bytes;
  if (::ftruncate(descriptor_, static_cast<off_t>(end)) != 0 ||
      ::lseek(descriptor_, static_cast<off_t>(end), SEEK_SET) < 0) {
    throw Error("{}: a hole of {} bytes at offset {} failed: {}", temporary_.string(), bytes, size_,
                std::strerror(errno));
  }
  size_ = end;
}

void DurableFile::commit() {
  sync_descriptor(descriptor_, temporary_);
  stop_if_wished();
  rename_durably(temporary_, final_);
  unfinished_.finish();
}

void write_file_durably(const std::filesystem::path& path, std::span<const std::byte> bytes) {
  DurableFile file(path);
  file.write(bytes);
  file.commit();
}

void write_file_durably(const std::filesystem::path& path, std::string_view text) {
  write_file_durably(path, std::as_bytes(std::span(text)));
}

TemporaryFolder::TemporaryFolder(const std::filesystem::path& path)
    : final_(plain_name(path)),
      temporary_(temporary_name(final_)),
      unfinished_(final_),
      descriptor_(claim_folder(temporary_)) {}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  if (!unfinished_.is_finished()) std::filesystem::remove_all(temporary_, ignored);
  ::close(descriptor_);
}

void TemporaryFolder::commit() {
  std::error_code failed;
  std::filesystem::recursive_directory_iterator below(temporary_, failed);
  for (; !failed && below != std::filesystem::recursive_directory_iterator();
       below.increment(failed)) {
    sync_path(below->path(), below->is_directory() ? O_DIRECTORY : 0);
  }
  if (failed) throw Error("{}: cannot be listed: {}", temporary_.string(), failed.message());
  sync_path(temporary_, O_DIRECTORY);
  stop_if_wished();
  rename_durably(temporary_, final_);
  unfinished_.finish();
}

}  // namespace engine::store
