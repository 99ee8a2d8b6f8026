// Against the digest of the same bytes as one piece of text, around the borders of what is read at a time.

#include <gtest/gtest.h>

#include <string>

#include "checks/scratch_folder.h"
#include "engine/base/sha256.h"
#include "engine/store/file_digest.h"

namespace {

TEST(FileDigest, OfEveryByte) {
  const checks::ScratchFolder scratch;
  constexpr std::size_t kBlock = 1 << 20;
  for (const std::size_t size :
       {std::size_t{0}, std::size_t{1}, kBlock - 1, kBlock, kBlock + 1, 2 * kBlock + 7}) {
    std::string bytes(size, '\0');
    for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<char>(i * 31 + i / 251);
    checks::write_bytes(scratch / "file", bytes);
    const engine::store::File file(scratch / "file");
    EXPECT_EQ(sha256_hex_of(file), engine::base::sha256_hex(bytes)) << size;
  }
}

}  // namespace
