// Codes as the floats that their scales multiply. A decoder reads 8 slots of 8 columns (an octet)
// and decodes 4 of their steps at a time. The kernels of default compute for few and for many rows
// share the decoders. A decoder has:
//   kBytes                  of a block of a column group
//   step_of(half, i)        its place among the 8 steps (activations.h)
//   read(lines, octet, offset)   octet 0..3 of a block, whose lines begin at the first of the
//                           columns; `offset` is what integer zeros add to codes (SuperScales)
//   decode<kHalf>(octet), and step<kHalf>(that, i): 8 columns of step i (0..3) of the half
#pragma once

#include <array>
#include <cstdint>

#include "backends/cpu/chunks.h"
#include "backends/cpu/x86/vec/avx2.h"
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

/// What decoders of steps in order share.
template <int kLines>
struct StepsInOrder {
  static constexpr int kBytes = kLines * 64;
  static constexpr int step_of(int half, int i) { return 4 * half + i; }
  MARLIN_INLINE static const uint8_t* octet_of(const uint8_t* lines, int octet) {
    return lines + octet * (kBytes / 4);
  }
};

template <CodeKind kCode>
struct RealCodes8 : StepsInOrder<lines_of_block(kCode)> {
  static_assert(is_float_line(kCode));
  using Octet = const uint8_t*;
  MARLIN_INLINE explicit RealCodes8(const PanelLayout&, CodeKind) {}

  MARLIN_INLINE Octet read(const uint8_t* lines, int octet, const __m256i&) const {
    return RealCodes8::octet_of(lines, octet);
  }
  template <int kHalf>
  MARLIN_INLINE Octet decode(Octet lines) const {
    return lines;
  }
  template <int kHalf>
  MARLIN_AVX2 MARLIN_INLINE static __m256 step(Octet lines, int i) {
    if (i < 2)
      return i == 0 ? float_of_line<kCode, 4 * kHalf>(lines)
                    : float_of_line<kCode, 4 * kHalf + 1>(lines);
    return i == 2 ? float_of_line<kCode, 4 * kHalf + 2>(lines)
                  : float_of_line<kCode, 4 * kHalf + 3>(lines);
  }
};

/// Byte i of 16 floats that indices are looked up in, in both halves.
struct FloatBytes {
  __m256i of[4];

  MARLIN_AVX2 MARLIN_INLINE explicit FloatBytes(const float* floats) {
    // Byte i of floats 4 j .. 4 j + 3 becomes dword i of part j; then dwords are transposed.
    __m128i part[4];
    MARLIN_UNROLLED(j, 4)
      part[j] = _mm_shuffle_epi8(_mm_loadu_si128(reinterpret_cast<const __m128i*>(floats + 4 * j)),
                                 transposed());
    const __m128i a = _mm_unpacklo_epi32(part[0], part[1]),
                  b = _mm_unpacklo_epi32(part[2], part[3]),
                  c = _mm_unpackhi_epi32(part[0], part[1]),
                  d = _mm_unpackhi_epi32(part[2], part[3]);
    of[0] = _mm256_broadcastsi128_si256(_mm_unpacklo_epi64(a, b));
    of[1] = _mm256_broadcastsi128_si256(_mm_unpackhi_epi64(a, b));
    of[2] = _mm256_broadcastsi128_si256(_mm_unpacklo_epi64(c, d));
    of[3] = _mm256_broadcastsi128_si256(_mm_unpackhi_epi64(c, d));
  }
  MARLIN_AVX2 MARLIN_INLINE __m256i byte(int i, __m256i index) const {
    return _mm256_shuffle_epi8(of[i], index);
  }
  /// The order in which 4 dwords of 4 bytes are 4 dwords of their first, second .. bytes.
  MARLIN_AVX2 MARLIN_INLINE static __m128i transposed() {
    return _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  }
};

