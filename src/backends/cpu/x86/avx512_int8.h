// INT8 activations by vpdpbusd: weights as unsigned bytes (code + offset), activations signed, the offset undone by the block's
// sum. Sums stay integers over a block of 32 slots (16 with groups of 16) and are then scaled in float.
#pragma once

#include <algorithm>

#include "backends/cpu/x86/avx512.h"

namespace metal_marlin::cpu {

/// What one superblock needs besides its codes. 16-byte columns of `offsets` repeat a column's byte 4 times.
struct alignas(64) Int8Super {
  float scale[8][kPanelColumns];
  float zero[8][kPanelColumns];         ///< additive zeros
  uint8_t offset[8][4][kPanelColumns];  ///< w4zero: 16 - zero, a byte for every code of the column
};

/// The largest scale, as bits, that any d of a tile keeps finite.
MARLIN_AVX512 MARLIN_INLINE __m512i scale_limit(float largest_d) {
  return _mm512_castps_si512(_mm512_set1_ps(std::min(FLT_MAX, FLT_MAX / largest_d)));
}
/// Whether some magnitude, as bits, is beyond the limit. A NaN is.
MARLIN_AVX512 MARLIN_INLINE bool may_overflow(__m512i magnitudes, __m512i limit) {
  return _mm512_cmpgt_epu32_mask(magnitudes, limit) != 0;
}

/// Decodes the scales and zeros of a superblock for column groups [v0, v0 + nv); returns the scales' largest magnitudes, as
/// bits.
template <CodeKind kCode>
MARLIN_AVX512 inline __m512i decode_int8_super(const SuperShape& shape, const uint8_t* super, int v0, int nv, Int8Super& out) {
  const int groups = shape.groups;
  // FP4 codes are multiplied as 2 * value.
  const __m512i largest = decode_scale_rows(shape.scale_type, super + shape.scales, groups, v0, nv,
                                            kCode == CodeKind::fp4 ? 0.5f : 1.0f, &out.scale[0][0]);
  const uint8_t* zeros = super + shape.zeros;
  if constexpr (kCode == CodeKind::w4zero) {
    const __m512i four_times = _mm512_set1_epi32(0x01010101);
    for (int g = 0; g < groups; ++g)
      for (int v = v0; v < v0 + nv; ++v) {
        const __m512i z =
            _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(zeros + g * kPanelColumns + 16 * v)));
        const __m512i offset = _mm512_mullo_epi32(_mm512_sub_epi32(_mm512_set1_epi32(16), z), four_times);
        _mm512_store_si512(out.offset[g][v], offset);
      }
  }
  if constexpr (is_additive(kCode)) decode_scale_rows(shape.zero_type, zeros, groups, v0, nv, 1.0f, &out.zero[0][0]);
  return largest;
}

/// Slots 0..3 of a step as unsigned bytes: the low (0) or high (1) nibbles of a line, or the bytes of an 8-bit line.
template <CodeKind kCode, int kNibble>
MARLIN_AVX512 MARLIN_INLINE __m512i unsigned_codes(__m512i line, __m512i offset) {
  if constexpr (kCode == CodeKind::w8sym || kCode == CodeKind::w8add) {
    return _mm512_xor_si512(line, _mm512_set1_epi8(static_cast<char>(0x80)));
  } else {
    const __m512i nibble = kNibble == 0 ? line : _mm512_srli_epi16(line, 4);
    if constexpr (kCode == CodeKind::fp4) {
      // vpermb looks at 6 bits: the table, repeated 4 times, makes the neighbour's bits not matter.
      const __m512i table = _mm512_broadcast_i32x4(_mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0));
      return _mm512_permutexvar_epi8(nibble, table);
    } else {
      const __m512i code = _mm512_and_si512(nibble, _mm512_set1_epi8(15));
      return kCode == CodeKind::w4zero ? _mm512_add_epi8(code, offset) : code;
    }
  }
}

template <CodeKind kCode>
inline constexpr bool kEightBits = kCode == CodeKind::w8sym || kCode == CodeKind::w8add;
/// What unsigned_codes adds to the value, where the activations' sums do not carry it already (activations.h: sum_factor).
template <CodeKind kCode>
inline constexpr int kUncorrected = kCode == CodeKind::w8add ? 128 : 0;

/// scale * d, kept finite when the scale is: where the integer sum is 0 an infinite factor would give NaN. NaN stays NaN.
MARLIN_AVX512 MARLIN_INLINE __m512 finite_product(__m512 scale, __m512 d) {
  const __m512 limit = _mm512_set1_ps(FLT_MAX), product = _mm512_mul_ps(scale, d);
  const __mmask16 clamp = _mm512_cmp_ps_mask(_mm512_abs_ps(scale), limit, _CMP_LE_OQ);
  return _mm512_mask_max_ps(product, clamp, _mm512_set1_ps(-FLT_MAX), _mm512_min_ps(limit, product));
}

}  // namespace metal_marlin::cpu
