// INT8 compute for many rows of FP4 with E4M3 scales in groups of 16 (NVFP4). With a scale for
// every 16 slots, 8 dot products would need 4 multiplications beside them. Here the two groups of a
// block lie in neighboring lanes. Their sums, below 2^15, are packed to int16, and one vpmaddwd
// multiplies them by the two scales (avx512_int8_paired_scales.h). This leaves 2 multiplications
// for 8 dot products, like groups of 32.
//
//   chunk in L1              registers
//   codes [block][step] ---> w[i]       i = 0..3: lane pair (group 0, group 1) of 8 columns
//   packed A block      ---> x          slots 4 s.. of group 0 and of group 1, alternating lanes
//                            dot[r][i]  += w[i] . x over 4 steps
//     vpackssdw         ---> 16 columns x (group 0, group 1) as int16
//   pairs [block][64]   ---> vpmaddwd: the sum of both groups times their scales
//   d times power       ---> acc[r][v]  += float(..) * (power * d[r])
//
//   16 columns take two vectors, with columns 0 1 4 5 8 9 12 13 and 2 3 6 7 10 11 14 15, and
//   vpackssdw brings them back into order. M: tiles of 3 rows. N: 64 columns, 32 at a time in a
//   block. K: chunk of 8 blocks, block, step.
//
// Template parameters: kFactor exponents or finite; kSparse either. A chunk with scales that do not
// fit is dequantized and multiplied like other INT8 weights (avx512_int8_dequant.h), with the
// packed A blocks of pairs.
//
// Limits: 12 sums of (column, group), 12 float sums, 4 vectors of codes and one of activations take
// 29 of 32 registers. For a row and a vector of 16 columns, 8 dot products, one vpmaddwd and one
// FMA share two pipes, which gives 8 / 10 of the peak.
#if defined(__x86_64__)

#include "backends/cpu/chunks.h"
#include "backends/cpu/x86/avx512_int8_dequant.h"

