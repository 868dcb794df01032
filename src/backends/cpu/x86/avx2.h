// Code that the AVX2 kernels share: scales of a superblock and lines of codes, 8 columns at a time.
#pragma once

#include <cstdint>

#include "backends/cpu/chunks.h"
#include "backends/cpu/expand.h"
#include "backends/cpu/kernels.h"
#include "backends/cpu/x86/intrinsics.h"

namespace metal_marlin::cpu {

/// Decodes 8 scales to floats exactly. `index` counts scales. The cases are those of the AVX-512
/// function.
template <ScaleType kType>
MARLIN_AVX2 MARLIN_INLINE __m256 load_8_scales(const uint8_t* p, int64_t index) {
  if constexpr (kType == ScaleType::f32) {
    return _mm256_loadu_ps(reinterpret_cast<const float*>(p + 4 * index));
  } else if constexpr (kType == ScaleType::f16) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 2 * index)));
  } else if constexpr (kType == ScaleType::bf16) {
    const __m256i wide =
        _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 2 * index)));
    return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
  } else if constexpr (kType == ScaleType::e8m0) {
    const __m256i e =
        _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p + index)));
    const __m256i next =
        _mm256_and_si256(_mm256_add_epi32(e, _mm256_set1_epi32(1)), _mm256_set1_epi32(255));
    const __m256i edge = _mm256_cmpgt_epi32(_mm256_set1_epi32(2), next);
    return _mm256_castsi256_ps(_mm256_or_si256(
        _mm256_slli_epi32(e, 23), _mm256_and_si256(edge, _mm256_set1_epi32(0x400000))));
  } else {
    const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p + index));
    const __m128i half = _mm_and_si128(_mm_slli_epi16(_mm_cvtepi8_epi16(bytes), 7),
                                       _mm_set1_epi16(static_cast<short>(0xbfff)));
    const __m256i code = _mm256_and_si256(_mm256_cvtepu8_epi32(bytes), _mm256_set1_epi32(0x7f));
    const __m256 nan = _mm256_castsi256_ps(
        _mm256_cmpeq_epi32(code, _mm256_set1_epi32(0x7f)));  // all ones is a NaN
    return _mm256_or_ps(_mm256_mul_ps(_mm256_cvtph_ps(half), _mm256_set1_ps(256.0f)), nan);
  }
}

/// Decodes n scales (a multiple of 8), times `factor`, to `out`.
template <ScaleType kType>
MARLIN_AVX2 inline void decode_scales_avx2(const uint8_t* p, int n, float factor, float* out) {
  for (int i = 0; i < n; i += 8)
    _mm256_storeu_ps(out + i, _mm256_mul_ps(load_8_scales<kType>(p, i), _mm256_set1_ps(factor)));
}

/// 8 bytes, as dwords, from bit `shift` on.
MARLIN_AVX2 MARLIN_INLINE __m256i load_8_bits(const uint8_t* p, int shift, int mask) {
  const __m256i x = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
  return _mm256_and_si256(_mm256_srl_epi32(x, _mm_cvtsi32_si128(shift)), _mm256_set1_epi32(mask));
}

/// The integers of 8 columns of a two-level type, of group g.
template <ScaleType kType>
MARLIN_AVX2 MARLIN_INLINE __m256i load_8_integers(const uint8_t* p, int low_rows, int g) {
  if constexpr (kType == ScaleType::s8) {
    return _mm256_cvtepi8_epi32(
        _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p + kPanelColumns * g)));
  } else {
    const __m256i low = load_8_bits(p + kPanelColumns * (g / 2), g % 2 * 4, 15);
    if constexpr (kType == ScaleType::u4) return low;
    const __m256i high = load_8_bits(p + kPanelColumns * (low_rows + g / 4), g % 4 * 2, 3);
    const __m256i q = _mm256_or_si256(low, _mm256_slli_epi32(high, 4));
    if constexpr (kType == ScaleType::u6) return q;
    return _mm256_srai_epi32(_mm256_slli_epi32(q, 26), 26);
  }
}

