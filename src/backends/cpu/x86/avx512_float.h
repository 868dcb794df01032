// Decodes codes to floats, 16 columns at a time, for the BF16 and F32 kernels. Steps have the order
// of activations.h.
#pragma once

#include "backends/cpu/e2m1.h"
#include "backends/cpu/x86/avx512.h"

namespace metal_marlin::cpu {

/// Byte kByte of every dword, in two's complement, as a float. An int8 has 8 significant bits, so
/// it is exact in BF16, too.
///
/// This takes two shifts and a conversion, which share two pipes on Zen 4 and leave the pipes of
/// the multiplications free. If these have time left (kSpare), it takes a logic operation, which
/// any pipe can do, and a subtraction. The mantissa of 2^23 counts in ones, and the mantissa of
/// 2^15 counts in ones from bit 8 on. A byte at this place with its sign bit flipped adds its value
/// plus 128.
template <int kByte, bool kSpare = false>
MARLIN_AVX512 MARLIN_INLINE __m512 byte_to_float(__m512i x) {
  if constexpr (!kSpare) {
    return _mm512_cvtepi32_ps(
        _mm512_srai_epi32(kByte == 3 ? x : _mm512_slli_epi32(x, 24 - 8 * kByte), 24));
  } else {
    constexpr int kPlace = kByte % 2 * 8, kFlipMasked = 0x78;  // power ^ (x & mask)
    if constexpr (kByte >= 2) x = _mm512_srli_epi32(x, 16);
    const __m512 power = _mm512_set1_ps((kPlace == 0 ? 0x1p23f : 0x1p15f) + 128);
    const __m512i sum = _mm512_ternarylogic_epi32(_mm512_castps_si512(power), x,
                                                  _mm512_set1_epi32(255 << kPlace), kFlipMasked);
    return _mm512_sub_ps(_mm512_castsi512_ps(sum), power);
  }
}

template <size_t... kIndex>
MARLIN_AVX512 MARLIN_INLINE __m512 e2m1_table(std::index_sequence<kIndex...>) {
  return _mm512_set_ps(kE2m1[15 - kIndex]...);
}

/// The values of 4-bit codes as floats; with integer zeros, the values of codes whose zero is 0.
template <CodeKind kCode>
MARLIN_AVX512 MARLIN_INLINE __m512 float_table() {
  static_assert(!is_real(kCode), "the codebook of lut4 is in the layout");
  if constexpr (kCode == CodeKind::fp4) return e2m1_table(CodeIndices{});
  const float first = kCode == CodeKind::u4 ? -8.0f : 0.0f;
  return _mm512_add_ps(_mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15),
                       _mm512_set1_ps(first));
}

/// 32 floats that BF16 holds exactly.
MARLIN_AVX512 MARLIN_INLINE __m512i bf16_words(__m512 low, __m512 high) {
  const __m256i a = _mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_castps_si512(low), 16));
  const __m256i b = _mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_castps_si512(high), 16));
  return _mm512_inserti64x4(_mm512_castsi256_si512(a), b, 1);
}

/// The same as 32 BF16 values. 16 values are repeated, so that bit 4 of an index does not matter.
/// With integer zeros, the index is code + 16 - zero, and the table counts from -16.
template <CodeKind kCode>
MARLIN_AVX512 MARLIN_INLINE __m512i bf16_table() {
  const __m512 low = kCode == CodeKind::u4zero
                         ? _mm512_sub_ps(float_table<kCode>(), _mm512_set1_ps(16.0f))
                         : float_table<kCode>();
  return bf16_words(low, float_table<kCode>());
}

/// The values that the scale multiplies, for step kStep (0..7) of a 4-bit line of 8 slots, in F32.
/// With integer zeros, the index is code + 16 - zero (CodeLines::read).
template <CodeKind kCode, bool kSparse, int kStep>
MARLIN_AVX512 MARLIN_INLINE __m512 float_step(Codes codes, __m512 table) {
  const __m512i index = CodeLines<kCode, kSparse>::template dwords<kStep>(codes);
  if constexpr (kCode == CodeKind::u4zero)
    return _mm512_permutex2var_ps(_mm512_sub_ps(table, _mm512_set1_ps(16.0f)), index, table);
  return _mm512_permutexvar_ps(index, table);
}

/// Step kStep (0..3) of a 4-bit line in BF16: two slots.
template <CodeKind kCode, bool kSparse, int kStep>
MARLIN_AVX512 MARLIN_INLINE __m512i bf16_step(Codes codes, __m512i table) {
  return _mm512_permutexvar_epi16(CodeLines<kCode, kSparse>::template words<kStep>(codes), table);
}

/// Bytes kByte and kByte + 2 of an 8-bit line as a BF16 pair.
template <int kByte, bool kSpare = false>
MARLIN_AVX512 MARLIN_INLINE __m512i bf16_byte_pair(__m512i line) {
  const __m512i low = _mm512_castps_si512(byte_to_float<kByte, kSpare>(line)),
                high = _mm512_castps_si512(byte_to_float<kByte + 2, kSpare>(line));
  return _mm512_or_si512(_mm512_srli_epi32(low, 16), high);
}

