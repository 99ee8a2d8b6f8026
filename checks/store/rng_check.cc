#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "engine/base/rng.h"
#include "engine/base/sha256.h"

namespace {

using engine::base::CounterRng;
using engine::base::philox4x32;
using Four = std::array<std::uint32_t, 4>;
using Two = std::array<std::uint32_t, 2>;

struct Known {
  Four counter;
  Two key;
  Four result;
};

// The lines "philox4x32 10" of Random123's kat_vectors; the last counter and key are digits of pi.
constexpr std::array<Known, 3> kKnown = {{
    {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
    {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
     {0xffffffff, 0xffffffff},
     {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
    {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
     {0xa4093822, 0x299f31d0},
     {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
}};

template <class Generator>
bool agrees_with_known_answers(Generator&& generator) {
  for (const Known& known : kKnown) {
    if (generator(known.counter, known.key) != known.result) return false;
  }
  return true;
}

TEST(Rng, PhiloxKnownAnswers) { EXPECT_TRUE(agrees_with_known_answers(philox4x32)); }

// The key schedule written down once more: seed as eight little-endian bytes, then the name,
// hashed; words 0 and 1 of the digest are the key, words 2 and 3 the upper half of the counter.
TEST(Rng, KeyAndCounterLayout) {
  const std::uint64_t seed = 0x0123456789abcdef;
  const std::string name = "layers.3.q.lora_A";
  const std::string seed_bytes = "\xef\xcd\xab\x89\x67\x45\x23\x01";
  engine::base::Sha256 hash;
  hash.update(seed_bytes + name);
  const auto digest = hash.digest();
  std::uint32_t words[4];
  std::memcpy(words, digest.data(), sizeof(words));

  const CounterRng rng(seed, name);
  const std::uint64_t index = (std::uint64_t{5} << 34) + 4 * 7 + 2;
  EXPECT_EQ(rng.bits(index), philox4x32({7, 5, words[2], words[3]}, {words[0], words[1]})[2]);
}

// Whether fill(first, out) gives bits(first), bits(first + 1), ... for whole and broken blocks.
template <class Fill>
bool fills_with_bits(const CounterRng& rng, Fill&& fill) {
  for (const std::size_t count : {1, 4, 7, 64}) {
    std::vector<std::uint32_t> words(count);
    fill(12, words);
    for (std::size_t i = 0; i < count; ++i) {
      if (words[i] != rng.bits(12 + i)) return false;
    }
  }
  return true;
}

TEST(Rng, FillIsBits) {
  const CounterRng rng(1, "fill");
  EXPECT_TRUE(fills_with_bits(
      rng, [&](std::uint64_t first, std::span<std::uint32_t> out) { rng.fill(first, out); }));
}

TEST(Rng, UniformIsTheUpperBits) {
  const CounterRng rng(9, "uniform");
  float least = 1.0f;
  float most = 0.0f;
  for (std::uint64_t i = 0; i < 10000; ++i) {
    const float u = rng.uniform(i);
    EXPECT_EQ(u * 0x1p24f, static_cast<float>(rng.bits(i) >> 8));
    least = std::min(least, u);
    most = std::max(most, u);
  }
  EXPECT_GE(least, 0.0f);
  EXPECT_LT(most, 1.0f);
  // 10000 draws all miss an interval of width 0.01 with probability 0.99^10000 < 1e-43.
  EXPECT_LT(least, 0.01f);
  EXPECT_GT(most, 0.99f);
}

TEST(Rng, SeedAndNameBothCount) {
  EXPECT_NE(CounterRng(1, "a").bits(0), CounterRng(2, "a").bits(0));
  EXPECT_NE(CounterRng(1, "a").bits(0), CounterRng(1, "b").bits(0));
}

TEST(Rng, PlantedFaults) {
  // Keys that advance before their round instead of after it.
  EXPECT_FALSE(agrees_with_known_answers([](Four counter, Two key) {
    return philox4x32(counter, {key[0] + 0x9E3779B9u, key[1] + 0xBB67AE85u});
  }));
  // High and low halves of the products exchanged.
  EXPECT_FALSE(agrees_with_known_answers([](Four counter, Two key) {
    const Four r = philox4x32(counter, key);
    return Four{r[1], r[0], r[3], r[2]};
  }));
  // Blocks counted from the start of the call, not of the stream.
  const CounterRng rng(1, "fill");
  EXPECT_FALSE(
      fills_with_bits(rng, [&](std::uint64_t, std::span<std::uint32_t> out) { rng.fill(0, out); }));
  // One block for all words.
  EXPECT_FALSE(fills_with_bits(rng, [&](std::uint64_t first, std::span<std::uint32_t> out) {
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = rng.bits(first + i % 4);
  }));
}

}  // namespace
