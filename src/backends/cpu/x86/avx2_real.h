// Codes that are floats, or that stand for floats, as the floats that their scales multiply. A
// decoder reads the lines of 8 slots of 8 columns and decodes 4 of their steps at a time. The
// kernels of default compute for few and for many rows share the decoders.
#pragma once

#include <array>
#include <cstdint>

#include "backends/cpu/x86/avx2.h"
#include "formats/codecs.h"

namespace metal_marlin::cpu {

/// Step kStep (0..7) of 8 slots of 8 columns of floats, whose lines are at `lines`. Steps have the
/// order of lines of floats (layout.h).
template <CodeKind kCode, int kStep>
MARLIN_AVX2 MARLIN_INLINE __m256 float_of_line(const uint8_t* lines) {
  constexpr int kLine = kStep % (lines_of_block(kCode) / 4);
  const __m256i line = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(lines + 64 * kLine));
  if constexpr (kCode == CodeKind::f32) {
    return _mm256_castsi256_ps(line);
  } else if constexpr (kCode == CodeKind::bf16) {
    const __m256i upper = _mm256_set1_epi32(static_cast<int>(0xffff0000u));
    return _mm256_castsi256_ps(kStep < 4 ? _mm256_slli_epi32(line, 16)
                                         : _mm256_and_si256(line, upper));
  } else {
    const __m256i low =
        kStep < 4 ? _mm256_and_si256(line, _mm256_set1_epi32(0xffff)) : _mm256_srli_epi32(line, 16);
    return _mm256_cvtph_ps(
        _mm_packus_epi32(_mm256_castsi256_si128(low), _mm256_extracti128_si256(low, 1)));
  }
}

template <CodeKind kCode>
struct RealCodes8 {
  static_assert(is_float_line(kCode));
  static constexpr int kLines = lines_of_block(kCode);
  using Octet = const uint8_t*;  ///< 8 slots of 8 columns
  MARLIN_INLINE explicit RealCodes8(const PanelLayout&) {}

  /// The octet whose lines are at `lines`.
  MARLIN_INLINE Octet read(const uint8_t* lines) const { return lines; }
  /// Steps 4 kHalf .. 4 kHalf + 3 of an octet.
  template <int kHalf>
  MARLIN_AVX2 MARLIN_INLINE void decode(Octet lines, __m256 (&w)[4]) const {
    w[0] = float_of_line<kCode, 4 * kHalf>(lines);
    w[1] = float_of_line<kCode, 4 * kHalf + 1>(lines);
    w[2] = float_of_line<kCode, 4 * kHalf + 2>(lines);
    w[3] = float_of_line<kCode, 4 * kHalf + 3>(lines);
  }
};

/// Indices of 4 bits are looked up by vpshufb, once for every byte of a float. This takes 15
/// instructions for 32 weights; two vpermps and a blend for every 8 would take 20, and vpermps is
/// two operations on Zen 3.
template <>
struct RealCodes8<CodeKind::lut4> {
  static constexpr int kLines = lines_of_block(CodeKind::lut4);
  using Octet = __m256i;
  __m256i planes[4];  ///< byte i of the 16 floats, in both halves

  MARLIN_AVX2 MARLIN_INLINE explicit RealCodes8(const PanelLayout& layout) {
    // Byte i of floats 4 j .. 4 j + 3 becomes dword i of part j; then dwords are transposed.
    const __m128i order = _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    __m128i part[4];
    MARLIN_UNROLLED(j, 4)
      part[j] = _mm_shuffle_epi8(
          _mm_loadu_si128(reinterpret_cast<const __m128i*>(layout.codebook + 4 * j)), order);
    const __m128i a = _mm_unpacklo_epi32(part[0], part[1]),
                  b = _mm_unpacklo_epi32(part[2], part[3]),
                  c = _mm_unpackhi_epi32(part[0], part[1]),
                  d = _mm_unpackhi_epi32(part[2], part[3]);
    planes[0] = _mm256_broadcastsi128_si256(_mm_unpacklo_epi64(a, b));
    planes[1] = _mm256_broadcastsi128_si256(_mm_unpackhi_epi64(a, b));
    planes[2] = _mm256_broadcastsi128_si256(_mm_unpacklo_epi64(c, d));
    planes[3] = _mm256_broadcastsi128_si256(_mm_unpackhi_epi64(c, d));
  }

  MARLIN_AVX2 MARLIN_INLINE Octet read(const uint8_t* line) const {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(line));
  }
  template <int kHalf>
  MARLIN_AVX2 MARLIN_INLINE void decode(Octet line, __m256 (&w)[4]) const {
    // Byte 4 c + i of a line holds slots i and 4 + i of column c. Dword s of a half of `index`
    // becomes step s of 4 columns.
    constexpr int kFirst = 2 * kHalf, kSecond = 2 * kHalf + 1;
    const __m256i order = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(kFirst, 4 + kFirst, 8 + kFirst, 12 + kFirst,      //
                      kFirst, 4 + kFirst, 8 + kFirst, 12 + kFirst,      //
                      kSecond, 4 + kSecond, 8 + kSecond, 12 + kSecond,  //
                      kSecond, 4 + kSecond, 8 + kSecond, 12 + kSecond));
    const __m256i bytes = _mm256_shuffle_epi8(line, order);
    const __m256i index = _mm256_and_si256(
        _mm256_srlv_epi32(bytes, _mm256_setr_epi32(0, 4, 0, 4, 0, 4, 0, 4)), _mm256_set1_epi8(15));
    const __m256i byte0 = _mm256_shuffle_epi8(planes[0], index),
                  byte1 = _mm256_shuffle_epi8(planes[1], index),
                  byte2 = _mm256_shuffle_epi8(planes[2], index),
                  byte3 = _mm256_shuffle_epi8(planes[3], index);
    const __m256i low = _mm256_unpacklo_epi8(byte0, byte1),
                  high = _mm256_unpacklo_epi8(byte2, byte3);
    w[0] = _mm256_castsi256_ps(_mm256_unpacklo_epi16(low, high));
    w[1] = _mm256_castsi256_ps(_mm256_unpackhi_epi16(low, high));
    const __m256i low2 = _mm256_unpackhi_epi8(byte0, byte1),
                  high2 = _mm256_unpackhi_epi8(byte2, byte3);
    w[2] = _mm256_castsi256_ps(_mm256_unpacklo_epi16(low2, high2));
    w[3] = _mm256_castsi256_ps(_mm256_unpackhi_epi16(low2, high2));
  }
};

