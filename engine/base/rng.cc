#include "engine/base/rng.h"

#include <cassert>
#include <cstring>

#include "engine/base/sha256.h"

namespace engine::base {

std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> c,
                                        std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = std::uint64_t{0xD2511F53u} * c[0];
    const std::uint64_t p1 = std::uint64_t{0xCD9E8D57u} * c[2];
    c = {static_cast<std::uint32_t>(p1 >> 32) ^ c[1] ^ key[0], static_cast<std::uint32_t>(p1),
         static_cast<std::uint32_t>(p0 >> 32) ^ c[3] ^ key[1], static_cast<std::uint32_t>(p0)};
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return c;
}

CounterRng::CounterRng(std::uint64_t seed, std::string_view name) {
  Sha256 hash;
  std::uint8_t little_endian[8];
  for (int i = 0; i < 8; ++i) little_endian[i] = static_cast<std::uint8_t>(seed >> (8 * i));
  hash.update(std::as_bytes(std::span(little_endian)));
  hash.update(name);
  const auto digest = hash.digest();
  std::memcpy(key_.data(), digest.data(), sizeof(key_));
  std::memcpy(stream_.data(), digest.data() + sizeof(key_), sizeof(stream_));
}

std::array<std::uint32_t, 4> CounterRng::block(std::uint64_t number) const {
  return philox4x32({static_cast<std::uint32_t>(number), static_cast<std::uint32_t>(number >> 32),
                     stream_[0], stream_[1]},
                    key_);
}

std::uint32_t CounterRng::bits(std::uint64_t index) const { return block(index / 4)[index % 4]; }

void CounterRng::fill(std::uint64_t first, std::span<std::uint32_t> out) const {
  assert(first % 4 == 0);
  for (std::size_t i = 0; i < out.size(); i += 4) {
    const auto four = block((first + i) / 4);
    for (std::size_t j = 0; j < 4 && i + j < out.size(); ++j) out[i + j] = four[j];
  }
}

float CounterRng::uniform(std::uint64_t index) const {
  return static_cast<float>(bits(index) >> 8) * 0x1p-24f;
}

}  // namespace engine::base
