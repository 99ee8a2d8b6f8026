#include "checks/bench/machine.h"

#include <immintrin.h>

namespace checks::bench {
namespace {

constexpr int kSteps = 4000;
constexpr int kChains = 12;  // two units, four to five cycles of latency

// A store that the compiler cannot leave out: the chains are needed.
volatile float sink;

__attribute__((target("avx2,fma"), noinline)) void chains_avx2() {
  const __m256 x = _mm256_set1_ps(0.999f), y = _mm256_set1_ps(0.001f);
  __m256 chain[kChains];
#pragma GCC unroll 12
  for (int c = 0; c < kChains; ++c) chain[c] = x;
  for (int step = 0; step < kSteps; ++step) {
#pragma GCC unroll 12
    for (int c = 0; c < kChains; ++c) chain[c] = _mm256_fmadd_ps(chain[c], x, y);
  }
#pragma GCC unroll 12
  for (int c = 1; c < kChains; ++c) chain[0] = _mm256_add_ps(chain[0], chain[c]);
  sink = _mm256_cvtss_f32(chain[0]);
}

__attribute__((target("avx512f"), noinline)) void chains_avx512() {
  const __m512 x = _mm512_set1_ps(0.999f), y = _mm512_set1_ps(0.001f);
  __m512 chain[kChains];
#pragma GCC unroll 12
  for (int c = 0; c < kChains; ++c) chain[c] = x;
  for (int step = 0; step < kSteps; ++step) {
#pragma GCC unroll 12
    for (int c = 0; c < kChains; ++c) chain[c] = _mm512_fmadd_ps(chain[c], x, y);
  }
#pragma GCC unroll 12
  for (int c = 1; c < kChains; ++c) chain[0] = _mm512_add_ps(chain[0], chain[c]);
  sink = _mm512_cvtss_f32(chain[0]);
}

}  // namespace

void run_fma_chains(std::string_view instruction_set) {
  if (instruction_set == "avx512") {
    chains_avx512();
  } else {
    chains_avx2();
  }
}

double fma_chain_flops(std::string_view instruction_set) {
  return 2.0 * (instruction_set == "avx512" ? 16 : 8) * kChains * kSteps;
}

__attribute__((target("avx2"))) void read_all(std::span<const std::byte> bytes) {
  constexpr std::size_t kLine = 64, kAhead = 4096;
  __m256i any = _mm256_setzero_si256();
  for (std::size_t at = 0; at + kLine <= bytes.size(); at += kLine) {
    const auto* p = reinterpret_cast<const __m256i*>(bytes.data() + at);
    __builtin_prefetch(bytes.data() + at + kAhead);
    any = _mm256_or_si256(any, _mm256_or_si256(_mm256_loadu_si256(p), _mm256_loadu_si256(p + 1)));
  }
  sink = static_cast<float>(_mm256_extract_epi32(any, 0));
}

}  // namespace checks::bench
