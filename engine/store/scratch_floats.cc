#include "engine/store/scratch_floats.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "engine/base/error.h"
#include "engine/store/scratch_file.h"

namespace engine::store {

ScratchFloats::ScratchFloats(const std::filesystem::path& folder, std::int64_t count)
    : count_(static_cast<std::size_t>(count)) {
  if (count == 0) return;
  const std::size_t bytes = count_ * sizeof(float);
  const ScratchFile file(folder);
  int failed = ::posix_fallocate(file.descriptor(), 0, static_cast<off_t>(bytes));
  void* memory = MAP_FAILED;
  if (failed == 0) {
    memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.descriptor(), 0);
    if (memory == MAP_FAILED) failed = errno;
  }
  if (failed != 0) {
    throw base::Error("{}: a scratch file of {} bytes cannot be made here: {}", folder.string(),
                      bytes, std::strerror(failed));
  }
  data_ = static_cast<float*>(memory);
}

ScratchFloats::~ScratchFloats() {
  if (data_ != nullptr) ::munmap(data_, count_ * sizeof(float));
}

void ScratchFloats::put_away(std::span<const float> part) noexcept {
  if (part.empty()) return;
  constexpr std::uintptr_t kPage = 4096;
  const auto begin = reinterpret_cast<std::uintptr_t>(part.data()) / kPage * kPage;
  const auto end = reinterpret_cast<std::uintptr_t>(part.data() + part.size());
  // Of a shared file mapping this drops nothing but this process's hold of the pages. Of memory of
  // any other kind it would be the end of the values.
  ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

}  // namespace engine::store