namespace metal_marlin::cpu {
namespace {

constexpr ActivationLayout kRecords{
    .form = ActivationForm::int8, .tile_rows = kDequantRows, .sums_per_block = 2, .paired = true};

template <bool kSparse>
MARLIN_AVX512 void dequantize_codes(const SuperShape& shape, const uint8_t* super, int blocks,
                                    DequantizedInt8& out) {
  using Lines = CodeLines<CodeKind::fp4, kSparse>;
  for (int b = 0; b < blocks; ++b)
#pragma GCC unroll 4
    for (int v = 0; v < kDequantVectors; ++v) {
      const uint8_t* codes = super + b / kBlocksPerSuper * shape.bytes +
                             (b % kBlocksPerSuper * kDequantVectors + v) * Lines::kBytes;
      auto* const to =
          reinterpret_cast<uint8_t(*)[kDequantVectors][64]>(out.codes[b][v / 2 * 4][v % 2 * 2]);
#pragma GCC unroll 2
      for (int line = 0; line < 2; ++line) {
        const Codes one = Lines::read(codes, line, _mm512_setzero_si512());
        const Codes two = Lines::read(codes, line + 2, _mm512_setzero_si512());
        const __m512i a = unsigned_codes<CodeKind::fp4, kSparse, 0>(one),
                      b2 = unsigned_codes<CodeKind::fp4, kSparse, 0>(two);
        const __m512i c = unsigned_codes<CodeKind::fp4, kSparse, 1>(one),
                      d = unsigned_codes<CodeKind::fp4, kSparse, 1>(two);
        _mm512_store_si512(to[2 * line][0], _mm512_unpacklo_epi32(a, b2));
        _mm512_store_si512(to[2 * line][1], _mm512_unpackhi_epi32(a, b2));
        _mm512_store_si512(to[2 * line + 1][0], _mm512_unpacklo_epi32(c, d));
        _mm512_store_si512(to[2 * line + 1][1], _mm512_unpackhi_epi32(c, d));
      }
    }
}

void dequantize(const PanelArgs& args, const uint8_t* super, int blocks, DequantizedInt8& out) {
  const PanelLayout& layout = *args.layout;
  const SuperShape shape(layout);
  float power = 0;
  if (pair_scales(shape, super, blocks, out.pairs, power)) {
    out.smallest = out.largest = std::bit_cast<uint32_t>(power);
    out.paired = true;
    return layout.sparse ? dequantize_codes<true>(shape, super, blocks, out)
                         : dequantize_codes<false>(shape, super, blocks, out);
  }
  layout.sparse ? dequantize_int8<CodeKind::fp4, true>(layout, super, blocks, out)
                : dequantize_int8<CodeKind::fp4, false>(layout, super, blocks, out);
}

MARLIN_AVX512 MARLIN_INLINE __m512i broadcast_pair(const uint32_t* x) {
  return _mm512_set1_epi64(load<int64_t>(x));
}

/// Multiplies 3 rows by 64 columns over the blocks of a chunk, 32 columns at a time: 12 sums of
/// (column, group) and 12 float sums.
template <Factor kFactor>
MARLIN_AVX512_VNNI [[gnu::noinline]] void multiply_paired(const DequantizedInt8& dequantized,
                                                          int blocks, bool first,
                                                          const uint32_t* a_block, float* sums) {
  const __m512 power = _mm512_set1_ps(std::bit_cast<float>(dequantized.largest));
  FloatSums acc;
  load_sums(first, sums, acc);
  for (int b = 0; b < blocks; ++b, a_block += kRecords.a_block_size()) {
    fetch_a_blocks(a_block);
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      Int8Sums dot;
#pragma GCC unroll 3
      for (int r = 0; r < kDequantRows; ++r) {
        const __m512i start = broadcast_pair(a_block + kRecords.sum_index(0, r));
#pragma GCC unroll 4
        for (int v = 0; v < kDequantVectors; ++v) dot[r][v] = start;
      }
#pragma GCC unroll 4
      for (int step = 0; step < 4; ++step) {
        __m512i w[kDequantVectors];
#pragma GCC unroll 4
        for (int v = 0; v < kDequantVectors; ++v)
          w[v] = _mm512_load_si512(dequantized.codes[b][half * 4 + step][v]);
#pragma GCC unroll 3
        for (int r = 0; r < kDequantRows; ++r) {
          const __m512i x = broadcast_pair(a_block + kRecords.step_index(step, r));
#pragma GCC unroll 4
          for (int v = 0; v < kDequantVectors; ++v)
            dot[r][v] = _mm512_dpbusd_epi32(dot[r][v], w[v], x);
        }
        fence();
      }
#pragma GCC unroll 3
      for (int r = 0; r < kDequantRows; ++r) {
        const __m512 factor = factor_of<kFactor>(
            power, _mm512_castsi512_ps(broadcast(a_block + 8 * kDequantRows + r)));
#pragma GCC unroll 2
        for (int v = 0; v < 2; ++v) {
          const int columns = half * 2 + v;
          const __m512i both =
              _mm512_madd_epi16(_mm512_packs_epi32(dot[r][2 * v], dot[r][2 * v + 1]),
                                _mm512_load_si512(&dequantized.pairs[b][16 * columns]));
          acc[r][columns] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(both), factor, acc[r][columns]);
        }
      }
    }
  }
  store_sums(acc, sums);
}

void tile(const DequantizedInt8& dequantized, int blocks, bool first, const PanelArgs& args,
          int64_t tile, const uint32_t* a_block, float* sums) {
  const auto* row_stats =
      reinterpret_cast<const float*>(args.packed_a + args.activations.rows_offset(tile));
  if (!dequantized.paired)
    multiply_blocks<2, true, Factor::finite>(dequantized, blocks, first, a_block, sums);
  else if (ScaleRange::of<true>(row_stats, kDequantRows)
               .holds(dequantized.smallest, dequantized.largest))
    multiply_paired<Factor::exponents>(dequantized, blocks, first, a_block, sums);
  else
    multiply_paired<Factor::finite>(dequantized, blocks, first, a_block, sums);
}

}  // namespace

void cpu_avx512vnni_paired_fp4_i8(const PanelArgs& args) {
  args.activations.paired ? walk_chunks<DequantizedInt8, dequantize, tile>(args)
                          : dequant_int8(args);
}
void cpu_avx512vnni_paired_fp4_sparse_i8(const PanelArgs& args) {
  cpu_avx512vnni_paired_fp4_i8(args);
}

}  // namespace metal_marlin::cpu

#endif