/// Integers of 6 bits and fewer in BF16, by the lowest 6 bits of a code.
struct Bf16Integers {
  alignas(64) uint16_t of[64] = {};
  /// The integer of code i is i less `less`, or two's complement if that is 64.
  constexpr explicit Bf16Integers(int less) {
    for (int i = 0; i < 64; ++i)
      of[i] = f32_to_bf16(static_cast<float>(less < 64 || i >= 32 ? i - less : i));
  }
};
inline constexpr Bf16Integers kPlainIntegers{0}, kLess16{16}, kLess32{32}, kTwosComplement{64};

/// Whether BF16 kernels look expanded codes up in integers of 6 bits. Less an integer zero, a code
/// of 6 bits may take 7.
inline bool has_narrow_integers(const PanelLayout& layout) {
  return layout.sparse ||
         (layout.expansion == Expansion::integers && layout.zero_kind != ZeroKind::integer);
}

/// Whether the ways of reading that kernels call kNarrow leave codes in planes.
constexpr bool are_planes(int narrow) { return narrow == 5 || narrow == 6; }

/// The integers of the ways of reading that kernels call kNarrow.
inline const uint16_t* narrow_integers(int narrow, bool additive) {
  if (additive) return kPlainIntegers.of;
  if (!are_planes(narrow)) return kTwosComplement.of;
  return narrow == 5 ? kLess16.of : kLess32.of;
}

/// What codes are looked up in: 16 floats, 32 numbers of BF16, or 64 (`upper`: the second half).
struct FloatTable {
  __m512i lower, upper;
};

/// Looks up the integers of 5 or 6 bits in the lowest bits of words.
template <int kBits>
MARLIN_AVX512 MARLIN_INLINE __m512i look_up_narrow(__m512i codes, FloatTable table) {
  if constexpr (kBits == 5) return _mm512_permutexvar_epi16(codes, table.lower);
  return _mm512_permutex2var_epi16(table.lower, codes, table.upper);
}

/// Whether a kind of dense codes is read as u4, because only the table differs in which codes are
/// looked up: e2m1 values, a codebook, or integers that additive zeros go with.
constexpr bool is_read_as_u4(CodeKind code) {
  return code == CodeKind::fp4 || code == CodeKind::lut4 || code == CodeKind::u4add;
}
/// Whether these kernels are compiled for a kind. Of floats, BF16 alone is exact in that form.
template <ActivationForm kForm>
constexpr bool is_read_by(CodeKind code) {
  return (kForm == ActivationForm::f32 || !is_real(code) || code == CodeKind::bf16) &&
         !is_read_as_u4(code) && code != CodeKind::i8add;
}
/// The kind of codes by which the kernels that decode in registers read weights. The lines of IQ4
/// are those of u4, too. A lookup is one instruction for a pair of slots; expanding codes to bytes
/// and converting them takes eight.
inline CodeKind kind_of_lines(const PanelArgs& args) {
  if (is_read_as_u4(args.code) || args.layout->expansion == Expansion::iq4) return CodeKind::u4;
  return args.code == CodeKind::i8add ? CodeKind::i8 : args.code;
}

/// The values of codes that are read as u4.
MARLIN_AVX512 inline __m512 values_of(const PanelLayout& layout, CodeKind code) {
  if (layout.expansion == Expansion::iq4) return _mm512_loadu_ps(kIq4);
  if (code == CodeKind::lut4) return _mm512_loadu_ps(layout.codebook);
  if (code == CodeKind::u4add) return float_table<CodeKind::u4add>();
  return code == CodeKind::fp4 ? float_table<CodeKind::fp4>() : float_table<CodeKind::u4>();
}

/// The table in which weights of kind `code`, which are read as kCode, are looked up.
template <ActivationForm kForm, CodeKind kCode, int kNarrow = 0>
MARLIN_AVX512 MARLIN_INLINE FloatTable table_of(const PanelLayout& layout, CodeKind code) {
  constexpr bool kBf16 = kForm == ActivationForm::bf16;
  const __m512i none = _mm512_setzero_si512();
  if constexpr (kNarrow != 0) {
    const uint16_t* const integers = narrow_integers(kNarrow, is_additive(code));
    return {_mm512_load_si512(integers), _mm512_load_si512(integers + 32)};
  } else if constexpr (kCode == CodeKind::u4) {
    const __m512 values = values_of(layout, code);
    return {kBf16 ? bf16_words(values, values) : _mm512_castps_si512(values), none};
  } else if constexpr (is_real(kCode) || is_eight_bits(kCode)) {
    return {none, none};
  } else {
    return {kBf16 ? bf16_table<kCode>() : _mm512_castps_si512(float_table<kCode>()), none};
  }
}

