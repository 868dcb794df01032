// F32 and F16 activations for many rows of 2:4 sparse weights, by FMA. A chunk is decoded to its
// values in F32 in L1, so additive zeros cost nothing, and multiplied by all tiles.
//
//   packed stream --decode--> chunk in L1            registers
//                             weights [block][step] ---> w[v]       lane c: column 16 v + c, a slot
//                                     [v][16]
//   packed A block            -------------------------> x          a slot of a row, in all lanes
//                                                        acc[r][v]  += w[v] * x
//   sums (in L1)              <------------------------> acc[r][v]  loaded, stored once a chunk
//
//   M: tiles of 6 rows. N: all 64 columns. K: chunk of 4 blocks, block, step of a slot.
//
// Template parameter: kCode u4, u4zero, u4add or fp4, all sparse.
//
// Limits: 24 sums, 4 vectors of weights and one of activations take 29 of 32 registers. A block
// takes 128 FMA per row. Decoded weights take 8 KB per block, so a chunk fills 32 KB.
#if defined(__x86_64__)

#include "backends/cpu/chunks.h"
#include "backends/cpu/x86/avx512_float.h"

namespace metal_marlin::cpu {
namespace {

constexpr int kRows = 6, kVectors = 4, kChunk = 4;

struct Avx512DequantizedF32 {
  float weights[kChunk][kBlockSlots][kVectors][16];  ///< [block][step]
};

/// The value that a scale multiplies, times the scale, plus the additive zero, rounded once.
template <CodeKind kCode>
MARLIN_AVX512 MARLIN_INLINE __m512 weight(__m512 code, __m512 scale, __m512 zero) {
  return is_additive(kCode) ? _mm512_fmadd_ps(code, scale, zero) : _mm512_mul_ps(code, scale);
}

/// Decodes 8 slots of 16 columns from a 4-bit line. `kept` comes from CodeLines::kept, if a zero
/// must not reach slots that are not kept.
template <CodeKind kCode, int kStep = 0>
MARLIN_AVX512 MARLIN_INLINE void decode_line(Codes codes, Codes kept, __m512 table, __m512 scale,
                                             __m512 zero, float (*out)[kVectors][16]) {
  if constexpr (kStep < 8) {
    using Lines = CodeLines<kCode, true>;
    __m512 value = weight<kCode>(float_step<kCode, true, kStep>(codes, table), scale, zero);
    if constexpr (Lines::kCountsKept) {
      const __m512i one = _mm512_set1_epi32(1);
      value = _mm512_maskz_mov_ps(_mm512_test_epi32_mask(Lines::template dwords<kStep>(kept), one),
                                  value);
    }
    _mm512_store_ps(out[kStep][0], value);
    decode_line<kCode, kStep + 1>(codes, kept, table, scale, zero, out);
  }
}

template <CodeKind kCode>
MARLIN_AVX512 void dequantize(const PanelLayout& layout, const uint8_t* super, int blocks,
                              Avx512DequantizedF32& out) {
  using Lines = CodeLines<kCode, true>;
  const SuperShape shape(layout);
  const __m512 table = float_table<kCode>();
  FloatSuper scales;
  decode_float_super(kCode, shape, super, scales);
  for (int b = 0; b < blocks; ++b)
    for (int line = 0; line < Lines::kLines; ++line) {
      const int group = (2 * b + line * 2 / Lines::kLines) >> shape.shift;
      for (int v = 0; v < kVectors; ++v) {
        const uint8_t* from = super + (b * kVectors + v) * Lines::kBytes;
        const Codes codes =
            Lines::read(from, line, _mm512_load_si512(&scales.offset[group][16 * v]));
        const __m512 scale = _mm512_load_ps(&scales.scale[group][16 * v]);
        const __m512 zero =
            is_additive(kCode) ? _mm512_load_ps(&scales.zero[group][16 * v]) : scale;
        const Codes kept = Lines::kCountsKept ? Lines::kept(from, line) : codes;
        decode_line<kCode>(codes, kept, table, scale, zero,
                           reinterpret_cast<float(*)[kVectors][16]>(out.weights[b][line * 8][v]));
      }
    }
}

void dequantize_any(const PanelArgs& args, const uint8_t* super, int blocks,
                    Avx512DequantizedF32& out) {
  with_code(args.code, [&]<CodeKind kCode>() {
    if constexpr (!is_eight_bits(kCode)) dequantize<kCode>(*args.layout, super, blocks, out);
  });
}

/// 24 sums, 4 vectors of weights and one of activations are in registers.
MARLIN_AVX512 void multiply_tile(const Avx512DequantizedF32& dequantized, int blocks, bool first,
                                 const PanelArgs& args, int64_t, const uint32_t* a_block,
                                 float* sums) {
  const int64_t a_block_size = args.activations.a_block_size();
  __m512 acc[kRows][kVectors];
  load_sums(first, sums, acc);
  for (int b = 0; b < blocks; ++b, a_block += a_block_size)
#pragma GCC unroll 4
    for (int step = 0; step < kBlockSlots; ++step) {
      __m512 w[kVectors];
      MARLIN_UNROLLED(v, kVectors) w[v] = _mm512_load_ps(dequantized.weights[b][step][v]);
      MARLIN_UNROLLED(r, kRows) {
        const __m512 x =
            _mm512_castsi512_ps(_mm512_set1_epi32(static_cast<int>(a_block[step * kRows + r])));
        MARLIN_UNROLLED(v, kVectors) acc[r][v] = _mm512_fmadd_ps(w[v], x, acc[r][v]);
      }
      fence();
    }
  store_sums(acc, sums);
}

}  // namespace

void cpu_avx512_prescaled_any_sparse_f32(const PanelArgs& args) {
  walk_chunks<Avx512DequantizedF32, dequantize_any, multiply_tile>(args);
}

}  // namespace metal_marlin::cpu

#endif
