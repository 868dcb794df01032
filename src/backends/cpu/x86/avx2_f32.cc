// Default compute with AVX2 and FMA for many rows. Weights are decoded to their value in F32, a
// superblock at a time into L1, and multiplied by all tiles.
//
//   packed stream --decode--> superblock in L1        registers
//                             weights [step][64] ---> w[v]       8 columns, a slot
//   packed A block            ----------------------> x          a slot of a row, in all lanes
//                                                     acc[r][v]  += w[v] * x
//   sums (in L1)              <---------------------> acc[r][v]  loaded and stored for each
//                                                                superblock
//
//   M: tiles of up to 6 rows. N: 64 columns at a time with one row, 32 with two, 16 with more. K:
//   superblock, block, step of a slot.
//
// Template parameters: kRows 1 to 6; kVectors of 8 columns follows from it; the decoders take every
// kCode, and every sparse one except real ones and those of 8 bits.
//
// Limits: at most 12 sums, to leave room for 2 vectors of weights and an activation in 16
// registers. Decoded weights take 32 KB, all of a small L1.
#if defined(__x86_64__)

#include <bit>

#include "backends/cpu/x86/avx2_real.h"
#include "formats/codecs.h"

namespace metal_marlin::cpu {
namespace {

struct Avx2DequantizedF32 {
  float weights[kSuperSlots][kPanelColumns];  ///< [step], in the order of activations.h
};

/// The values that the scale multiplies, for step kStep (0..7 of a 4-bit line, 0..3 of an 8-bit
/// line) of 8 columns.
template <CodeKind kCode, bool kSparse, int kStep>
MARLIN_AVX2 MARLIN_INLINE __m256 code_value(Codes8 codes) {
  if constexpr (is_eight_bits(kCode)) {
    return _mm256_cvtepi32_ps(_mm256_srai_epi32(_mm256_slli_epi32(codes.low, 24 - 8 * kStep), 24));
  } else {
    const __m256i code = CodeLines8<kCode, kSparse>::template dwords<kStep>(codes);
    if constexpr (kCode == CodeKind::fp4) {
      const __m256 magnitudes = _mm256_setr_ps(kE2m1[0], kE2m1[1], kE2m1[2], kE2m1[3], kE2m1[4],
                                               kE2m1[5], kE2m1[6], kE2m1[7]);
      const __m256i sign =
          _mm256_and_si256(_mm256_slli_epi32(code, 28), _mm256_set1_epi32(INT32_MIN));
      // vpermps uses only the lowest 3 bits.
      return _mm256_xor_ps(_mm256_permutevar8x32_ps(magnitudes, code), _mm256_castsi256_ps(sign));
    }
    constexpr bool kShifted = kCode == CodeKind::u4zero;  // code + 16 - zero
    const __m256 value =
        _mm256_cvtepi32_ps(_mm256_and_si256(code, _mm256_set1_epi32(kShifted ? 31 : 15)));
    return is_additive(kCode) ? value
                              : _mm256_sub_ps(value, _mm256_set1_ps(kShifted ? 16.0f : 8.0f));
  }
}

/// Decodes steps kStep.. of a line, 8 columns. `zero` are additive zeros. `kept` comes from
/// CodeLines8::kept, if a zero must not reach slots that are not kept.
template <CodeKind kCode, bool kSparse, int kStep = 0>
MARLIN_AVX2 MARLIN_INLINE void decode_line(Codes8 codes, Codes8 kept, __m256 scale, __m256 zero,
                                           float (*out)[kPanelColumns]) {
  using Lines = CodeLines8<kCode, kSparse>;
  if constexpr (kStep < (is_eight_bits(kCode) ? 4 : 8)) {
    __m256 value = code_value<kCode, kSparse, kStep>(codes);
    value = is_additive(kCode) ? _mm256_fmadd_ps(value, scale, zero) : _mm256_mul_ps(value, scale);
    if constexpr (Lines::kCountsKept) {
      const __m256i bit = _mm256_slli_epi32(Lines::template dwords<kStep>(kept), 31);
      value = _mm256_and_ps(value, _mm256_castsi256_ps(_mm256_srai_epi32(bit, 31)));
    }
    _mm256_storeu_ps(out[is_eight_bits(kCode) ? 2 * kStep : kStep], value);
    decode_line<kCode, kSparse, kStep + 1>(codes, kept, scale, zero, out);
  }
}

template <CodeKind kCode, bool kSparse>
MARLIN_AVX2 void dequantize(const PanelLayout& layout, const uint8_t* super,
                            Avx2DequantizedF32& out) {
  using Lines = CodeLines8<kCode, kSparse>;
  const int shift = std::countr_zero(static_cast<unsigned>(layout.slot_group / 16));
  const int n = layout.groups_per_super() * kPanelColumns;
  const uint8_t* zeros = super + layout.zeros_offset();
  alignas(32) float scale[8][kPanelColumns], zero[8][kPanelColumns];
  decode_scales_avx2(layout.scale_type, super + layout.scales_offset(), n, 1.0f, &scale[0][0]);
  if constexpr (is_additive(kCode)) decode_zeros_avx2(layout, super, n, &scale[0][0], &zero[0][0]);
  ExpandedCodes<kCode> expanded;
  const uint8_t* const of_super = codes_of_super<kCode>(layout, super, 0, expanded);
  for (int line = 0; line < kBlocksPerSuper * Lines::kLines; ++line) {
    const int in_block = line % Lines::kLines, group = (line * 2 / Lines::kLines) >> shift;
    auto* to = out.weights + (is_eight_bits(kCode) ? line / 2 * 8 + line % 2 : line * 8);
    for (int v = 0; v < 8; ++v) {
      const uint8_t* from =
          of_super + (line / Lines::kLines * kColumnGroups + v / 2) * Lines::kBytes;
      const Codes8 codes =
          Lines::read(from, in_block, v % 2, zeros + group * kPanelColumns + 8 * v);
      Codes8 kept = codes;
      if constexpr (Lines::kCountsKept) kept = Lines::kept(from, in_block, v % 2);
      const __m256 s = _mm256_load_ps(&scale[group][8 * v]);
      decode_line<kCode, kSparse>(codes, kept, s,
                                  is_additive(kCode) ? _mm256_load_ps(&zero[group][8 * v]) : s,
                                  reinterpret_cast<float(*)[kPanelColumns]>(&to[0][8 * v]));
    }
  }
}

template <class Decoder>
MARLIN_AVX2 void dequantize_real(const PanelArgs& args, const uint8_t* super,
                                 Avx2DequantizedF32& out) {
  const PanelLayout& layout = *args.layout;
  constexpr int kOctetBytes = Decoder::kLines / 4 * 64;
  const int shift = std::countr_zero(static_cast<unsigned>(layout.slot_group / 16));
  alignas(32) float scale[8][kPanelColumns];
  decode_real_scales_avx2(layout, args.panel, super, &scale[0][0]);
  const Decoder decoder(layout);
  for (int octet = 0; octet < kSuperSlots / 8; ++octet)
    for (int v = 0; v < 8; ++v) {
      const int lines = (octet / 4 * kColumnGroups + v / 2) * 4 + octet % 4;
      const auto read = decoder.read(super + lines * kOctetBytes + v % 2 * 32);
      const __m256 s = _mm256_load_ps(&scale[octet / 2 >> shift][8 * v]);
      float* const to = &out.weights[8 * octet][8 * v];
      __m256 w[4];
      decoder.template decode<0>(read, w);
      for (int i = 0; i < 4; ++i) _mm256_store_ps(to + i * kPanelColumns, _mm256_mul_ps(w[i], s));
      decoder.template decode<1>(read, w);
      for (int i = 0; i < 4; ++i)
        _mm256_store_ps(to + (4 + i) * kPanelColumns, _mm256_mul_ps(w[i], s));
    }
}

void dequantize_any(const PanelArgs& args, const uint8_t* super, int, Avx2DequantizedF32& out) {
  if (is_real(args.code))
    return with_real_codes(args,
                           [&]<class Decoder>() { dequantize_real<Decoder>(args, super, out); });
  with_codes(args, [&]<CodeKind kCode, bool kSparse>() {
    dequantize<kCode, kSparse>(*args.layout, super, out);
  });
}

/// Multiplies kRows rows x 8 kVectors columns, with at most 12 sums, to leave room for weights and
/// an activation in 16 registers.
template <int kRows, int kVectors>
MARLIN_AVX2 void multiply_columns(const float (*weights)[kPanelColumns], bool first,
                                  int64_t a_block_size, const uint32_t* a_block, float* sums) {
  __m256 acc[kRows][kVectors];
  MARLIN_UNROLLED_2(r, kRows, v, kVectors)
    acc[r][v] = first ? _mm256_setzero_ps() : _mm256_load_ps(sums + r * kPanelColumns + 8 * v);
  for (int b = 0; b < kBlocksPerSuper; ++b, a_block += a_block_size, weights += kBlockSlots)
    for (int step = 0; step < kBlockSlots; ++step) {
      __m256 w[kVectors];
      MARLIN_UNROLLED(v, kVectors) w[v] = _mm256_load_ps(weights[step] + 8 * v);
      MARLIN_UNROLLED(r, kRows) {
        const __m256 x =
            _mm256_castsi256_ps(_mm256_set1_epi32(static_cast<int>(a_block[step * kRows + r])));
        MARLIN_UNROLLED(v, kVectors) acc[r][v] = _mm256_fmadd_ps(w[v], x, acc[r][v]);
      }
    }
  MARLIN_UNROLLED_2(r, kRows, v, kVectors)
    _mm256_store_ps(sums + r * kPanelColumns + 8 * v, acc[r][v]);
}

/// The vectors of a tile with this many rows.
template <int kRows>
constexpr int vectors_of_tile() {
  if (kRows == 1) return 8;
  return kRows == 2 ? 4 : 2;
}

template <int kRows>
void multiply_rows(const Avx2DequantizedF32& dequantized, bool first, int64_t a_block_size,
                   const uint32_t* a_block, float* sums) {
  constexpr int kVectors = vectors_of_tile<kRows>();
  for (int v = 0; v < 8; v += kVectors)
    multiply_columns<kRows, kVectors>(
        reinterpret_cast<const float(*)[kPanelColumns]>(&dequantized.weights[0][8 * v]), first,
        a_block_size, a_block, sums + 8 * v);
}

void multiply_tile(const Avx2DequantizedF32& dequantized, int, bool first, const PanelArgs& args,
                   int64_t, const uint32_t* a_block, float* sums) {
  const int64_t size = args.activations.a_block_size();
  switch (args.activations.tile_rows) {
    case 1:
      return multiply_rows<1>(dequantized, first, size, a_block, sums);
    case 2:
      return multiply_rows<2>(dequantized, first, size, a_block, sums);
    case 3:
      return multiply_rows<3>(dequantized, first, size, a_block, sums);
    case 4:
      return multiply_rows<4>(dequantized, first, size, a_block, sums);
    case 5:
      return multiply_rows<5>(dequantized, first, size, a_block, sums);
    default:
      return multiply_rows<6>(dequantized, first, size, a_block, sums);
  }
}

}  // namespace

void cpu_avx2_prescaled_any_f32(const PanelArgs& args) {
  walk_chunks<Avx2DequantizedF32, dequantize_any, multiply_tile>(args);
}

}  // namespace metal_marlin::cpu

#endif
