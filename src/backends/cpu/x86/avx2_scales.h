// The scales of a superblock as kernels of few rows read them, 8 columns at a time: as floats, or
// as two levels. Such kernels use a scale a few times only, so the integers of two-level scales
// stay bytes until their columns are multiplied.
#pragma once

#include "backends/cpu/x86/avx2.h"

namespace metal_marlin::cpu {

/// The scales of a superblock, and its additive zeros.
struct alignas(32) Avx2FloatScales {
  float scale[8][kPanelColumns];
  float zero[8][kPanelColumns];

  /// Those of the 8 columns of vector v, counted from a column.
  MARLIN_AVX2 MARLIN_INLINE __m256 scale_of(int group, int column, int v) const {
    return _mm256_load_ps(&scale[group][column] + 8 * v);
  }
  MARLIN_AVX2 MARLIN_INLINE __m256 zero_of(int group, int column, int v) const {
    return _mm256_load_ps(&zero[group][column] + 8 * v);
  }
};

/// FP4 codes are multiplied as 2 * value.
constexpr float code_factor(CodeKind code) { return code == CodeKind::fp4 ? 0.5f : 1.0f; }

/// Two-level scales or zeros of a superblock (layout.h).
struct alignas(32) TwoLevelScales {
  float factors[kPanelColumns];
  int8_t joined[8][kPanelColumns];
  const int8_t* integers;  ///< [group][kPanelColumns]: `joined`, or in the superblock

  /// The scales of 8 columns: products of integers and factors, which are exact.
  MARLIN_AVX2 MARLIN_INLINE __m256 at(int group, int column, int v) const {
    const auto* const q =
        reinterpret_cast<const __m128i*>(integers + group * kPanelColumns + column + 8 * v);
    return _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(q))),
                         _mm256_load_ps(factors + column + 8 * v));
  }
};

/// Two-level scales of a superblock, and its additive zeros.
struct Avx2TwoLevelScales {
  TwoLevelScales scale, zero;
  MARLIN_AVX2 MARLIN_INLINE __m256 scale_of(int group, int column, int v) const {
    return scale.at(group, column, v);
  }
  MARLIN_AVX2 MARLIN_INLINE __m256 zero_of(int group, int column, int v) const {
    return zero.at(group, column, v);
  }
};

/// Decodes all of the scales and zeros of a superblock.
MARLIN_AVX2 void decode_super(const PanelLayout& layout, CodeKind code, const uint8_t* super,
                              Avx2FloatScales& out);
MARLIN_AVX2 void decode_super(const PanelLayout& layout, CodeKind code, const uint8_t* super,
                              Avx2TwoLevelScales& out);

/// Whether the scales of these codes, and their zeros, have two levels.
inline bool has_two_level_scales(const PanelLayout& layout, CodeKind code) {
  return is_two_level(layout.scale_type) && (!is_additive(code) || layout.has_two_level_zeros());
}

}  // namespace metal_marlin::cpu