/// The same for two-level scales: the products of integers and factors, which are exact.
template <ScaleType kType>
MARLIN_AVX2 inline void decode_two_level_avx2(const uint8_t* p, int n, float factor, float* out) {
  const int groups = n / kPanelColumns, low_rows = two_level_low_rows(kType, groups),
            high_rows = two_level_high_rows(kType, groups);
  const uint8_t* const factors = p + kPanelColumns * (low_rows + high_rows);
  for (int c = 0; c < kPanelColumns; c += 8) {
    const __m256 d =
        _mm256_mul_ps(load_8_scales<ScaleType::f16>(factors, c), _mm256_set1_ps(factor));
    for (int g = 0; g < groups; ++g)
      _mm256_storeu_ps(
          out + g * kPanelColumns + c,
          _mm256_mul_ps(_mm256_cvtepi32_ps(load_8_integers<kType>(p + c, low_rows, g)), d));
  }
}

MARLIN_AVX2 inline void decode_scales_avx2(ScaleType type, const uint8_t* p, int n, float factor,
                                           float* out) {
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
    case ScaleType::u4:
      return decode_two_level_avx2<ScaleType::u4>(p, n, factor, out);
    case ScaleType::u6:
      return decode_two_level_avx2<ScaleType::u6>(p, n, factor, out);
    case ScaleType::s6:
      return decode_two_level_avx2<ScaleType::s6>(p, n, factor, out);
    case ScaleType::s8:
      return decode_two_level_avx2<ScaleType::s8>(p, n, factor, out);
    case ScaleType::nested:  // decode_real_scales_avx2
      return;
  }
}

/// Decodes the nested scales of a superblock. A fused multiply-add rounds each of them once.
MARLIN_AVX2 inline void decode_nested_avx2(const PanelLayout& layout, const uint8_t* panel,
                                           const uint8_t* super, float* out) {
  const NestedSuper nested(layout, panel, super);
  const uint8_t* bytes = super + layout.scales_offset();
  for (int g = 0; g < layout.groups_per_super(); ++g) {
    const float* const factors = nested.factors(g);
    for (int c = 0; c < kPanelColumns; c += 8, bytes += 8, out += 8) {
      const __m256i index =
          _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(bytes)));
      _mm256_storeu_ps(
          out, _mm256_fmadd_ps(_mm256_i32gather_ps(layout.scale_map, index, 4),
                               _mm256_loadu_ps(factors + c), _mm256_loadu_ps(nested.offsets + c)));
    }
  }
}

/// The scales of a superblock of real codes, which may be nested.
MARLIN_AVX2 inline void decode_real_scales_avx2(const PanelLayout& layout, const uint8_t* panel,
                                                const uint8_t* super, float* out) {
  if (layout.has_nested_scales()) return decode_nested_avx2(layout, panel, super, out);
  decode_scales_avx2(layout.scale_type, super + layout.scales_offset(),
                     layout.groups_per_super() * kPanelColumns, 1.0f, out);
}

/// The vectors in which codes are expanded.
struct Avx2Bytes {
  using Vector = __m256i;
  static constexpr int kBytes = 32;
  MARLIN_AVX2 MARLIN_INLINE static Vector load(const uint8_t* p) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  }
  MARLIN_AVX2 MARLIN_INLINE static void store(uint8_t* p, Vector x) {
    _mm256_store_si256(reinterpret_cast<__m256i*>(p), x);
  }
  MARLIN_AVX2 MARLIN_INLINE static Vector splat(int x) {
    return _mm256_set1_epi8(static_cast<char>(x));
  }
  MARLIN_AVX2 MARLIN_INLINE static Vector both(Vector a, Vector b) {
    return _mm256_and_si256(a, b);
  }
  MARLIN_AVX2 MARLIN_INLINE static Vector either(Vector a, Vector b) {
    return _mm256_or_si256(a, b);
  }
  MARLIN_AVX2 MARLIN_INLINE static Vector minus(Vector a, Vector b) {
    return _mm256_sub_epi8(a, b);
  }
  template <int kBits>
  MARLIN_AVX2 MARLIN_INLINE static Vector left(Vector x) {
    return _mm256_slli_epi16(x, kBits);
  }
  template <int kBits>
  MARLIN_AVX2 MARLIN_INLINE static Vector right(Vector x) {
    return _mm256_srli_epi16(x, kBits);
  }
  MARLIN_AVX2 MARLIN_INLINE static Vector look_up_iq4(Vector index) {
    const __m128i table = _mm_load_si128(reinterpret_cast<const __m128i*>(kIq4Bytes.of));
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(table), index);
  }
};
#define MARLIN_EXPAND_TARGET MARLIN_AVX2
#define MARLIN_EXPAND_BYTES Avx2Bytes
#define MARLIN_EXPAND expand_avx2
#define MARLIN_EXPAND_WITHOUT_E4M3  // avx2_real.h
#include "backends/cpu/expand.inc"