/// Byte kByte of 16 floats.
template <int kByte>
constexpr auto upper_bytes(const float (&floats)[16]) {
  std::array<uint8_t, 16> bytes{};
  for (size_t i = 0; i < 16; ++i)
    bytes[i] = static_cast<uint8_t>(std::bit_cast<uint32_t>(floats[i]) >> 8 * kByte);
  return bytes;
}
MARLIN_AVX2 MARLIN_INLINE __m256i look_up(const std::array<uint8_t, 16>& bytes, __m256i index) {
  const __m128i table = _mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes.data()));
  return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(table), index);
}

/// The words of BF16 of a half, from its bytes.
struct UpperBytes {
  MARLIN_AVX2 MARLIN_INLINE UpperBytes(__m256i byte2, __m256i byte3)
      : first(_mm256_unpacklo_epi8(byte2, byte3)), second(_mm256_unpackhi_epi8(byte2, byte3)) {}
  __m256i first, second;
};

/// A step of 8 columns from the words of two steps.
MARLIN_AVX2 MARLIN_INLINE __m256 join_words(__m256i low, __m256i high, int i) {
  return _mm256_castsi256_ps(i % 2 == 0 ? _mm256_unpacklo_epi16(low, high)
                                        : _mm256_unpackhi_epi16(low, high));
}

/// A quad of slots of 8 columns as pairs of bytes: slots 0 and 1 of 4 columns, then slots 2 and 3.
MARLIN_AVX2 MARLIN_INLINE __m256i by_pairs(__m256i quad) {
  return _mm256_shuffle_epi8(quad, _mm256_broadcastsi128_si256(_mm_setr_epi8(
                                       0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15)));
}

/// What decoders share that take a quad of slots for a half.
struct QuadsInOrder {
  static constexpr int step_of(int half, int i) { return 2 * i + half; }
};

/// The values of 4-bit codes whose zero is 0.
struct IntegersFrom {
  float of[16] = {};
  constexpr explicit IntegersFrom(int first) {
    for (int i = 0; i < 16; ++i) of[i] = static_cast<float>(first + i);
  }
};
inline constexpr IntegersFrom kFromMinus8{-8}, kFrom0{0};

/// Dense 4-bit codes with values that BF16 holds exactly. Looking both bytes up takes 20
/// instructions for 64 weights; a shift, a vpermps and a sign for every 8 would take 40.
struct Codes4 : QuadsInOrder {
  using Octet = __m256i;  ///< by_pairs
  static constexpr int kBytes = 4 * 64;
  FloatBytes values;

  MARLIN_AVX2 MARLIN_INLINE Codes4(const PanelLayout& layout, CodeKind code)
      : values(values_of(layout, code)) {}
  static const float* values_of(const PanelLayout& layout, CodeKind code) {
    if (layout.expansion == Expansion::iq4) return kIq4;
    if (code == CodeKind::u4add) return kFrom0.of;
    return code == CodeKind::fp4 ? kE2m1 : kFromMinus8.of;
  }

  MARLIN_AVX2 MARLIN_INLINE Octet read(const uint8_t* lines, int octet, const __m256i&) const {
    return by_pairs(Vec::load(lines + 64 * octet));
  }
  template <int kHalf>
  MARLIN_AVX2 MARLIN_INLINE UpperBytes decode(Octet octet) const {
    const __m256i index = Vec::both(kHalf == 0 ? octet : Vec::right<4>(octet), Vec::splat(15));
    return {values.byte(2, index), values.byte(3, index)};
  }
  /// Shifts and masks take other ports than shuffles.
  template <int>
  MARLIN_AVX2 MARLIN_INLINE static __m256 step(const UpperBytes& bytes, int i) {
    const __m256i pairs = i < 2 ? bytes.first : bytes.second;
    return _mm256_castsi256_ps(
        i % 2 == 0 ? _mm256_slli_epi32(pairs, 16)
                   : _mm256_and_si256(pairs, _mm256_set1_epi32(static_cast<int>(0xffff0000u))));
  }
};

