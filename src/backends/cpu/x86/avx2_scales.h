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

/// Decodes all of them. A function of its own, because several loops share it.
MARLIN_AVX2 [[gnu::noinline]] inline void decode_super(const PanelLayout& layout, CodeKind code,
                                                       const uint8_t* super, Avx2FloatScales& out) {
  const int n = layout.groups_per_super() * kPanelColumns;
  decode_scales_avx2(layout.scale_type, super + layout.scales_offset(), n, code_factor(code),
                     &out.scale[0][0]);
  if (is_additive(code)) decode_zeros_avx2(layout, super, n, &out.scale[0][0], &out.zero[0][0]);
}

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

/// Joins the planes of 4 and 2 bits to bytes, for 32 columns of all groups. `low` and `high` are
/// rows of the planes, from the first column on; high is null for integers of 4 bits.
template <ScaleType kType>
MARLIN_AVX2 MARLIN_INLINE void join_integers(const uint8_t* low, const uint8_t* high, int groups,
                                             int8_t* out) {
  const __m256i fifteen = _mm256_set1_epi8(15), upper = _mm256_set1_epi8(0x30),
                sign = _mm256_set1_epi8(32);
#pragma GCC unroll 8
  for (int g = 0; g < 8; ++g) {
    if (g == groups) break;
    __m256i q = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(low + kPanelColumns * (g / 2)));
    q = _mm256_and_si256(g % 2 == 0 ? q : _mm256_srli_epi16(q, 4), fifteen);
    if constexpr (kType != ScaleType::u4) {
      const __m256i two =
          _mm256_loadu_si256(reinterpret_cast<const __m256i*>(high + kPanelColumns * (g / 4)));
      const __m256i moved =
          g % 4 < 3 ? _mm256_slli_epi16(two, 4 - 2 * (g % 4)) : _mm256_srli_epi16(two, 2);
      q = _mm256_or_si256(q, _mm256_and_si256(moved, upper));
    }
    if constexpr (kType == ScaleType::s6) q = _mm256_sub_epi8(_mm256_xor_si256(q, sign), sign);
    _mm256_store_si256(reinterpret_cast<__m256i*>(out + kPanelColumns * g), q);
  }
}

template <ScaleType kType>
MARLIN_AVX2 inline void decode_integers(const uint8_t* p, int groups, TwoLevelScales& out) {
  const uint8_t* const high = p + kPanelColumns * two_level_low_rows(kType, groups);
  for (int c = 0; c < kPanelColumns; c += 32)
    join_integers<kType>(p + c, high + c, groups, out.joined[0] + c);
  out.integers = out.joined[0];
}

/// Decodes the two-level scales or zeros of a superblock at p.
MARLIN_AVX2 inline void decode_two_level(ScaleType type, const uint8_t* p, int groups,
                                         TwoLevelScales& out) {
  if (type == ScaleType::s8)
    out.integers = reinterpret_cast<const int8_t*>(p);
  else if (type == ScaleType::u6)
    decode_integers<ScaleType::u6>(p, groups, out);
  else if (type == ScaleType::s6)
    decode_integers<ScaleType::s6>(p, groups, out);
  else
    decode_integers<ScaleType::u4>(p, groups, out);
  const uint8_t* const factors =
      p + kPanelColumns * (two_level_low_rows(type, groups) + two_level_high_rows(type, groups));
  for (int c = 0; c < kPanelColumns; c += 8)
    _mm256_store_ps(
        out.factors + c,
        _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(factors + 2 * c))));
}

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

/// Decodes all of them. A function of its own, because several loops share it.
MARLIN_AVX2 [[gnu::noinline]] inline void decode_super(const PanelLayout& layout, CodeKind code,
                                                       const uint8_t* super,
                                                       Avx2TwoLevelScales& out) {
  const int groups = layout.groups_per_super();
  decode_two_level(layout.scale_type, super + layout.scales_offset(), groups, out.scale);
  if (is_additive(code))
    decode_two_level(layout.zero_type, super + layout.zeros_offset(), groups, out.zero);
}

/// Whether the scales of these codes, and their zeros, have two levels.
inline bool has_two_level_scales(const PanelLayout& layout, CodeKind code) {
  return is_two_level(layout.scale_type) && (!is_additive(code) || layout.has_two_level_zeros());
}

}  // namespace metal_marlin::cpu
