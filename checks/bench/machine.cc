#include "checks/bench/machine.h"

#include <immintrin.h>

#include <algorithm>

namespace checks::bench {
namespace {

constexpr int kSteps = 4000;
constexpr int kChains = 12;  // two units, four to five cycles of latency

// A store that the compiler cannot leave out: what is stored is needed.
volatile float sink;

// Every chain starts with a number of its own. Chains that start alike are one chain to the compiler, and
// the peak would come out half as high again as the processor's.
float start_of(int chain) { return 1.0f + static_cast<float>(chain); }

// What the chains add, for those that load it: so many steps' worth that no register holds it, and so few
// that the first-level cache does.
constexpr int kTermSteps = 16;
constexpr int kLanes = 16;
struct alignas(64) Terms {
  float of[kTermSteps][kChains][kLanes];
  Terms() { std::fill_n(&of[0][0][0], kTermSteps * kChains * kLanes, 0.001f); }
};
const Terms terms;

template <bool kLoads>
__attribute__((target("avx2,fma"), noinline)) float chains_avx2() {
  const __m256 x = _mm256_set1_ps(0.999f), y = _mm256_set1_ps(0.001f);
  __m256 chain[kChains];
#pragma GCC unroll 12
  for (int c = 0; c < kChains; ++c) chain[c] = _mm256_set1_ps(start_of(c));
  for (int step = 0; step < kSteps; ++step) {
    const auto* from = terms.of[step % kTermSteps];
#pragma GCC unroll 12
    for (int c = 0; c < kChains; ++c) {
      chain[c] = _mm256_fmadd_ps(chain[c], x, kLoads ? _mm256_load_ps(from[c]) : y);
    }
  }
#pragma GCC unroll 12
  for (int c = 1; c < kChains; ++c) chain[0] = _mm256_add_ps(chain[0], chain[c]);
  return _mm256_cvtss_f32(chain[0]);
}

template <bool kLoads>
__attribute__((target("avx512f"), noinline)) float chains_avx512() {
  const __m512 x = _mm512_set1_ps(0.999f), y = _mm512_set1_ps(0.001f);
  __m512 chain[kChains];
#pragma GCC unroll 12
  for (int c = 0; c < kChains; ++c) chain[c] = _mm512_set1_ps(start_of(c));
  for (int step = 0; step < kSteps; ++step) {
    const auto* from = terms.of[step % kTermSteps];
#pragma GCC unroll 12
    for (int c = 0; c < kChains; ++c) {
      chain[c] = _mm512_fmadd_ps(chain[c], x, kLoads ? _mm512_load_ps(from[c]) : y);
    }
  }
#pragma GCC unroll 12
  for (int c = 1; c < kChains; ++c) chain[0] = _mm512_add_ps(chain[0], chain[c]);
  return _mm512_cvtss_f32(chain[0]);
}

}  // namespace

float run_fma_chains(std::string_view instruction_set) {
  const float sum = instruction_set == "avx512" ? chains_avx512<false>() : chains_avx2<false>();
  sink = sum;
  return sum;
}

float run_loading_chains(std::string_view instruction_set) {
  const float sum = instruction_set == "avx512" ? chains_avx512<true>() : chains_avx2<true>();
  sink = sum;
  return sum;
}

double fma_chain_flops(std::string_view instruction_set) {
  return 2.0 * (instruction_set == "avx512" ? 16 : 8) * kChains * kSteps;
}

__attribute__((target("avx2"))) void read_all(std::span<const std::byte> bytes,
                                              bool with_prefetch) {
  constexpr std::size_t kLine = 64, kAhead = 4096;
  __m256i any = _mm256_setzero_si256();
  for (std::size_t at = 0; at + kLine <= bytes.size(); at += kLine) {
    const auto* p = reinterpret_cast<const __m256i*>(bytes.data() + at);
    if (with_prefetch) __builtin_prefetch(bytes.data() + at + kAhead);
    any = _mm256_or_si256(any, _mm256_or_si256(_mm256_loadu_si256(p), _mm256_loadu_si256(p + 1)));
  }
  sink = static_cast<float>(_mm256_extract_epi32(any, 0));
}

}  // namespace checks::bench
