// What the AVX2 kernels share: scales of a superblock, 8 at a time.
#pragma once

#include <cstdint>

#include "backends/cpu/kernels.h"
#include "backends/cpu/x86/chunks.h"
#include "backends/cpu/x86/intrinsics.h"

namespace metal_marlin::cpu {

/// 8 scales, as floats, exact. `index` counts scales. The cases are those of the AVX-512 function.
template <ScaleType kType>
MARLIN_AVX2 MARLIN_INLINE __m256 load_8_scales(const uint8_t* p, int64_t index) {
  if constexpr (kType == ScaleType::f32) {
    return _mm256_loadu_ps(reinterpret_cast<const float*>(p + 4 * index));
  } else if constexpr (kType == ScaleType::f16) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 2 * index)));
  } else if constexpr (kType == ScaleType::bf16) {
    const __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 2 * index)));
    return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
  } else if constexpr (kType == ScaleType::e8m0) {
    const __m256i e = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p + index)));
    const __m256i next = _mm256_and_si256(_mm256_add_epi32(e, _mm256_set1_epi32(1)), _mm256_set1_epi32(255));
    const __m256i edge = _mm256_cmpgt_epi32(_mm256_set1_epi32(2), next);
    return _mm256_castsi256_ps(_mm256_or_si256(_mm256_slli_epi32(e, 23), _mm256_and_si256(edge, _mm256_set1_epi32(0x400000))));
  } else {
    const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p + index));
    const __m128i half = _mm_and_si128(_mm_slli_epi16(_mm_cvtepi8_epi16(bytes), 7), _mm_set1_epi16(static_cast<short>(0xbfff)));
    const __m256i code = _mm256_and_si256(_mm256_cvtepu8_epi32(bytes), _mm256_set1_epi32(0x7f));
    const __m256 nan = _mm256_castsi256_ps(_mm256_cmpeq_epi32(code, _mm256_set1_epi32(0x7f)));  // all ones is a NaN
    return _mm256_or_ps(_mm256_mul_ps(_mm256_cvtph_ps(half), _mm256_set1_ps(256.0f)), nan);
  }
}

/// n scales (a multiple of 8) to `out`, times `factor`.
template <ScaleType kType>
MARLIN_AVX2 inline void decode_scales_avx2(const uint8_t* p, int n, float factor, float* out) {
  for (int i = 0; i < n; i += 8) _mm256_storeu_ps(out + i, _mm256_mul_ps(load_8_scales<kType>(p, i), _mm256_set1_ps(factor)));
}

MARLIN_AVX2 inline void decode_scales_avx2(ScaleType type, const uint8_t* p, int n, float factor, float* out) {
  switch (type) {
    case ScaleType::f32:
      return decode_scales_avx2<ScaleType::f32>(p, n, factor, out);
    case ScaleType::f16:
      return decode_scales_avx2<ScaleType::f16>(p, n, factor, out);
    case ScaleType::bf16:
      return decode_scales_avx2<ScaleType::bf16>(p, n, factor, out);
    case ScaleType::e8m0:
      return decode_scales_avx2<ScaleType::e8m0>(p, n, factor, out);
    case ScaleType::e4m3:
      return decode_scales_avx2<ScaleType::e4m3>(p, n, factor, out);
  }
}

}  // namespace metal_marlin::cpu
