#pragma once

// The 32 numbers of a group of MXFP4 from its 16 bytes, the low nibble of a byte before the high one, looked
// up in the scale's row of lane_products.h; exact. Include only from kernel sources, as lanes.h.
//
// load_mxfp4 gives them in order; load_mxfp4_as_decoded in the order of lanes that costs least to decode,
// the same for both halves of the group. as_decoded() puts sixteen of anything into that order, in_order()
// back.

#include <cstdint>

#include "engine/base/lane_products.h"
#include "engine/base/lanes.h"

namespace engine::base::LAZYLORA_ISA {

#if defined(__AVX512F__)

// Any four or eight bytes anywhere, loaded as a float or double: the form that compilers turn into a
// broadcast from memory.
typedef float AnyWord __attribute__((aligned(1), may_alias));
typedef double AnyTwoWords __attribute__((aligned(1), may_alias));

// Eight numbers are one 32-bit word: every lane gets its word by a broadcast and its nibble by a
// shift, and looks it up in the row. The lookup ignores higher bits.
inline void load_mxfp4(const std::uint8_t* p, const Mxfp4Products& products, Lanes& first,
                       Lanes& second) {
  const __m512 table = _mm512_load_ps(products.values);
  const __m512i shifts =
      _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 0, 4, 8, 12, 16, 20, 24, 28);
  // A broadcast from memory costs no shuffle, one from a general register does.
  const auto word = [p](int at) { return _mm_set_ss(*reinterpret_cast<const AnyWord*>(p + at)); };
  const auto sixteen = [&](int at) {
    const __m512 words = _mm512_mask_broadcastss_ps(_mm512_maskz_broadcastss_ps(kAll, word(at)),
                                                    0xFF00, word(at + 4));
    const __m512i codes = _mm512_maskz_srlv_epi32(kAll, _mm512_castps_si512(words), shifts);
    return Lanes{_mm512_maskz_permutexvar_ps(kAll, codes, table)};
  };
  first = sixteen(0);
  second = sixteen(8);
}
// 0 8 1 9 ... 7 15: a shift of 64 bits serves both halves of a word.
inline void load_mxfp4_as_decoded(const std::uint8_t* p, const Mxfp4Products& products,
                                  Lanes& first, Lanes& second) {
  constexpr __mmask8 kAllQuads = 0xFF;
  const __m512 table = _mm512_load_ps(products.values);
  const __m512i shifts = _mm512_setr_epi64(0, 4, 8, 12, 16, 20, 24, 28);
  const auto sixteen = [&](int at) {
    const __m512d words = _mm512_maskz_broadcastsd_pd(
        kAllQuads, _mm_set_sd(*reinterpret_cast<const AnyTwoWords*>(p + at)));
    const __m512i codes = _mm512_maskz_srlv_epi64(kAllQuads, _mm512_castpd_si512(words), shifts);
    return Lanes{_mm512_maskz_permutexvar_ps(kAll, codes, table)};
  };
  first = sixteen(0);
  second = sixteen(8);
}
inline Lanes as_decoded(Lanes a) {
  const __m512i from = _mm512_setr_epi32(0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15);
  return {_mm512_maskz_permutexvar_ps(kAll, from, a.v)};
}
inline Lanes in_order(Lanes a) {
  const __m512i from = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15);
  return {_mm512_maskz_permutexvar_ps(kAll, from, a.v)};
}

#elif defined(__AVX2__) && defined(__FMA__)

inline __m256i in_both_halves(const std::uint8_t* from) {
  return _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
}
// The two bytes of a product are looked up apart, 32 at once.
inline void look_up_mxfp4(__m256i codes, const Mxfp4Products& products, Lanes& first,
                          Lanes& second) {
  const __m256i low = _mm256_shuffle_epi8(in_both_halves(products.low), codes);
  const __m256i high = _mm256_shuffle_epi8(in_both_halves(products.high), codes);
  const auto half = [](__m256i found) {
    return Lanes{_mm256_castsi256_ps(_mm256_slli_epi32(found, 16)),
                 _mm256_castsi256_ps(
                     _mm256_and_si256(found, _mm256_set1_epi32(static_cast<int>(0xFFFF0000))))};
  };
  first = half(_mm256_unpacklo_epi8(low, high));
  second = half(_mm256_unpackhi_epi8(low, high));
}
// Numbers d and d + 8 of a half share a lane until the last step.
inline void load_mxfp4(const std::uint8_t* p, const Mxfp4Products& products, Lanes& first,
                       Lanes& second) {
  // Bytes in the order of the numbers they hold: 0 8 1 9 2 10 3 11 and so on, each byte twice.
  const __m256i order = _mm256_setr_epi8(0, 4, 0, 4, 1, 5, 1, 5, 8, 12, 8, 12, 9, 13, 9, 13,  //
                                         2, 6, 2, 6, 3, 7, 3, 7, 10, 14, 10, 14, 11, 15, 11, 15);
  const __m256i bytes = _mm256_shuffle_epi8(in_both_halves(p), order);
  // Odd numbers are high nibbles.
  const __m256i codes = _mm256_and_si256(
      _mm256_blend_epi16(bytes, _mm256_srli_epi16(bytes, 4), 0xAA), _mm256_set1_epi8(15));
  look_up_mxfp4(codes, products, first, second);
}
// Low nibbles in one half of the register and high ones in the other, which leaves the numbers in the lanes
// 0 4 8 12 1 5 9 13 and 2 6 10 14 3 7 11 15.
inline void load_mxfp4_as_decoded(const std::uint8_t* p, const Mxfp4Products& products,
                                  Lanes& first, Lanes& second) {
  const __m256i nibbles = _mm256_srlv_epi64(in_both_halves(p), _mm256_setr_epi64x(0, 0, 4, 4));
  look_up_mxfp4(_mm256_and_si256(nibbles, _mm256_set1_epi8(15)), products, first, second);
}
inline Lanes as_decoded(Lanes a) {
  const __m256i even_first = _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7);
  const __m256 lo = _mm256_permutevar8x32_ps(a.lo, even_first);
  const __m256 hi = _mm256_permutevar8x32_ps(a.hi, even_first);
  return {_mm256_shuffle_ps(lo, hi, 0x88), _mm256_shuffle_ps(lo, hi, 0xDD)};
}
inline Lanes in_order(Lanes a) {
  const __m256i in_turn = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  return {_mm256_permutevar8x32_ps(_mm256_unpacklo_ps(a.lo, a.hi), in_turn),
          _mm256_permutevar8x32_ps(_mm256_unpackhi_ps(a.lo, a.hi), in_turn)};
}

#else

inline void load_mxfp4(const std::uint8_t* p, const Mxfp4Products& products, Lanes& first,
                       Lanes& second) {
  const auto value = [&](int i) { return products.values[(p[i / 2] >> (4 * (i % 2))) & 15]; };
  first = each([&](int i) { return value(i); });
  second = each([&](int i) { return value(i + kLanes); });
}
// Here every order of lanes costs the same.
inline void load_mxfp4_as_decoded(const std::uint8_t* p, const Mxfp4Products& products,
                                  Lanes& first, Lanes& second) {
  load_mxfp4(p, products, first, second);
}
inline Lanes as_decoded(Lanes a) { return a; }
inline Lanes in_order(Lanes a) { return a; }

#endif

}  // namespace engine::base::LAZYLORA_ISA
