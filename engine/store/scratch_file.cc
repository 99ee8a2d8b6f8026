#include "engine/store/scratch_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>

#include "engine/base/error.h"

namespace engine::store {
namespace {

using base::Error;

// Below the largest transfer that Linux makes in one call (2,147,479,552 bytes).
constexpr std::size_t kLargestTransfer = std::size_t{1} << 30;

// Calls transfer(done, wanted now) until `total` bytes are through.
template <class Transfer>
void transfer_all(const std::filesystem::path& folder, const char* verb, std::uint64_t offset,
                  std::size_t total, const Transfer& transfer) {
  std::size_t done = 0;
  while (done < total) {
    const ssize_t n = transfer(done, std::min(total - done, kLargestTransfer));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      throw Error("{}: scratch file: {} {} of {} bytes at offset {}: {}", folder.string(), verb,
                  done, total, offset, n < 0 ? std::strerror(errno) : "nothing more to be had");
    }
    done += static_cast<std::size_t>(n);
  }
}

}  // namespace

ScratchFile::ScratchFile(const std::filesystem::path& folder)
    : folder_(folder), descriptor_(::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600)) {
  if (descriptor_ >= 0) return;
  // Not every file system makes files that never had a name.
  std::string name = (folder / "lazylora.XXXXXX").string();
  descriptor_ = mkostemp(name.data(), O_CLOEXEC);
  if (descriptor_ < 0) {
    throw Error("{}: no scratch file can be made here: {}", folder.string(), std::strerror(errno));
  }
  unlink(name.c_str());
}

ScratchFile::~ScratchFile() { close(descriptor_); }

void ScratchFile::write(std::uint64_t offset, std::span<const std::byte> bytes) {
  transfer_all(folder_, "wrote", offset, bytes.size(), [&](std::size_t done, std::size_t wanted) {
    return pwrite(descriptor_, bytes.data() + done, wanted, static_cast<off_t>(offset + done));
  });
}

void ScratchFile::read(std::uint64_t offset, std::span<std::byte> out) const {
  transfer_all(folder_, "read", offset, out.size(), [&](std::size_t done, std::size_t wanted) {
    return pread(descriptor_, out.data() + done, wanted, static_cast<off_t>(offset + done));
  });
}

}  // namespace engine::store
