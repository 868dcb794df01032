// Code that the AVX2 kernels share: scales of a superblock and lines of codes, 8 columns at a time.
#pragma once

#include <cstdint>

#include "backends/cpu/chunks.h"
#include "backends/cpu/expand.h"
#include "backends/cpu/kernels.h"
#include "backends/cpu/x86/intrinsics.h"

namespace metal_marlin::cpu {

/// Decodes n scales or zeros (a multiple of 64), times `factor`, to `out`.
MARLIN_AVX2 void decode_scales_avx2(ScaleType type, const uint8_t* p, int n, float factor,
                                    float* out);

/// Decodes the scales of a superblock of a panel, which may be nested, and its additive zeros.
MARLIN_AVX2 void decode_float_scales_avx2(const PanelArgs& args, const uint8_t* super, float* scale,
                                          float* zero);

/// Decodes the additive zeros of a superblock whose n scales are decoded.
MARLIN_AVX2 void decode_zeros_avx2(const PanelLayout& layout, const uint8_t* super, int n,
                                   const float* scales, float* out);

/// Expands column groups [v0, v0 + nv) of a superblock (expand.h), but for E4M3 (avx2_f32.h).
/// `ahead` is the prefetch distance, or 0.
MARLIN_AVX2 void expand_avx2(const PanelLayout& layout, const uint8_t* super, int v0, int nv,
                             int64_t ahead, uint8_t* to);

/// Whether kernels of F32 multiply expanded codes. IQ4 and E4M3 are looked up.
inline bool expands_avx2(const PanelArgs& args) {
  return args.layout->expansion == Expansion::integers;
}

/// A float in all lanes. (As integers, because g++ 12 moves loads of floats.)
MARLIN_AVX2 MARLIN_INLINE __m256 broadcast_avx2(const uint32_t* x) {
  return _mm256_castsi256_ps(_mm256_set1_epi32(static_cast<int>(*x)));
}

/// Calls call.operator()<kRows>() for 1 to kMost rows.
template <int kMost, class Call>
void with_rows(int rows, Call call) {
  if constexpr (kMost > 1)
    if (rows != kMost) return with_rows<kMost - 1>(rows, call);
  call.template operator()<kMost>();
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
