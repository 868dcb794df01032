// INT8 activations by vpdpbusd. Weights are unsigned bytes (code + offset), activations are signed,
// and the sum of the block corrects the offset. Sums stay integers over a block of 32 slots (16
// with groups of 16) and are then scaled in float.
#pragma once

#include "backends/cpu/e2m1.h"
#include "backends/cpu/x86/avx512_codes.h"
#include "backends/cpu/x86/scale_range.h"

namespace metal_marlin::cpu {

MARLIN_AVX512 MARLIN_INLINE bool holds(const ScaleRange& range, const Magnitudes& scales) {
  return (_mm512_cmpgt_epu32_mask(scales.largest, _mm512_set1_epi32(static_cast<int>(range.most))) |
          _mm512_cmplt_epu32_mask(scales.smallest,
                                  _mm512_set1_epi32(static_cast<int>(range.least)))) == 0;
}

/// The product of a power of two and d, both within ScaleRange::exponents. It adds integers,
/// because any pipe adds and only few multiply.
MARLIN_AVX512 MARLIN_INLINE __m512 add_exponents(__m512 power, __m512i d_less_one) {
  return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(power), d_less_one));
}
MARLIN_AVX512 MARLIN_INLINE __m512i less_one(__m512 d) {
  return _mm512_sub_epi32(_mm512_castps_si512(d), _mm512_set1_epi32(0x3f800000));
}

/// The activation, of 8, by which each byte of a dword of kept codes is multiplied. These are the
/// positions of half kHalf (0, 1) of unit `unit` of a block. vpmultishiftqb moves any 8 bits of a
/// qword to a byte. 2 of these bits matter, and every second byte belongs to the second quad.
template <int kHalf>
MARLIN_AVX512 MARLIN_INLINE __m512i gather_control(int unit, __m512i positions) {
  // Byte 2 i + t of a dword is position i of quad t, at bit 16 i + 2 t, and 4 bits further for each
  // half of a unit.
  const __m512i from = _mm512_add_epi8(_mm512_set1_epi64(0x32302220'12100200),
                                       _mm512_set1_epi8(static_cast<char>(8 * unit + 4 * kHalf)));
  const __m512i fields = _mm512_multishift_epi64_epi8(from, positions);
  return _mm512_ternarylogic_epi32(fields, _mm512_set1_epi8(3), _mm512_set1_epi32(0x04000400),
                                   0xea);  // (a & b) | c
}

/// scale * d, kept finite if the scale is finite: an infinite factor would give NaN if the integer
/// sum is 0. NaN stays NaN.
MARLIN_AVX512 MARLIN_INLINE __m512 finite_product(__m512 scale, __m512 d) {
  const __m512 limit = _mm512_set1_ps(kLargestFloat), product = _mm512_mul_ps(scale, d);
  const __mmask16 clamp = _mm512_cmp_ps_mask(_mm512_abs_ps(scale), limit, _CMP_LE_OQ);
  return _mm512_mask_max_ps(product, clamp, _mm512_set1_ps(-kLargestFloat),
                            _mm512_min_ps(limit, product));
}

/// A d above this may overflow the sum of a group of 64 or 128 before a small scale is applied: 4
/// blocks of 32 products of bytes are below 2^22. Such rows are scaled block by block.
inline constexpr float kOverflowProne = 0x1p100f;

/// How a scale is multiplied by d. All ways give the same bits where they are right, so the other
/// rows of a tile do not change a row.
enum class Factor {
  product,    ///< nothing overflows
  finite,     ///< finite_product
  exponents,  ///< add_exponents
};

template <Factor kFactor>
MARLIN_AVX512 MARLIN_INLINE __m512 factor_of(__m512 scale, __m512 d) {
  if constexpr (kFactor == Factor::exponents) return add_exponents(scale, less_one(d));
  return kFactor == Factor::finite ? finite_product(scale, d) : _mm512_mul_ps(scale, d);
}

}  // namespace metal_marlin::cpu
