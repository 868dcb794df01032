// The vectors of AVX-512, for the sources of tile/.
#pragma once

#include "backends/cpu/x86/super.h"

#define MARLIN_SET avx512
#define MARLIN_TARGET MARLIN_AVX512

namespace metal_marlin::cpu::avx512 {

#define OP MARLIN_AVX512 MARLIN_INLINE static
struct Vec {
  using Floats = __m512;
  using Ints = __m512i;
  using Vector = Ints;  ///< of expand.inc
  static constexpr int kLanes = 16, kBytes = 64;

  OP Ints load(const void* p) { return _mm512_loadu_si512(p); }
  OP void store(void* p, Ints x) { _mm512_storeu_si512(p, x); }
  OP Floats load_floats(const void* p) { return _mm512_loadu_ps(p); }
  OP void store_floats(float* p, Floats x) { _mm512_storeu_ps(p, x); }
  OP Floats floats(float x) { return _mm512_set1_ps(x); }
  OP Ints dwords(int x) { return _mm512_set1_epi32(x); }
  OP Ints splat(int x) { return _mm512_set1_epi8(static_cast<char>(x)); }
  OP Ints table(const void* p) {
    return _mm512_broadcast_i32x4(_mm_loadu_si128(static_cast<const __m128i*>(p)));
  }
  // A lane for each of some bytes or words.
  OP Ints dwords_of_bytes(const void* p) {
    return _mm512_cvtepu8_epi32(_mm_loadu_si128(static_cast<const __m128i*>(p)));
  }
  OP Ints dwords_of_signed(const void* p) {
    return _mm512_cvtepi8_epi32(_mm_loadu_si128(static_cast<const __m128i*>(p)));
  }
  OP Ints dwords_of_words(const void* p) {
    return _mm512_cvtepu16_epi32(_mm256_loadu_si256(static_cast<const __m256i*>(p)));
  }
  OP Floats floats_of_halves(const void* p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(static_cast<const __m256i*>(p)));
  }
  /// The scale is 2^(e - 127), so e is the exponent field. 0 is 2^-127, a subnormal, and 255 is
  /// NaN.
  OP Floats floats_of_e8m0(const void* p) {
    const Ints e = dwords_of_bytes(p);
    const Ints bits = _mm512_max_epu32(_mm512_slli_epi32(e, 23), dwords(0x400000));
    const __mmask16 nan = _mm512_cmpeq_epi32_mask(e, dwords(255));
    return as_floats(_mm512_mask_mov_epi32(bits, nan, dwords(0x7fc00000)));
  }
  /// The bits of E4M3 in the exponent and mantissa of a half give a value that is 2^-8 too small;
  /// 0x7f and 0xff are NaN. The shift copies the sign into bit 14, which must be 0.
  OP Floats floats_of_e4m3(const void* p) {
    const __m128i bytes = _mm_loadu_si128(static_cast<const __m128i*>(p));
    const __m256i half = _mm256_and_si256(_mm256_slli_epi16(_mm256_cvtepi8_epi16(bytes), 7),
                                          _mm256_set1_epi16(static_cast<short>(0xbfff)));
    const __mmask16 number =
        _mm_cmpneq_epi8_mask(_mm_and_si128(bytes, _mm_set1_epi8(0x7f)), _mm_set1_epi8(0x7f));
    return _mm512_mask_mul_ps(as_floats(dwords(0x7fc00000)), number, _mm512_cvtph_ps(half),
                              floats(256.0f));
  }
  OP Floats floats_of(Ints x) { return _mm512_cvtepi32_ps(x); }
  OP Floats as_floats(Ints x) { return _mm512_castsi512_ps(x); }
  OP Ints as_ints(Floats x) { return _mm512_castps_si512(x); }
  OP Floats gather(const float* from, Ints index) { return _mm512_i32gather_ps(index, from, 4); }
  OP Floats times(Floats a, Floats b) { return _mm512_mul_ps(a, b); }
  OP Floats multiply_add(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }

  OP Ints both(Ints a, Ints b) { return _mm512_and_si512(a, b); }
  OP Ints either(Ints a, Ints b) { return _mm512_or_si512(a, b); }
  OP Ints but(Ints a, Ints b) { return _mm512_andnot_si512(b, a); }
  OP Ints flip(Ints a, Ints b) { return _mm512_xor_si512(a, b); }
  OP Ints plus(Ints a, Ints b) { return _mm512_add_epi8(a, b); }
  OP Ints minus(Ints a, Ints b) { return _mm512_sub_epi8(a, b); }
  OP Ints left_by(Ints x, unsigned bits) { return _mm512_slli_epi16(x, bits); }
  OP Ints right_by(Ints x, unsigned bits) { return _mm512_srli_epi16(x, bits); }
  template <int kBits>
  OP Ints left(Ints x) {
    return _mm512_slli_epi16(x, kBits);
  }
  template <int kBits>
  OP Ints right(Ints x) {
    return _mm512_srli_epi16(x, kBits);
  }
  OP Ints plus_32(Ints a, Ints b) { return _mm512_add_epi32(a, b); }
  OP Ints minus_32(Ints a, Ints b) { return _mm512_sub_epi32(a, b); }
  OP Ints times_32(Ints a, Ints b) { return _mm512_mullo_epi32(a, b); }
  OP Ints left_32(Ints x, unsigned bits) { return _mm512_slli_epi32(x, bits); }
  OP Ints right_32(Ints x, int bits) { return _mm512_srl_epi32(x, _mm_cvtsi32_si128(bits)); }
  OP Ints largest_32(Ints a, Ints b) { return _mm512_max_epu32(a, b); }
  OP Ints smallest_32(Ints a, Ints b) { return _mm512_min_epu32(a, b); }

  OP Ints shuffle(Ints table, Ints index) { return _mm512_shuffle_epi8(table, index); }
  OP Ints look_up_iq4(Ints index) { return shuffle(table(kIq4Bytes.of), index); }
  OP Ints look_up_32(const uint32_t (&of)[16], Ints index) {
    return _mm512_permutexvar_epi32(index, load(of));
  }
  /// `yes` where the upper bit of a byte of `sign` is set.
  OP Ints choose_by_sign(Ints sign, Ints yes, Ints no) {
    return _mm512_mask_mov_epi8(no, _mm512_movepi8_mask(sign), yes);
  }

  // Lanes of 16 bits, for E4M3.
  template <int kBits>
  OP Ints left_16(Ints x) {
    return left<kBits>(x);
  }
  template <int kBits>
  OP Ints right_16(Ints x) {
    return right<kBits>(x);
  }
  OP Ints splat_16(int x) { return _mm512_set1_epi16(static_cast<short>(x)); }
  OP Ints plus_16(Ints a, Ints b) { return _mm512_add_epi16(a, b); }
  OP __mmask32 less_16(Ints a, Ints b) { return _mm512_cmplt_epi16_mask(a, b); }
  OP Ints choose(__mmask32 mask, Ints yes, Ints no) { return _mm512_mask_mov_epi16(no, mask, yes); }
  OP Ints look_up_e4m3(Ints index) {
    return _mm512_permutexvar_epi16(index, table(kE4m3Subnormals.of));
  }
};
#undef OP

}  // namespace metal_marlin::cpu::avx512

#include "backends/cpu/x86/tile/codes.inc"