/// A line of floats in F32 (layout.h): f32, or slot kOfPair of the pairs of bf16 and f16.
template <CodeKind kCode, int kOfPair>
MARLIN_AVX512 MARLIN_INLINE __m512i float_line(__m512i line) {
  if constexpr (kCode == CodeKind::f32) {
    return line;
  } else if constexpr (kCode == CodeKind::bf16) {
    const __m512i upper = _mm512_set1_epi32(static_cast<int>(0xffff0000u));
    return kOfPair == 0 ? _mm512_slli_epi32(line, 16) : _mm512_and_si512(line, upper);
  } else {
    const __m512i low = kOfPair == 0 ? line : _mm512_srli_epi32(line, 16);
    return _mm512_castps_si512(_mm512_cvtph_ps(_mm512_cvtepi32_epi16(low)));
  }
}

/// The weights of one step of a line of dense weights. The line has 8 slots of 4-bit codes, 4 slots
/// of 8-bit codes, a pair of slots or one slot of floats.
template <ActivationForm kForm, CodeKind kCode, int kStep, bool kSpare = false,
          bool kNarrow = false>
MARLIN_AVX512 MARLIN_INLINE __m512i decode_step(Codes codes, FloatTable table) {
  // One lookup, where bf16_byte_pair takes seven instructions.
  if constexpr (kNarrow)
    return look_up_narrow<6>(kStep == 0 ? codes.low : _mm512_srli_epi16(codes.low, 8), table);
  if constexpr (is_float_line(kCode)) {
    if constexpr (kForm == ActivationForm::bf16) return codes.low;
    return float_line<kCode, kStep>(codes.low);
  } else if constexpr (kForm == ActivationForm::bf16) {
    if constexpr (is_eight_bits(kCode)) return bf16_byte_pair<kStep, kSpare>(codes.low);
    return bf16_step<kCode, false, kStep>(codes, table.lower);
  } else {
    if constexpr (is_eight_bits(kCode))
      return _mm512_castps_si512(byte_to_float<kStep, kSpare>(codes.low));
    return _mm512_castps_si512(
        float_step<kCode, false, kStep>(codes, _mm512_castsi512_ps(table.lower)));
  }
}

/// Decodes the four steps of an FP4 line, times scales that BF16 products hold exactly, to BF16.
/// Steps are kStride bytes apart in `out`. The slots of a pair are 16 bits apart in a dword.
template <int kStride, int kStep = 0>
MARLIN_AVX512 MARLIN_INLINE void decode_prescaled_line(Codes codes, __m512 table, __m512 scale,
                                                       uint8_t* out) {
  if constexpr (kStep < 4) {
    using Lines = CodeLines<CodeKind::fp4, false>;
    // The upper word of a dword, which is the second slot of the pair, is 4 steps further.
    const __m512 low =
        _mm512_mul_ps(_mm512_permutexvar_ps(Lines::template dwords<kStep>(codes), table), scale);
    const __m512 high = _mm512_mul_ps(
        _mm512_permutexvar_ps(Lines::template dwords<kStep + 4>(codes), table), scale);
    const __m512i shifted = _mm512_srli_epi32(_mm512_castps_si512(low), 16);
    _mm512_store_si512(out + kStep * kStride,
                       _mm512_mask_blend_epi16(0xaaaaaaaau, shifted, _mm512_castps_si512(high)));
    decode_prescaled_line<kStride, kStep + 1>(codes, table, scale, out);
  }
}

/// Decodes a chunk of FP4, times scales that BF16 products hold exactly. Chunk::line(b, v, line) is
/// the place of the first step of a line of block b and column group v, and the other steps are
/// Chunk::kStride bytes apart.
template <class Chunk>
MARLIN_AVX512 void dequantize_prescaled(const PanelArgs& args, const uint8_t* super, int blocks,
                                        Chunk& out) {
  using Lines = CodeLines<CodeKind::fp4, false>;
  const SuperShape shape(*args.layout);
  const __m512 table = float_table<CodeKind::fp4>();
  SuperScales scales;
  for (int b = 0; b < blocks; ++b) {
    if (b % kBlocksPerSuper == 0) {
      if (b != 0) super += shape.bytes;
      decode_super(CodeKind::fp4, shape, super, scales);
    }
    const int unit = b % kBlocksPerSuper * 2;
    for (int v = 0; v < kColumnGroups; ++v)
      MARLIN_UNROLLED(line, Lines::kLines) {
        const uint8_t* from = super + (unit / 2 * kColumnGroups + v) * Lines::kBytes;
        const __m512 scale =
            _mm512_load_ps(&scales.scale[(unit + line / 2) >> shape.shift][16 * v]);
        decode_prescaled_line<Chunk::kStride>(Lines::read(from, line, _mm512_setzero_si512()),
                                              table, scale, out.line(b, v, line));
      }
  }
}

}  // namespace metal_marlin::cpu
