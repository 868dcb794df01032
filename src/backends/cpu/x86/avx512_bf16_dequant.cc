// BF16 activations for many rows, by vdpbf16ps: a chunk is decoded into L1 and multiplied by all
// tiles. There are two ways to apply scales, both exact up to the sums:
//   prescaled: FP4 times an E8M0 or E4M3 scale has at most 6 significant bits and fits BF16, so the
//     decoded weights contain their scale. (Products below 2^-126 are BF16 subnormals, which
//     vdpbf16ps takes as 0.)
//   dequant: other sparse weights keep codes without scales, and the partial sums of a block are
//     multiplied by the scales. (Dense weights are faster in register-decoded tiles. Only the F32
//     sparse kernel dequantizes additive zeros, and 8-bit codes are never sparse.)
//
//   packed stream --decode--> chunk in L1            registers
//                             weights [block][step] ---> w[v]  dword c: column 16 v + c, slots h
//                                     [v][64 bytes]            and h + 2
//   packed A block            -------------------------> b     2 slots of a row, in all lanes
//                             prescaled:   acc[r][v]     += w[v] * b
//                             dequant:     partial[r][v] += w[v] * b, and for each part of a block
//                                          acc[r][v]     += partial[r][v] * scale[v]
//   sums (in L1)              <----------------------> acc[r][v]  loaded and stored once per chunk
//
//   M: tiles of 6 rows (prescaled) or 3. N: all 64 columns. K: chunk of 8 (prescaled) or 4 blocks,
//   block, part, step of 2 slots.
//
// Template parameters: kSparse of the prescaled decoder: either; kCode of the other one: u4,
// u4zero or fp4, all sparse; kParts 2 with groups of 16, else 1.
//
// Limits: 24 sums (or 12 and 12), 4 vectors of weights and one of activations take 29 of 32
// registers. A block takes 64 vdpbf16ps per row; partial sums add 4 FMA (8 with groups of 16).
// Decoded weights take 4 KB per block.
#if defined(__x86_64__)

#include "backends/cpu/chunks.h"
#include "backends/cpu/x86/avx512_float.h"

namespace metal_marlin::cpu {
namespace {

constexpr int kVectors = 4, kSteps = 16;
// Scales and two sets of sums need room in L1 beside the weights (4 KB per block): for codes
// without scales, 8 blocks are slower by a tenth.
constexpr int kPrescaledRows = 6, kPrescaledBlocks = 8, kPartialRows = 3, kPartialBlocks = 4;

template <int kBlocks>
using DecodedWeights = uint8_t[kBlocks][kSteps][kVectors][64];

struct Prescaled {
  static constexpr int kStride = kVectors * 64;
  uint8_t* line(int b, int v, int line) { return weights[b][line * 4][v]; }
  DecodedWeights<kPrescaledBlocks> weights;
};

struct Partial {
  DecodedWeights<kPartialBlocks> weights;
  float scale[kPartialBlocks][2][kPanelColumns];  ///< a row per block, or two with groups of 16
};

/// Decodes steps of a 4-bit line without scale.
template <CodeKind kCode, int kStep = 0>
MARLIN_AVX512 MARLIN_INLINE void decode_line(Codes codes, __m512i table,
                                             uint8_t (*out)[kVectors][64]) {
  if constexpr (kStep < 4) {
    _mm512_store_si512(out[kStep][0], bf16_step<kCode, true, kStep>(codes, table));
    decode_line<kCode, kStep + 1>(codes, table, out);
  }
}

template <CodeKind kCode>
MARLIN_AVX512 void dequantize_partial(const PanelLayout& layout, const uint8_t* super, int blocks,
                                      Partial& out) {
  using Lines = CodeLines<kCode, true>;
  const SuperShape shape(layout);
  const int parts = shape.shift == 0 ? 2 : 1;
  const __m512i table = bf16_table<kCode>();
  FloatSuper scales;
  for (int b = 0; b < blocks; ++b) {
    if (b % kBlocksPerSuper == 0) {
      if (b != 0) super += shape.bytes;
      decode_float_super(kCode, shape, super, scales);
    }
    const int unit = b % kBlocksPerSuper * 2;
    for (int line = 0; line < Lines::kLines; ++line)
      for (int v = 0; v < kVectors; ++v) {
        const uint8_t* from = super + (unit / 2 * kVectors + v) * Lines::kBytes;
        const int group = (unit + line * 2 / Lines::kLines) >> shape.shift;
        const Codes codes =
            Lines::read(from, line, _mm512_load_si512(&scales.offset[group][16 * v]));
        decode_line<kCode>(codes, table,
                           reinterpret_cast<uint8_t(*)[kVectors][64]>(out.weights[b][line * 4][v]));
      }
    for (int part = 0; part < parts; ++part)
      for (int v = 0; v < kVectors; ++v) {
        const int group = (unit + part) >> shape.shift;
        _mm512_store_ps(&out.scale[b][part][16 * v], _mm512_load_ps(&scales.scale[group][16 * v]));
      }
  }
}

void dequantize_partial_any(const PanelArgs& args, const uint8_t* super, int blocks, Partial& out) {
  with_code(args.code, [&]<CodeKind kCode>() {
    if constexpr (!is_additive(kCode) && !is_eight_bits(kCode))
      dequantize_partial<kCode>(*args.layout, super, blocks, out);
  });
}

/// One step (two slots) of kRows rows x 64 columns.
template <int kRows>
MARLIN_AVX512_BF16 MARLIN_INLINE void multiply_step(const uint8_t (&weights)[kVectors][64],
                                                    const uint32_t* x,
                                                    __m512 (&sum)[kRows][kVectors]) {
  __m512i w[kVectors];
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) w[v] = _mm512_load_si512(weights[v]);
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r) {
    const __m512i b = _mm512_set1_epi32(static_cast<int>(x[r]));
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v)
      sum[r][v] = _mm512_dpbf16_ps(sum[r][v], reinterpret_cast<__m512bh>(w[v]),
                                   reinterpret_cast<__m512bh>(b));
  }
  fence();
}

