// The vectors of AVX2, for the sources of tile/.
#pragma once

#include "backends/cpu/x86/super.h"

#define MARLIN_SET avx2
#define MARLIN_TARGET MARLIN_AVX2

namespace metal_marlin::cpu::avx2 {

#define OP MARLIN_AVX2 MARLIN_INLINE static
struct Vec {
  using Floats = __m256;
  using Ints = __m256i;
  using Vector = Ints;  ///< of expand.inc
  static constexpr int kLanes = 8, kBytes = 32;

  OP Ints load(const void* p) { return _mm256_loadu_si256(static_cast<const Ints*>(p)); }
  OP void store(void* p, Ints x) { _mm256_storeu_si256(static_cast<Ints*>(p), x); }
  OP Floats load_floats(const void* p) { return _mm256_loadu_ps(static_cast<const float*>(p)); }
  OP void store_floats(float* p, Floats x) { _mm256_storeu_ps(p, x); }
  OP Floats floats(float x) { return _mm256_set1_ps(x); }
  OP Ints dwords(int x) { return _mm256_set1_epi32(x); }
  OP Ints splat(int x) { return _mm256_set1_epi8(static_cast<char>(x)); }
  OP Ints table(const void* p) {
    return _mm256_broadcastsi128_si256(_mm_loadu_si128(static_cast<const __m128i*>(p)));
  }
  // A lane for each of some bytes or words.
  OP Ints dwords_of_bytes(const void* p) {
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64(static_cast<const __m128i*>(p)));
  }
  OP Ints dwords_of_signed(const void* p) {
    return _mm256_cvtepi8_epi32(_mm_loadl_epi64(static_cast<const __m128i*>(p)));
  }
  OP Ints dwords_of_words(const void* p) {
    return _mm256_cvtepu16_epi32(_mm_loadu_si128(static_cast<const __m128i*>(p)));
  }
  OP Floats floats_of_halves(const void* p) {
    return _mm256_cvtph_ps(_mm_loadu_si128(static_cast<const __m128i*>(p)));
  }
  /// The next of the bytes 0 and 255 are 1 and 0.
  OP Floats floats_of_e8m0(const void* p) {
    const Ints e = dwords_of_bytes(p), next = both(plus_32(e, dwords(1)), dwords(255)),
               edge = both(_mm256_cmpgt_epi32(dwords(2), next), dwords(0x400000));
    return as_floats(either(left_32(e, 23), edge));
  }
  OP Floats floats_of_e4m3(const void* p) {
    const __m128i bytes = _mm_loadl_epi64(static_cast<const __m128i*>(p));
    const __m128i half = _mm_and_si128(_mm_slli_epi16(_mm_cvtepi8_epi16(bytes), 7),
                                       _mm_set1_epi16(static_cast<short>(0xbfff)));
    const Ints code = both(dwords_of_bytes(p), dwords(0x7f)),
               nan = _mm256_cmpeq_epi32(code, dwords(0x7f));  // all ones is one
    return _mm256_or_ps(times(_mm256_cvtph_ps(half), floats(256.0f)), as_floats(nan));
  }
  OP Floats floats_of(Ints x) { return _mm256_cvtepi32_ps(x); }
  OP Floats as_floats(Ints x) { return _mm256_castsi256_ps(x); }
  OP Ints as_ints(Floats x) { return _mm256_castps_si256(x); }
  OP Floats gather(const float* from, Ints index) { return _mm256_i32gather_ps(from, index, 4); }
  OP Floats times(Floats a, Floats b) { return _mm256_mul_ps(a, b); }
  OP Floats multiply_add(Floats a, Floats b, Floats c) { return _mm256_fmadd_ps(a, b, c); }

  OP Ints both(Ints a, Ints b) { return _mm256_and_si256(a, b); }
  OP Ints either(Ints a, Ints b) { return _mm256_or_si256(a, b); }
  OP Ints but(Ints a, Ints b) { return _mm256_andnot_si256(b, a); }
  OP Ints flip(Ints a, Ints b) { return _mm256_xor_si256(a, b); }
  OP Ints plus(Ints a, Ints b) { return _mm256_add_epi8(a, b); }
  OP Ints minus(Ints a, Ints b) { return _mm256_sub_epi8(a, b); }
  OP Ints left_by(Ints x, int bits) { return _mm256_slli_epi16(x, bits); }
  OP Ints right_by(Ints x, int bits) { return _mm256_srli_epi16(x, bits); }
  template <int kBits>
  OP Ints left(Ints x) {
    return _mm256_slli_epi16(x, kBits);
  }
  template <int kBits>
  OP Ints right(Ints x) {
    return _mm256_srli_epi16(x, kBits);
  }
  OP Ints plus_32(Ints a, Ints b) { return _mm256_add_epi32(a, b); }
  OP Ints minus_32(Ints a, Ints b) { return _mm256_sub_epi32(a, b); }
  OP Ints times_32(Ints a, Ints b) { return _mm256_mullo_epi32(a, b); }
  OP Ints left_32(Ints x, int bits) { return _mm256_slli_epi32(x, bits); }
  OP Ints right_32(Ints x, int bits) { return _mm256_srl_epi32(x, _mm_cvtsi32_si128(bits)); }
  OP Ints largest_32(Ints a, Ints b) { return _mm256_max_epu32(a, b); }
  OP Ints smallest_32(Ints a, Ints b) { return _mm256_min_epu32(a, b); }

  OP Ints shuffle(Ints table, Ints index) { return _mm256_shuffle_epi8(table, index); }
  OP Ints look_up_iq4(Ints index) { return shuffle(table(kIq4Bytes.of), index); }
  /// The dwords at indices whose lowest 3 bits distinguish them.
  OP Ints look_up_32(const uint32_t (&of)[16], Ints index) {
    return _mm256_permutevar8x32_epi32(load(of + 8), index);
  }
  /// `yes` where the upper bit of a byte of `sign` is set.
  OP Ints choose_by_sign(Ints sign, Ints yes, Ints no) { return _mm256_blendv_epi8(no, yes, sign); }
};
#undef OP

}  // namespace metal_marlin::cpu::avx2

#include "backends/cpu/x86/tile/codes.inc"
