#pragma once

// Sixteen float32 lanes, the unit in which every kernel is written once and compiled for every
// instruction set: one 512-bit register, two 256-bit registers, or sixteen scalars. Every function
// here rounds exactly as IEEE-754 says, lane by lane, so the three give the same bits.
//
// Include only from kernel sources (engine/ops/*_kernel.h, kernels_*.cc) and engine/base/math.cc:
// everything lives in a namespace named after the instruction set, LAZYLORA_ISA, so that no inline
// function compiled for one set can be picked by the linker for another.

#ifdef __FAST_MATH__
#error "fast-math would change the results: see docs/numerics.md"
#endif

#include <cstdint>
#include <cstring>

#if defined(__AVX512F__)
#include <immintrin.h>
#define LAZYLORA_ISA avx512
#elif defined(__AVX2__) && defined(__FMA__)
#include <immintrin.h>
#define LAZYLORA_ISA avx2
#else
#define LAZYLORA_ISA scalar
#endif

namespace engine::base::LAZYLORA_ISA {

inline constexpr int kLanes = 16;

// A number that a generic lambda knows when it is compiled.
template <int N>
struct Number {};

#if defined(__AVX512F__)

// The plain forms of some intrinsics start from an "undefined" register, which g++ 12 warns about
// in every caller; the masked forms with all lanes on are the same instructions.
inline constexpr __mmask16 kAll = 0xFFFF;

// How many Lanes the registers hold.
inline constexpr int kRegisters = 32;

struct Lanes {
  __m512 v;
};
struct LaneMask {
  __mmask16 m;
};

inline Lanes zero() { return {_mm512_setzero_ps()}; }
inline Lanes broadcast(float x) { return {_mm512_set1_ps(x)}; }
inline Lanes load(const float* p) { return {_mm512_loadu_ps(p)}; }
inline void store(float* p, Lanes a) { _mm512_storeu_ps(p, a.v); }
// The first n lanes (0 <= n <= 16); the others read as zero and are not written.
inline Lanes load(const float* p, int n) {
  return {_mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << n) - 1u), p)};
}
inline void store(float* p, Lanes a, int n) {
  _mm512_mask_storeu_ps(p, static_cast<__mmask16>((1u << n) - 1u), a.v);
}
inline Lanes load_bf16(const std::uint16_t* p) {
  const __m256i h = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return {
      _mm512_castsi512_ps(_mm512_maskz_slli_epi32(kAll, _mm512_maskz_cvtepu16_epi32(kAll, h), 16))};
}
inline Lanes operator+(Lanes a, Lanes b) { return {_mm512_add_ps(a.v, b.v)}; }
inline Lanes operator-(Lanes a, Lanes b) { return {_mm512_sub_ps(a.v, b.v)}; }
inline Lanes operator*(Lanes a, Lanes b) { return {_mm512_mul_ps(a.v, b.v)}; }
inline Lanes operator/(Lanes a, Lanes b) { return {_mm512_div_ps(a.v, b.v)}; }
inline Lanes fma(Lanes a, Lanes b, Lanes c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
inline Lanes sqrt(Lanes a) { return {_mm512_sqrt_ps(a.v)}; }
inline Lanes round_to_nearest(Lanes a) { return {_mm512_maskz_roundscale_ps(kAll, a.v, 8)}; }
inline LaneMask less(Lanes a, Lanes b) { return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ)}; }
inline LaneMask is_nan(Lanes a) { return {_mm512_cmp_ps_mask(a.v, a.v, _CMP_UNORD_Q)}; }
inline Lanes select(LaneMask m, Lanes yes, Lanes no) {
  return {_mm512_mask_blend_ps(m.m, no.v, yes.v)};
}
inline Lanes bit_and(Lanes a, std::uint32_t bits) {
  return {_mm512_castsi512_ps(
      _mm512_and_si512(_mm512_castps_si512(a.v), _mm512_set1_epi32(static_cast<int>(bits))))};
}
inline Lanes bit_or(Lanes a, Lanes b) {
  return {_mm512_castsi512_ps(_mm512_or_si512(_mm512_castps_si512(a.v), _mm512_castps_si512(b.v)))};
}
// 2^n for integral-valued n in [-126, 127].
inline Lanes exp2_integer(Lanes n) {
  const __m512i i = _mm512_maskz_cvtps_epi32(kAll, n.v);
  return {_mm512_castsi512_ps(
      _mm512_maskz_slli_epi32(kAll, _mm512_add_epi32(i, _mm512_set1_epi32(127)), 23))};
}
// The fixed tree: (r, r+8), (r, r+4), (r, r+2), (r, r+1).
inline float sum(Lanes a) {
  const __m512d whole = _mm512_castps_pd(a.v);
  const __m256 h8 = _mm256_add_ps(_mm256_castpd_ps(_mm512_maskz_extractf64x4_pd(0xF, whole, 0)),
                                  _mm256_castpd_ps(_mm512_maskz_extractf64x4_pd(0xF, whole, 1)));
  const __m128 h4 = _mm_add_ps(_mm256_castps256_ps128(h8), _mm256_extractf128_ps(h8, 1));
  const __m128 h2 = _mm_add_ps(h4, _mm_movehl_ps(h4, h4));
  return _mm_cvtss_f32(_mm_add_ss(h2, _mm_shuffle_ps(h2, h2, 1)));
}

