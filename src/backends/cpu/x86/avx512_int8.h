// INT8 activations by vpdpbusd: weights as unsigned bytes (code + offset), activations signed, the offset undone by the block's
// sum. Sums stay integers over a block of 32 slots (16 with groups of 16) and are then scaled in float.
#pragma once

#include <algorithm>

#include "backends/cpu/x86/avx512_codes.h"

namespace metal_marlin::cpu {

/// What one superblock needs besides its codes.
struct alignas(64) Int8Super {
  float scale[8][kPanelColumns];
  float zero[8][kPanelColumns];       ///< additive zeros
  uint32_t offset[8][kPanelColumns];  ///< w4zero: decode_offsets
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
  if constexpr (kCode == CodeKind::w4zero) decode_offsets(zeros, groups, v0, nv, out.offset);
  if constexpr (is_additive(kCode)) decode_scale_rows(shape.zero_type, zeros, groups, v0, nv, 1.0f, &out.zero[0][0]);
  return largest;
}

/// 4 slots of 16 columns as unsigned bytes: quad kQuad of a 4-bit line, or all of an 8-bit one.
template <CodeKind kCode, bool kSparse, int kQuad>
MARLIN_AVX512 MARLIN_INLINE __m512i unsigned_codes(Codes codes) {
  using Lines = CodeLines<kCode, kSparse>;
  if constexpr (is_eight_bits(kCode)) {
    return _mm512_xor_si512(codes.low, _mm512_set1_epi8(static_cast<char>(0x80)));
  } else if constexpr (kCode == CodeKind::fp4) {
    // vpermb looks at 6 bits: the table, repeated 4 times, makes the neighbour's bits not matter.
    const __m512i table = _mm512_broadcast_i32x4(_mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0));
    return _mm512_permutexvar_epi8(Lines::template bytes<kQuad>(codes), table);
  } else {
    const __m512i code = Lines::template bytes<kQuad>(codes);
    return Lines::kClean ? code : _mm512_and_si512(code, _mm512_set1_epi8(15));
  }
}

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
