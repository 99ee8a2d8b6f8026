#include "engine/store/scratch_floats.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "engine/base/error.h"
#include "engine/store/scratch_file.h"

namespace engine::store {
namespace {

// Who reads a page is given those around it too, if the page cache has them: within an aligned window
// of this size (Linux: fault_around_bytes), whoever's they are. Put away page by page, the end of what
// was used before would stay in memory. So windows are put away as a whole, and there is one to spare on
// either side: beyond the mapping lies memory of others.
constexpr std::size_t kWindow = 64 * 1024;

}  // namespace

ScratchFloats::ScratchFloats(const std::filesystem::path& folder, std::int64_t count)
    : count_(static_cast<std::size_t>(count)) {
  if (count == 0) return;
  const std::size_t bytes = count_ * sizeof(float);
  const std::size_t mapped = kWindow + bytes + kWindow;
  const ScratchFile file(folder);
  int failed = ::posix_fallocate(file.descriptor(), 0, static_cast<off_t>(mapped));
  void* memory = MAP_FAILED;
  if (failed == 0) {
    memory = ::mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_SHARED, file.descriptor(), 0);
    if (memory == MAP_FAILED) failed = errno;
  }
  if (failed != 0) {
    throw base::Error("{}: a scratch file of {} bytes cannot be made here: {}", folder.string(),
                      bytes, std::strerror(failed));
  }
  data_ = static_cast<float*>(memory) + kWindow / sizeof(float);
}

ScratchFloats::~ScratchFloats() {
  if (data_ == nullptr) return;
  ::munmap(data_ - kWindow / sizeof(float), kWindow + count_ * sizeof(float) + kWindow);
}

void ScratchFloats::put_away(std::span<const float> part) noexcept {
  if (part.empty()) return;
  const auto first = reinterpret_cast<std::uintptr_t>(part.data());
  const auto last = reinterpret_cast<std::uintptr_t>(part.data() + part.size()) - 1;
  const std::uintptr_t begin = first / kWindow * kWindow;
  const std::uintptr_t end = (last / kWindow + 1) * kWindow;
  // Of a shared file mapping this drops nothing but this process's hold of the pages. Of memory of
  // any other kind it would be the end of the values.
  ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

}  // namespace engine::store
