#include "engine/measure/block_header.h"

#include <algorithm>
#include <bit>
#include <span>

#include "engine/base/error.h"
#include "engine/base/hex.h"
#include "engine/base/sha256.h"
#include "engine/store/file.h"

namespace engine::measure {
namespace {

constexpr std::size_t kBytes = 80, kRootAt = 36, kTimeAt = 68, kBitsAt = 72;
constexpr std::uint64_t kMostFile = 4096;  // digits and white space need no more
constexpr std::int64_t kFirstBlock = 1'231'006'505;

using Number = std::array<std::uint8_t, 32>;  // lowest byte first

bool is_space(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

std::string from_hex(const std::string& text, const std::filesystem::path& file) {
  std::size_t begin = 0, end = text.size();
  while (begin < end && is_space(text[begin])) ++begin;
  while (end > begin && is_space(text[end - 1])) --end;
  if (end - begin != 2 * kBytes) {
    throw base::Error("{}: is no block header: of {} bytes, neither {} nor {} hexadecimal digits",
                      file.string(), text.size(), kBytes, 2 * kBytes);
  }
  std::string bytes;
  for (std::size_t at = begin; at < end; at += 2) {
    for (const std::size_t i : {at, at + 1}) {
      if (base::hex_value(text[i]) < 0) {
        throw base::Error("{}: offset {}: byte 0x{:02x} is no hexadecimal digit", file.string(), i,
                          static_cast<unsigned char>(text[i]));
      }
    }
    bytes.push_back(
        static_cast<char>(base::hex_value(text[at]) * 16 + base::hex_value(text[at + 1])));
  }
  return bytes;
}

std::string read_bytes(const std::filesystem::path& file) {
  std::string text = store::read_text(file, kMostFile);
  return text.size() == kBytes ? text : from_hex(text, file);
}

std::uint32_t word_at(const std::string& bytes, std::size_t at) {
  std::uint32_t word = 0;
  for (std::size_t i = 4; i-- > 0;) word = word << 8 | static_cast<std::uint8_t>(bytes[at + i]);
  return word;
}

// Bit 23 is a sign: a target that has it is below zero, and no hash is at most that.
Number target_of(std::uint32_t bits, const std::filesystem::path& file) {
  Number target{};
  bool fits = (bits & 0x0080'0000U) == 0;
  for (unsigned i = 0; i < 3; ++i) {
    const auto byte = static_cast<std::uint8_t>(bits >> (8 * i));
    const std::size_t place = (bits >> 24) + i;  // three too high: bytes below zero fall away
    if (byte == 0 || place < 3) continue;
    if (place - 3 >= target.size()) {
      fits = false;
    } else {
      target[place - 3] = byte;
    }
  }
  if (!fits || target == Number{}) {
    throw base::Error("{}: nBits 0x{:08x} is no target", file.string(), bits);
  }
  return target;
}

Number double_sha256(const std::string& bytes) {
  base::Sha256 first, second;
  first.update(bytes);
  const Number once = first.digest();
  second.update_values(std::span<const std::uint8_t>(once));
  return second.digest();
}

std::string highest_first(const Number& number) {
  const std::string bytes(number.rbegin(), number.rend());
  return base::to_hex(bytes);
}

// 2^256 / (target + 1) lies between this power of two and the next.
int work_log2(const Number& target) {
  std::size_t top = target.size() - 1;
  while (target[top] == 0) --top;
  return 256 - static_cast<int>(8 * top) - std::bit_width(target[top]);
}

}  // namespace

BlockHeader read_block_header(const std::filesystem::path& file) {
  const std::string bytes = read_bytes(file);
  const Number target = target_of(word_at(bytes, kBitsAt), file);
  const Number hash = double_sha256(bytes);
  if (std::lexicographical_compare(target.rbegin(), target.rend(), hash.rbegin(), hash.rend())) {
    throw base::Error("{}: is no block header: its hash {} is above the target {} of its own nBits",
                      file.string(), highest_first(hash), highest_first(target));
  }
  BlockHeader header;
  header.hash = highest_first(hash);
  std::copy_n(bytes.begin() + kRootAt, header.merkle_root.size(), header.merkle_root.begin());
  header.unix_s = word_at(bytes, kTimeAt);
  if (header.unix_s < kFirstBlock) {
    throw base::Error("{}: states the time {} s, Bitcoin's first block {} s", file.string(),
                      header.unix_s, kFirstBlock);
  }
  header.work_log2 = work_log2(target);
  return header;
}

}  // namespace engine::measure