/// Decodes the additive zeros of a superblock whose n scales are decoded.
MARLIN_AVX2 inline void decode_zeros_avx2(const PanelLayout& layout, const uint8_t* super, int n,
                                          const float* scales, float* out) {
  const uint8_t* const zeros = super + layout.zeros_offset();
  if (layout.zero_kind == ZeroKind::additive)
    decode_scales_avx2(layout.zero_type, zeros, n, 1.0f, out);
  if (layout.less_128)
    correct_zeros(layout, zeros, n / kPanelColumns, 0, kPanelColumns, scales, out);
}

/// The codes of a superblock as kernels of kCode read them, perhaps expanded to `to`.
template <CodeKind kCode>
MARLIN_INLINE const uint8_t* codes_of_super(const PanelLayout& layout, const uint8_t* super,
                                            int64_t ahead, ExpandedCodes<kCode>& to) {
  if (!may_be_expanded(kCode) || layout.expansion == Expansion::none) return super;
  expand_avx2(layout, super, 0, kColumnGroups, ahead, to.bytes);
  return to.bytes;
}

/// A line of 4-bit codes, 8 columns x 8 slots, like Codes of the AVX-512 kernels.
struct Codes8 {
  __m256i low, high;  ///< high: only if split
};

/// Lines of codes, dense and 2:4 sparse, like CodeLines of the AVX-512 kernels, for 8 columns.
template <CodeKind kCode, bool kSparse>
struct CodeLines8 {
  static_assert(!(kSparse && is_eight_bits(kCode)));
  static constexpr int kLines = is_eight_bits(kCode) ? 8 : 4;
  static constexpr int kBytes = kSparse ? kSparseGroupBytes : kLines * 64;
  static constexpr bool kSplit = kSparse || kCode == CodeKind::u4zero;
  static constexpr bool kCountsKept = kSparse && is_additive(kCode);

  /// Reads columns 8 half .. 8 half + 7 of a line. `zeros` are 8 integer zeros, which are applied
  /// as code + 16 - zero.
  MARLIN_AVX2 MARLIN_INLINE static Codes8 read(const uint8_t* group, int line, int half,
                                               const uint8_t* zeros) {
    const __m256i fifteen = _mm256_set1_epi8(15);
    if constexpr (!kSparse) {
      const __m256i packed =
          _mm256_loadu_si256(reinterpret_cast<const __m256i*>(group + line * 64 + half * 32));
      if constexpr (kCode != CodeKind::u4zero) return {packed, packed};
      return {
          _mm256_add_epi8(_mm256_and_si256(packed, fifteen), offset(zeros)),
          _mm256_add_epi8(_mm256_and_si256(_mm256_srli_epi16(packed, 4), fifteen), offset(zeros))};
    } else {
      const __m256i unit =
          _mm256_loadu_si256(reinterpret_cast<const __m256i*>(group + line / 2 * 64 + half * 32));
      const __m256i packed =
          _mm256_and_si256(line % 2 == 0 ? unit : _mm256_srli_epi16(unit, 4), fifteen);
      const __m256i first = places(group, 2 * line, half),
                    second = places(group, 2 * line + 1, half);
      __m256i low = _mm256_shuffle_epi8(packed, first), high = _mm256_shuffle_epi8(packed, second);
      if constexpr (kCode == CodeKind::u4zero) {
        low = _mm256_add_epi8(low, offset(zeros));
        high = _mm256_add_epi8(high, offset(zeros));
      }
      if constexpr (kCode == CodeKind::u4 || kCode == CodeKind::u4zero) {
        const __m256i nothing = _mm256_set1_epi8(kCode == CodeKind::u4 ? 8 : 16);
        low = _mm256_blendv_epi8(low, nothing, first);
        high = _mm256_blendv_epi8(high, nothing, second);
      }
      return {low, high};
    }
  }

