#pragma once

// What one vector register holds of the sixteen lanes of engine/base/lanes.h: all of them, or, with
// AVX2, eight. Lanes do not meet before their tree, so a kernel may take one part of them through
// all columns and then the other, with twice the chains in registers and not a bit of difference.
//
// Kernel sources only, as lanes.h.

#include "engine/base/lanes.h"

namespace engine::base::LAZYLORA_ISA {

#if defined(__AVX2__) && defined(__FMA__) && !defined(__AVX512F__)

inline constexpr int kParts = 2;
inline constexpr int kPartLanes = 8;
using Part = __m256;

inline Part part_zero() { return _mm256_setzero_ps(); }
inline Part part_load(const float* p) { return _mm256_loadu_ps(p); }
inline void part_store(float* p, Part a) { _mm256_storeu_ps(p, a); }
inline Part part_fma(Part a, Part b, Part c) { return _mm256_fmadd_ps(a, b, c); }

// Four trees of lanes.h at once, each level for all.
inline void sum_four(const float* lanes, float* sums) {
  const auto eight = [&](int i) {
    const float* p = lanes + i * kLanes;
    return _mm256_add_ps(_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8));
  };
  const auto four_and_four = [](__m256 x, __m256 y) {
    return _mm256_add_ps(_mm256_permute2f128_ps(x, y, 0x20), _mm256_permute2f128_ps(x, y, 0x31));
  };
  const __m256 x = four_and_four(eight(0), eight(2));
  const __m256 y = four_and_four(eight(1), eight(3));
  const __m256 two = _mm256_add_ps(_mm256_shuffle_ps(x, y, 0x44), _mm256_shuffle_ps(x, y, 0xEE));
  const __m256 one =
      _mm256_add_ps(_mm256_shuffle_ps(two, two, 0x88), _mm256_shuffle_ps(two, two, 0xDD));
  const __m128 all = _mm_movelh_ps(_mm256_castps256_ps128(one), _mm256_extractf128_ps(one, 1));
  _mm_storeu_ps(sums, all);
}

#else

inline constexpr int kParts = 1;
inline constexpr int kPartLanes = kLanes;
using Part = Lanes;

inline Part part_zero() { return zero(); }
inline Part part_load(const float* p) { return load(p); }
inline void part_store(float* p, Part a) { store(p, a); }
inline Part part_fma(Part a, Part b, Part c) { return fma(a, b, c); }

#if defined(__AVX512F__)

// Four trees of lanes.h at once, each level for all.
inline void sum_four(const float* lanes, float* sums) {
  const auto halves = [](__m512 x, __m512 y) {
    return _mm512_add_ps(_mm512_maskz_shuffle_f32x4(kAll, x, y, 0x44),
                         _mm512_maskz_shuffle_f32x4(kAll, x, y, 0xEE));
  };
  const __m512 x = halves(load(lanes).v, load(lanes + kLanes).v);
  const __m512 y = halves(load(lanes + 2 * kLanes).v, load(lanes + 3 * kLanes).v);
  const __m512 four = _mm512_add_ps(_mm512_maskz_shuffle_f32x4(kAll, x, y, 0x88),
                                    _mm512_maskz_shuffle_f32x4(kAll, x, y, 0xDD));
  const __m512 two = _mm512_add_ps(four, _mm512_maskz_permute_ps(kAll, four, 0xEE));
  const __m512 one = _mm512_add_ps(two, _mm512_maskz_permute_ps(kAll, two, 0x55));
  _mm512_mask_compressstoreu_ps(sums, 0x1111, one);
}

#else

inline void sum_four(const float* lanes, float* sums) {
  for (int i = 0; i < 4; ++i) sums[i] = sum(load(lanes + i * kLanes));
}

#endif
#endif

// The tree of every sixteen of `lanes`, `count` of them.
inline void sum_each(const float* lanes, std::int64_t count, float* sums) {
  std::int64_t i = 0;
  for (; i + 4 <= count; i += 4) sum_four(lanes + i * kLanes, sums + i);
  for (; i < count; ++i) sums[i] = sum(load(lanes + i * kLanes));
}

}  // namespace engine::base::LAZYLORA_ISA