/// What decoders share that take a quad of slots, as signed bytes, for a half.
struct QuadsOfBytes : QuadsInOrder {
  template <int>
  MARLIN_AVX2 MARLIN_INLINE static __m256 step(__m256i quad, int i) {
    return _mm256_cvtepi32_ps(_mm256_srai_epi32(_mm256_slli_epi32(quad, 24 - 8 * i), 24));
  }
};

/// Codes in bytes, which may be expanded ones: those of planes, and 2:4 sparse ones.
struct Codes8Bits : QuadsOfBytes {
  static constexpr int kBytes = 8 * 64;
  using Octet = const uint8_t*;
  MARLIN_INLINE explicit Codes8Bits(const PanelLayout&, CodeKind) {}

  MARLIN_INLINE Octet read(const uint8_t* lines, int octet, const __m256i&) const {
    return lines + octet * 128;
  }
  template <int kHalf>
  MARLIN_AVX2 MARLIN_INLINE __m256i decode(Octet octet) const {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(octet + 64 * kHalf));
  }
};

/// Dense 4-bit codes less integer zeros.
struct Codes4LessZeros : QuadsOfBytes {
  using Lines = CodeLines<CodeKind::u4zero, false>;
  using Octet = Codes;
  static constexpr int kBytes = Lines::kBytes;
  MARLIN_INLINE explicit Codes4LessZeros(const PanelLayout&, CodeKind) {}

  MARLIN_AVX2 MARLIN_INLINE Octet read(const uint8_t* lines, int octet,
                                       const __m256i& offset) const {
    return Lines::read(lines, octet, offset);
  }
  template <int kHalf>
  MARLIN_AVX2 MARLIN_INLINE __m256i decode(const Octet& octet) const {
    return Vec::minus(Lines::bytes<kHalf>(octet), Vec::splat(16));
  }
};

/// Indices of 4 bits in any floats are looked up by vpshufb, once for every byte. This takes 15
/// instructions for 32 weights; two vpermps and a blend for every 8 would take 20, and vpermps is
/// two operations on Zen 3.
template <>
struct RealCodes8<CodeKind::lut4> : StepsInOrder<4> {
  using Octet = __m256i;
  FloatBytes values;

  MARLIN_AVX2 MARLIN_INLINE explicit RealCodes8(const PanelLayout& layout, CodeKind)
      : values(layout.codebook) {}
  MARLIN_AVX2 MARLIN_INLINE Octet read(const uint8_t* lines, int octet, const __m256i&) const {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(octet_of(lines, octet)));
  }
  struct Words {
    __m256i low[2], high[2];
  };
  template <int kHalf>
  MARLIN_AVX2 MARLIN_INLINE Words decode(Octet line) const {
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
    const __m256i byte0 = values.byte(0, index), byte1 = values.byte(1, index),
                  byte2 = values.byte(2, index), byte3 = values.byte(3, index);
    const UpperBytes low(byte0, byte1), high(byte2, byte3);
    return {{low.first, low.second}, {high.first, high.second}};
  }
  template <int>
  MARLIN_AVX2 MARLIN_INLINE static __m256 step(const Words& words, int i) {
    return join_words(words.low[i / 2], words.high[i / 2], i);
  }
};

/// The values of the codes of E4M3 that are no normal numbers, by their lowest 4 bits: subnormal
/// numbers 0..7, and NaN at 15.
struct E4m3Specials {
  float of[16] = {};
  constexpr E4m3Specials() {
    for (const int code : {0, 1, 2, 3, 4, 5, 6, 7, 0x7f})
      of[code & 15] = bf16_to_f32(f32_to_bf16(e4m3_to_f32(static_cast<uint8_t>(code))));
  }
};
inline constexpr E4m3Specials kE4m3Specials{};

