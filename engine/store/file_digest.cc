#include "engine/store/file_digest.h"

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "engine/base/sha256.h"

namespace engine::store {

std::string sha256_hex_of(const File& file) {
  base::Sha256 hash;
  std::vector<std::byte> block(std::min<std::uint64_t>(file.size(), 1 << 20));
  for (std::uint64_t offset = 0; offset < file.size();) {
    const auto count = std::min<std::uint64_t>(block.size(), file.size() - offset);
    const std::span<std::byte> part = std::span(block).first(count);
    file.read(offset, part);
    hash.update(part);
    offset += count;
  }
  return hash.hex();
}

}  // namespace engine::store
