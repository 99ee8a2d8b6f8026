#include "engine/store/durable.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "engine/base/error.h"

namespace engine::store {

namespace {

using base::Error;

// "a/b/" and "a/./b" name the same folder as "a/b": the temporary must stand beside it, not in it.
std::filesystem::path plain_name(const std::filesystem::path& path) {
  const std::filesystem::path whole = std::filesystem::absolute(path).lexically_normal();
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

std::filesystem::path temporary_name(std::filesystem::path name) { return name += ".tmp"; }

void rename_durably(const std::filesystem::path& from, const std::filesystem::path& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) {
    throw Error("{}: cannot be renamed to {}: {}", from.string(), to.string(),
                std::strerror(errno));
  }
  sync_path(to.parent_path(), O_DIRECTORY);
}

}  // namespace

DurableFile::DurableFile(const std::filesystem::path& path)
    : final_(plain_name(path)),
      temporary_(temporary_name(final_)),
      descriptor_(::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)) {
  if (descriptor_ < 0) {
    throw Error("{}: cannot be opened for writing: {}", temporary_.string(), std::strerror(errno));
  }
}

DurableFile::~DurableFile() {
  ::close(descriptor_);
  if (!committed_) ::unlink(temporary_.c_str());
}

void DurableFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
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

void DurableFile::commit() {
  publish_file(descriptor_, temporary_, final_);
  committed_ = true;
}

void publish_file(int descriptor, const std::filesystem::path& temporary,
                  const std::filesystem::path& final) {
  sync_descriptor(descriptor, temporary);
  rename_durably(temporary, final);
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
    : final_(plain_name(path)), temporary_(temporary_name(final_)) {
  std::error_code failed;
  std::filesystem::remove_all(temporary_, failed);
  if (!failed) std::filesystem::create_directories(temporary_, failed);
  if (failed) throw Error("{}: cannot be created: {}", temporary_.string(), failed.message());
}

TemporaryFolder::~TemporaryFolder() {
  if (committed_) return;
  std::error_code ignored;
  std::filesystem::remove_all(temporary_, ignored);
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
  rename_durably(temporary_, final_);
  committed_ = true;
}

}  // namespace engine::store