/// The bytes of BF16 of the codes of E4M3 that are no normal numbers, by their lowest 4 bits:
/// subnormal numbers 0..7, and NaN at 15.
template <int kByte>
constexpr auto e4m3_specials() {
  std::array<uint8_t, 16> bytes{};
  for (const int code : {0, 1, 2, 3, 4, 5, 6, 7, 0x7f})
    bytes[static_cast<size_t>(code & 15)] =
        static_cast<uint8_t>(f32_to_bf16(e4m3_to_f32(static_cast<uint8_t>(code))) >> 8 * kByte);
  return bytes;
}

/// E4M3. The two bytes of BF16 are computed for 32 codes at once, which takes 22 instructions.
/// Expanding them to lines of BF16 in L1, 16 codes at a time (expand.h), and decoding those would
/// take 35, beside stores and loads.
struct E4m3Codes8 {
  static constexpr int kLines = lines_of_block(CodeKind::i8);
  struct Octet {
    __m256i codes[2];  ///< dwords of a half: steps 4 i .. 4 i + 3 of 4 columns
  };
  MARLIN_INLINE explicit E4m3Codes8(const PanelLayout&) {}

  MARLIN_AVX2 MARLIN_INLINE Octet read(const uint8_t* lines) const {
    const __m256i first = slots(lines), second = slots(lines + 64);  // 0..3 and 4..7
    return {{_mm256_unpacklo_epi32(first, second), _mm256_unpackhi_epi32(first, second)}};
  }
  template <int kHalf>
  MARLIN_AVX2 MARLIN_INLINE void decode(const Octet& octet, __m256 (&w)[4]) const {
    const __m256i code = octet.codes[kHalf];
    const __m256i magnitude = _mm256_and_si256(code, _mm256_set1_epi8(0x7f)),
                  sign = _mm256_and_si256(code, _mm256_set1_epi8(-128));
    // 1 more than NaN is -128, so one comparison finds subnormal numbers and NaN.
    const __m256i special =
        _mm256_cmpgt_epi8(_mm256_set1_epi8(9), _mm256_add_epi8(magnitude, _mm256_set1_epi8(1)));
    // A normal number keeps the bits of its exponent and mantissa, with the bias of BF16.
    const __m256i low = _mm256_and_si256(_mm256_slli_epi16(code, 4), _mm256_set1_epi8(-16)),
                  high = _mm256_add_epi8(
                      _mm256_and_si256(_mm256_srli_epi16(code, 4), _mm256_set1_epi8(7)),
                      _mm256_set1_epi8((127 - 7) << 7 >> 8));
    const __m256i byte2 = _mm256_blendv_epi8(low, look_up_special<0>(magnitude), special),
                  byte3 = _mm256_or_si256(
                      _mm256_blendv_epi8(high, look_up_special<1>(magnitude), special), sign);
    const __m256i none = _mm256_setzero_si256(), first = _mm256_unpacklo_epi8(byte2, byte3),
                  second = _mm256_unpackhi_epi8(byte2, byte3);
    w[0] = _mm256_castsi256_ps(_mm256_unpacklo_epi16(none, first));
    w[1] = _mm256_castsi256_ps(_mm256_unpackhi_epi16(none, first));
    w[2] = _mm256_castsi256_ps(_mm256_unpacklo_epi16(none, second));
    w[3] = _mm256_castsi256_ps(_mm256_unpackhi_epi16(none, second));
  }

 private:
  template <int kByte>
  MARLIN_AVX2 MARLIN_INLINE static __m256i look_up_special(__m256i magnitude) {
    alignas(16) static constexpr auto kBytes = e4m3_specials<kByte>();
    const __m128i table = _mm_load_si128(reinterpret_cast<const __m128i*>(kBytes.data()));
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(table), magnitude);
  }

  /// 4 slots of 8 columns. Dwords of a half hold a slot of 4 columns.
  MARLIN_AVX2 MARLIN_INLINE static __m256i slots(const uint8_t* line) {
    const __m256i order = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
    return _mm256_shuffle_epi8(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(line)), order);
  }
};

/// Calls call.operator()<Decoder>() for the real codes of a panel.
template <class Call>
void with_real_codes(const PanelArgs& args, Call call) {
  if (args.layout->expansion == Expansion::e4m3) return call.template operator()<E4m3Codes8>();
  with_any_code(args.code, [&]<CodeKind kCode>() {
    if constexpr (is_real(kCode)) call.template operator()<RealCodes8<kCode>>();
  });
}

}  // namespace metal_marlin::cpu