#elif defined(__AVX2__) && defined(__FMA__)

inline constexpr int kRegisters = 8;

struct Lanes {
  __m256 lo, hi;
};
struct LaneMask {
  __m256 lo, hi;
};

inline Lanes zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
inline Lanes broadcast(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
inline Lanes load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
inline void store(float* p, Lanes a) {
  _mm256_storeu_ps(p, a.lo);
  _mm256_storeu_ps(p + 8, a.hi);
}
inline Lanes load(const float* p, int n) {
  float full[kLanes] = {};
  std::memcpy(full, p, static_cast<std::size_t>(n) * sizeof(float));
  return load(full);
}
inline void store(float* p, Lanes a, int n) {
  float full[kLanes];
  store(full, a);
  std::memcpy(p, full, static_cast<std::size_t>(n) * sizeof(float));
}
inline Lanes load_bf16(const std::uint16_t* p) {
  const __m256i h = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  const __m256i lo = _mm256_cvtepu16_epi32(_mm256_castsi256_si128(h));
  const __m256i hi = _mm256_cvtepu16_epi32(_mm256_extracti128_si256(h, 1));
  return {_mm256_castsi256_ps(_mm256_slli_epi32(lo, 16)),
          _mm256_castsi256_ps(_mm256_slli_epi32(hi, 16))};
}
inline Lanes operator+(Lanes a, Lanes b) {
  return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)};
}
inline Lanes operator-(Lanes a, Lanes b) {
  return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)};
}
inline Lanes operator*(Lanes a, Lanes b) {
  return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)};
}
inline Lanes operator/(Lanes a, Lanes b) {
  return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)};
}
inline Lanes fma(Lanes a, Lanes b, Lanes c) {
  return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}