/// 24 sums, 4 vectors of weights and one of activations are in registers.
MARLIN_AVX512_BF16 void prescaled_tile(const Prescaled& dequantized, int blocks, bool first,
                                       const PanelArgs& args, int64_t, const uint32_t* a_block,
                                       float* sums) {
  const int64_t a_block_size = args.activations.a_block_size();
  __m512 acc[kPrescaledRows][kVectors];
  load_sums(first, sums, acc);
  for (int b = 0; b < blocks; ++b, a_block += a_block_size)
#pragma GCC unroll 4
    for (int step = 0; step < kSteps; ++step)
      multiply_step(dequantized.weights[b][step], a_block + step * kPrescaledRows, acc);
  store_sums(acc, sums);
}

/// 12 partial sums and 12 sums. A group of more than 32 slots is scaled block by block.
template <int kParts>
MARLIN_AVX512_BF16 void partial_tile(const Partial& dequantized, int blocks, bool first,
                                     const uint32_t* a_block, float* sums) {
  constexpr int kRows = kPartialRows;
  __m512 acc[kRows][kVectors];
  load_sums(first, sums, acc);
  for (int b = 0; b < blocks; ++b, a_block += kSteps * kRows)
#pragma GCC unroll 2
    for (int part = 0; part < kParts; ++part) {
      __m512 partial[kRows][kVectors];
#pragma GCC unroll 3
      for (auto& row : partial)
#pragma GCC unroll 4
        for (__m512& sum : row) sum = _mm512_setzero_ps();
#pragma GCC unroll 16
      for (int step = part * kSteps / kParts; step < (part + 1) * kSteps / kParts; ++step)
        multiply_step(dequantized.weights[b][step], a_block + step * kRows, partial);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        const __m512 scale = _mm512_load_ps(&dequantized.scale[b][part][16 * v]);
#pragma GCC unroll 3
        for (int r = 0; r < kRows; ++r)
          acc[r][v] = _mm512_fmadd_ps(partial[r][v], scale, acc[r][v]);
      }
    }
  store_sums(acc, sums);
}

void partial_tile_any(const Partial& dequantized, int blocks, bool first, const PanelArgs& args,
                      int64_t, const uint32_t* a_block, float* sums) {
  args.layout->slot_group == 16 ? partial_tile<2>(dequantized, blocks, first, a_block, sums)
                                : partial_tile<1>(dequantized, blocks, first, a_block, sums);
}

}  // namespace

void cpu_avx512bf16_prescaled_fp4_bf16(const PanelArgs& args) {
  walk_chunks<Prescaled, dequantize_prescaled<false, Prescaled>, prescaled_tile>(args);
}
void cpu_avx512bf16_prescaled_fp4_sparse_bf16(const PanelArgs& args) {
  walk_chunks<Prescaled, dequantize_prescaled<true, Prescaled>, prescaled_tile>(args);
}
void cpu_avx512bf16_dequant_any_sparse_bf16(const PanelArgs& args) {
  walk_chunks<Partial, dequantize_partial_any, partial_tile_any>(args);
}

}  // namespace metal_marlin::cpu

#endif
