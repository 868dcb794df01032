// BF16 activations for many rows of FP4, by vdpbf16ps: a chunk is decoded into L1 and multiplied by
// all tiles. FP4 times an E8M0 or E4M3 scale has at most 6 significant bits and fits BF16, so the
// decoded weights contain their scale. (Products below 2^-126 are BF16 subnormals, which vdpbf16ps
// takes as 0.)
//
//   packed stream --decode--> chunk in L1            registers
//                             weights [block][step] ---> w[v]  dword c: column 16 v + c, slots h
//                                     [v][64 bytes]            and h + 2
//   packed A block            -------------------------> b     2 slots of a row, in all lanes
//                                                        acc[r][v] += w[v] * b
//   sums (in L1)              <----------------------> acc[r][v]  loaded and stored once per chunk
//
//   M: tiles of 6 rows. N: all 64 columns. K: chunk of 8 blocks, block, step of 2 slots.
//
// Limits: 24 sums, 4 vectors of weights and one of activations take 29 of 32 registers. A block
// takes 64 vdpbf16ps per row. Decoded weights take 4 KB per block.
#if defined(__x86_64__)

#include "backends/cpu/chunks.h"
#include "backends/cpu/x86/avx512_float.h"

namespace metal_marlin::cpu {
namespace {

constexpr int kRows = 6, kVectors = 4, kSteps = 16, kChunk = 8;

struct Prescaled {
  static constexpr int kStride = kVectors * 64;
  uint8_t* line(int b, int v, int line) { return weights[b][line * 4][v]; }
  uint8_t weights[kChunk][kSteps][kVectors][64];
};

/// One step (two slots) of 6 rows x 64 columns.
MARLIN_AVX512_BF16 MARLIN_INLINE void multiply_step(const uint8_t (&weights)[kVectors][64],
                                                    const uint32_t* x,
                                                    __m512 (&sum)[kRows][kVectors]) {
  __m512i w[kVectors];
  MARLIN_UNROLLED(v, kVectors) w[v] = _mm512_load_si512(weights[v]);
  MARLIN_UNROLLED(r, kRows) {
    const __m512i b = broadcast(x + r);
    MARLIN_UNROLLED(v, kVectors)
      sum[r][v] = _mm512_dpbf16_ps(sum[r][v], reinterpret_cast<__m512bh>(w[v]),
                                   reinterpret_cast<__m512bh>(b));
  }
  fence();
}

MARLIN_AVX512_BF16 void multiply_tile(const Prescaled& dequantized, int blocks, bool first,
                                      const PanelArgs& args, int64_t, const uint32_t* a_block,
                                      float* sums) {
  const int64_t a_block_size = args.activations.a_block_size();
  __m512 acc[kRows][kVectors];
  load_sums(first, sums, acc);
  for (int b = 0; b < blocks; ++b, a_block += a_block_size)
#pragma GCC unroll 4
    for (int step = 0; step < kSteps; ++step)
      multiply_step(dequantized.weights[b][step], a_block + step * kRows, acc);
  store_sums(acc, sums);
}

}  // namespace

void cpu_avx512bf16_prescaled_fp4_bf16(const PanelArgs& args) {
  walk_chunks<Prescaled, dequantize_prescaled<Prescaled>, multiply_tile>(args);
}

}  // namespace metal_marlin::cpu

#endif