inline Lanes sqrt(Lanes a) { return {_mm256_sqrt_ps(a.lo), _mm256_sqrt_ps(a.hi)}; }
inline Lanes round_to_nearest(Lanes a) {
  return {_mm256_round_ps(a.lo, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC),
          _mm256_round_ps(a.hi, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
inline LaneMask less(Lanes a, Lanes b) {
  return {_mm256_cmp_ps(a.lo, b.lo, _CMP_LT_OQ), _mm256_cmp_ps(a.hi, b.hi, _CMP_LT_OQ)};
}
inline LaneMask is_nan(Lanes a) {
  return {_mm256_cmp_ps(a.lo, a.lo, _CMP_UNORD_Q), _mm256_cmp_ps(a.hi, a.hi, _CMP_UNORD_Q)};
}
inline Lanes select(LaneMask m, Lanes yes, Lanes no) {
  return {_mm256_blendv_ps(no.lo, yes.lo, m.lo), _mm256_blendv_ps(no.hi, yes.hi, m.hi)};
}
inline Lanes bit_and(Lanes a, std::uint32_t bits) {
  const __m256 mask = _mm256_castsi256_ps(_mm256_set1_epi32(static_cast<int>(bits)));
  return {_mm256_and_ps(a.lo, mask), _mm256_and_ps(a.hi, mask)};
}
inline Lanes bit_or(Lanes a, Lanes b) {
  return {_mm256_or_ps(a.lo, b.lo), _mm256_or_ps(a.hi, b.hi)};
}
inline Lanes exp2_integer(Lanes n) {
  const __m256i bias = _mm256_set1_epi32(127);
  const auto half = [&](__m256 x) {
    return _mm256_castsi256_ps(
        _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(x), bias), 23));
  };
  return {half(n.lo), half(n.hi)};
}
inline float sum(Lanes a) {
  const __m256 h8 = _mm256_add_ps(a.lo, a.hi);
  const __m128 h4 = _mm_add_ps(_mm256_castps256_ps128(h8), _mm256_extractf128_ps(h8, 1));
  const __m128 h2 = _mm_add_ps(h4, _mm_movehl_ps(h4, h4));
  return _mm_cvtss_f32(_mm_add_ss(h2, _mm_shuffle_ps(h2, h2, 1)));
}

#else

inline constexpr int kRegisters = 4;

struct Lanes {
  float v[kLanes];
};
struct LaneMask {
  bool m[kLanes];
};

template <class F>
inline Lanes each(F f) {
  Lanes r;
  for (int i = 0; i < kLanes; ++i) r.v[i] = f(i);
  return r;
}
inline Lanes zero() { return Lanes{}; }
inline Lanes broadcast(float x) {
  return each([&](int) { return x; });
}
inline Lanes load(const float* p) {
  return each([&](int i) { return p[i]; });
}
inline void store(float* p, Lanes a) { std::memcpy(p, a.v, sizeof(a.v)); }
inline Lanes load(const float* p, int n) {
  return each([&](int i) { return i < n ? p[i] : 0.0f; });
}
inline void store(float* p, Lanes a, int n) {
  std::memcpy(p, a.v, static_cast<std::size_t>(n) * sizeof(float));
}
inline Lanes load_bf16(const std::uint16_t* p) {
  return each([&](int i) {
    const std::uint32_t bits = static_cast<std::uint32_t>(p[i]) << 16;
    float f;
    std::memcpy(&f, &bits, sizeof(f));
    return f;
  });
}
inline Lanes operator+(Lanes a, Lanes b) {
  return each([&](int i) { return a.v[i] + b.v[i]; });
}
inline Lanes operator-(Lanes a, Lanes b) {
  return each([&](int i) { return a.v[i] - b.v[i]; });
}
inline Lanes operator*(Lanes a, Lanes b) {
  return each([&](int i) { return a.v[i] * b.v[i]; });
}
inline Lanes operator/(Lanes a, Lanes b) {
  return each([&](int i) { return a.v[i] / b.v[i]; });
}
inline Lanes fma(Lanes a, Lanes b, Lanes c) {
  return each([&](int i) { return __builtin_fmaf(a.v[i], b.v[i], c.v[i]); });
}
inline Lanes sqrt(Lanes a) {
  return each([&](int i) { return __builtin_sqrtf(a.v[i]); });
}
inline Lanes round_to_nearest(Lanes a) {
  return each([&](int i) { return __builtin_nearbyintf(a.v[i]); });
}
inline LaneMask less(Lanes a, Lanes b) {
  LaneMask r;
  for (int i = 0; i < kLanes; ++i) r.m[i] = a.v[i] < b.v[i];
  return r;
}
inline LaneMask is_nan(Lanes a) {
  LaneMask r;
  for (int i = 0; i < kLanes; ++i) r.m[i] = a.v[i] != a.v[i];
  return r;
}
inline Lanes select(LaneMask m, Lanes yes, Lanes no) {
  return each([&](int i) { return m.m[i] ? yes.v[i] : no.v[i]; });
}
inline std::uint32_t bits_of(float x) {
  std::uint32_t bits;
  std::memcpy(&bits, &x, sizeof(bits));
  return bits;
}
inline float float_of(std::uint32_t bits) {
  float x;
  std::memcpy(&x, &bits, sizeof(x));
  return x;
}
inline Lanes bit_and(Lanes a, std::uint32_t bits) {
  return each([&](int i) { return float_of(bits_of(a.v[i]) & bits); });
}
inline Lanes bit_or(Lanes a, Lanes b) {
  return each([&](int i) { return float_of(bits_of(a.v[i]) | bits_of(b.v[i])); });
}
inline Lanes exp2_integer(Lanes n) {
  return each([&](int i) {
    return float_of(static_cast<std::uint32_t>(static_cast<int>(n.v[i]) + 127) << 23);
  });
}
inline float sum(Lanes a) {
  for (int half = kLanes / 2; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) a.v[i] = a.v[i] + a.v[i + half];
  }
  return a.v[0];
}

#endif

// The first n lanes (0 <= n <= 16); the others read as zero.
inline Lanes load_bf16(const std::uint16_t* p, int n) {
  std::uint16_t full[kLanes] = {};
  std::memcpy(full, p, static_cast<std::size_t>(n) * sizeof(std::uint16_t));
  return load_bf16(full);
}
inline Lanes abs(Lanes a) { return bit_and(a, 0x7FFFFFFFu); }
// b if either is NaN.
inline Lanes min(Lanes a, Lanes b) { return select(less(a, b), a, b); }
inline Lanes max(Lanes a, Lanes b) { return select(less(b, a), a, b); }

}  // namespace engine::base::LAZYLORA_ISA