/// E4M3. The two bytes of BF16 are computed for 32 codes at once, which takes 22 instructions.
/// Expanding them to lines of BF16 in L1, 16 codes at a time (expand.h), and decoding those would
/// take 35, beside stores and loads.
struct E4m3Codes8 : StepsInOrder<8> {
  struct Octet {
    __m256i codes[2];  ///< dwords of a half: steps 4 i .. 4 i + 3 of 4 columns
  };
  MARLIN_INLINE explicit E4m3Codes8(const PanelLayout&, CodeKind) {}

  MARLIN_AVX2 MARLIN_INLINE Octet read(const uint8_t* lines, int octet, const __m256i&) const {
    const auto* const at = reinterpret_cast<const __m256i*>(octet_of(lines, octet));
    const __m256i first = by_slots(_mm256_loadu_si256(at)),  // 0..3
        second = by_slots(_mm256_loadu_si256(at + 2));       // 4..7
    return {{_mm256_unpacklo_epi32(first, second), _mm256_unpackhi_epi32(first, second)}};
  }
  template <int kHalf>
  MARLIN_AVX2 MARLIN_INLINE UpperBytes decode(const Octet& octet) const {
    static constexpr auto kLow = upper_bytes<2>(kE4m3Specials.of),
                          kHigh = upper_bytes<3>(kE4m3Specials.of);
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
    return {_mm256_blendv_epi8(low, look_up(kLow, magnitude), special),
            _mm256_or_si256(_mm256_blendv_epi8(high, look_up(kHigh, magnitude), special), sign)};
  }
  template <int>
  MARLIN_AVX2 MARLIN_INLINE static __m256 step(const UpperBytes& bytes, int i) {
    return join_words(_mm256_setzero_si256(), i < 2 ? bytes.first : bytes.second, i);
  }

 private:
  /// A quad of slots of 8 columns. Dwords of a half hold a slot of 4 columns.
  MARLIN_AVX2 MARLIN_INLINE static __m256i by_slots(__m256i quad) {
    return _mm256_shuffle_epi8(quad, _mm256_broadcastsi128_si256(FloatBytes::transposed()));
  }
};

/// Whether these kernels multiply expanded codes. IQ4 and E4M3 are looked up.
inline bool multiplies_expanded(const PanelArgs& args) {
  return args.layout->expansion == Expansion::integers || args.layout->sparse;
}
/// Expands them; 2:4 sparse ones as the integers that code_factor goes with.
MARLIN_AVX2 inline void expand_integers(const PanelArgs& args, const uint8_t* super, int64_t ahead,
                                        uint8_t* out) {
  expand_super(*args.layout, args.code, offset_of_codes(args.code), super, ahead, out);
}
inline float float_factor(const PanelArgs& args) {
  return args.layout->sparse ? code_factor(args.code) : 1.0f;
}

/// Whether only kept codes of these weights have additive zeros.
inline bool counts_kept(const PanelArgs& args) {
  return args.layout->sparse && is_additive(args.code);
}

/// Calls call.operator()<Decoder>() for the real codes of a panel.
template <class Call>
void with_real_codes(const PanelArgs& args, Call call) {
  if (args.layout->expansion == Expansion::e4m3) return call.template operator()<E4m3Codes8>();
  with_any_code(args.code, [&]<CodeKind kCode>() {
    if constexpr (is_real(kCode)) call.template operator()<RealCodes8<kCode>>();
  });
}

/// The same for other codes.
template <class Call>
void with_integer_codes(const PanelArgs& args, Call call) {
  if (args.layout->sparse || (is_eight_bits(args.code) && args.layout->expansion != Expansion::iq4))
    return call.template operator()<Codes8Bits>();
  args.code == CodeKind::u4zero ? call.template operator()<Codes4LessZeros>()
                                : call.template operator()<Codes4>();
}

}  // namespace metal_marlin::cpu
