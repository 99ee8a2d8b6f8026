#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

namespace engine::base {

// Philox 4x32 with ten rounds, a bijection of the counter for every key.
// Source    Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011
std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter,
                                        std::array<std::uint32_t, 2> key);

// Counter-based random numbers: the value at an index is a function of (seed, name, index) alone,
// so a draw depends on no order, thread or machine. Philox keyed by SHA-256(seed, name).
class CounterRng {
 public:
  CounterRng(std::uint64_t seed, std::string_view name);

  std::uint32_t bits(std::uint64_t index) const;
  // out[i] = bits(first + i), `first` a multiple of four: a quarter of the cost of single draws.
  void fill(std::uint64_t first, std::span<std::uint32_t> out) const;
  // Uniform in [0, 1), a multiple of 2^-24, exact in float32.
  float uniform(std::uint64_t index) const;

 private:
  std::array<std::uint32_t, 4> block(std::uint64_t number) const;

  std::array<std::uint32_t, 2> key_;
  std::array<std::uint32_t, 2> stream_;
};

}  // namespace engine::base