  /// Codes that are 1 for kept slots and 0 for others.
  MARLIN_AVX2 MARLIN_INLINE static Codes8 kept(const uint8_t* group, int line, int half) {
    const __m256i one = _mm256_set1_epi8(1), none = _mm256_setzero_si256();
    return {_mm256_add_epi8(one, _mm256_cmpgt_epi8(none, places(group, 2 * line, half))),
            _mm256_add_epi8(one, _mm256_cmpgt_epi8(none, places(group, 2 * line + 1, half)))};
  }

  MARLIN_INLINE static void fetch(const uint8_t* group, int line, int64_t ahead) {
    if (line < kBytes / 64) fetch_line(group + ahead + line * 64);
  }

  /// Step kStep of 8 slots in the low bits of dwords; quad kQuad in the low bits of bytes.
  template <int kStep>
  MARLIN_AVX2 MARLIN_INLINE static __m256i dwords(Codes8 codes) {
    if constexpr (kSplit)
      return _mm256_srli_epi32(kStep % 2 == 0 ? codes.low : codes.high, kStep / 2 * 8);
    return _mm256_srli_epi32(codes.low, kStep * 4);
  }
  template <int kQuad>
  MARLIN_AVX2 MARLIN_INLINE static __m256i bytes(Codes8 codes) {
    if constexpr (kSplit) return kQuad == 0 ? codes.low : codes.high;
    return kQuad == 0 ? codes.low : _mm256_srli_epi16(codes.low, 4);
  }

 private:
  /// The index among the kept bytes for each byte of 8 columns x 4 slots; above 127 for slots that
  /// are not kept. For two positions a < b, the lowest 3 bits of a + 2 b distinguish all six pairs,
  /// and vpermd uses 3 bits.
  MARLIN_AVX2 MARLIN_INLINE static __m256i places(const uint8_t* group, int quad, int half) {
    const __m256i positions =
        _mm256_loadu_si256(reinterpret_cast<const __m256i*>(group + kSparsePositions + half * 32));
    const __m256i a = _mm256_and_si256(_mm256_srl_epi32(positions, _mm_cvtsi32_si128(2 * quad)),
                                       _mm256_set1_epi32(3));
    const __m256i b = _mm256_and_si256(
        _mm256_srl_epi32(positions, _mm_cvtsi32_si128(15 + 2 * quad)), _mm256_set1_epi32(6));
    const __m256i order = _mm256_setr_epi8(-128, -128, 0, 2,        // slots 2, 3: 8
                                           -128, -128, -128, -128,  // no such pair
                                           0, 2, -128, -128,        // 0, 1
                                           -128, -128, -128, -128,  //
                                           0, -128, 2, -128,        // 0, 2
                                           -128, 0, 2, -128,        // 1, 2
                                           0, -128, -128, 2,        // 0, 3
                                           -128, 0, -128, 2);       // 1, 3
    const __m256i own = _mm256_add_epi8(
        _mm256_broadcastsi128_si256(_mm_setr_epi32(0, 0x04040404, 0x08080808, 0x0c0c0c0c)),
        _mm256_set1_epi8(static_cast<char>(quad % 2)));
    return _mm256_add_epi8(_mm256_permutevar8x32_epi32(order, _mm256_add_epi32(a, b)), own);
  }

  /// 16 - zero of 8 columns, in every byte of the column's dword.
  MARLIN_AVX2 MARLIN_INLINE static __m256i offset(const uint8_t* zeros) {
    const __m256i z = _mm256_set1_epi64x(load<int64_t>(zeros));
    const __m256i columns = _mm256_setr_epi32(0, 0x01010101, 0x02020202, 0x03030303,  //
                                              0x04040404, 0x05050505, 0x06060606, 0x07070707);
    return _mm256_sub_epi8(_mm256_set1_epi8(16), _mm256_shuffle_epi8(z, columns));
  }
};

}  // namespace metal_marlin::cpu
