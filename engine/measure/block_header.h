#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <string>

namespace engine::measure {

// What 80 bytes of a Bitcoin block say of themselves.
struct BlockHeader {
  std::string hash;  // as block explorers write it: the bytes of the double SHA-256 backwards
  std::array<std::uint8_t, 32> merkle_root{};
  std::int64_t unix_s = 0;  // as its miner stated it
  int work_log2 = 0;  // hashes to be expected for such a header, rounded down to a power of two
};

// A header from a file of 80 bytes, or of 160 hexadecimal digits and white space around them. Its
// double SHA-256, as a number whose first byte is the lowest, is at most the target of its own nBits:
//   target = (nBits mod 2^23) · 256^(nBits div 2^24 - 3)
// That says how much work went into these bytes and nothing about where they stand: anybody can make
// a header of little work.
//
// Errors    Error naming the file and the values that disagree: another size, another digit, a target
//           that is none, a hash above it, a time before Bitcoin's first block
BlockHeader read_block_header(const std::filesystem::path& file);

}  // namespace engine::measure
