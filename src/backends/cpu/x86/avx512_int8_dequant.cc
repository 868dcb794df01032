// INT8 compute for many rows of 2:4 sparse weights. A chunk of 8 blocks is decoded into L1 and
// multiplied by all tiles. (Dense weights have register-decoded tiles, avx512_regdecode.h. Sparse
// weights take too long to decode for each tile.)
//
//   packed stream --decode--> chunk in L1           registers
//                             codes [block][step] ---> w[v]       unsigned bytes, a dword per
//                                   [v][64 bytes]                 column: 4 slots
//   packed A block            ------------------------> x         4 signed bytes of a row, in all
//                                                                 lanes
//                                                      dot[r][v]  += w[v] . x; starts from the sum
//                                                                 of the activations
//                             scale [group][64] -----> acc[r][v]  += float(dot[r][v]) * (scale[v]
//                                                                 * d[r])         multiply_blocks
//   sums (in L1)              <----------------------> acc[r][v]  loaded and stored once per chunk
//
//   With groups of 64 and 128 (multiply_groups), part[r][v] += float(dot[r][v]) * d[r], and at the
//   end of a group the sums in memory += part[r][v] * scale[v].
//
//   M: tiles of 3 rows; all are multiplied by one chunk before the next is decoded. N: all 64
//   columns. K: chunk of 8 blocks, block, part, step.
//
// Template parameters: kParts 2 with groups of 16, else 1; kFactor: exponents only with kParts
// 1; kGroup: blocks of a group, 2 or 4; kSomeOverflowProne: some row of the tile is.
//
// Limits: 12 integer and 12 float sums, 4 vectors of codes and one of activations take 29 of 32
// registers. vpdpbusd and all multiplications share two pipes, so the multiplications beside the 8
// dot products of a block, row and vector limit the speed: two give 8 / 10 of the peak, one gives 8
// / 9. A chunk (16 KB of codes, 4 KB of scales) leaves room in L1 for activations.
#if defined(__x86_64__)

#include <algorithm>

#include "backends/cpu/chunks.h"
#include "backends/cpu/x86/avx512_int8.h"

namespace metal_marlin::cpu {
namespace {

constexpr int kDequantRows = 3, kDequantVectors = 4, kDequantBlocks = 8;

/// A decoded chunk, which the tiles read.
struct DequantizedInt8 {
  uint8_t codes[kDequantBlocks][8][kDequantVectors][64];  ///< [block][step]
  float scale[kDequantBlocks * 2][kPanelColumns];         ///< one row a group
  uint32_t smallest, largest;                             ///< magnitudes of scale, as bits
};

using Int8Sums = __m512i[kDequantRows][kDequantVectors];
using FloatSums = __m512[kDequantRows][kDequantVectors];

template <CodeKind kCode>
MARLIN_AVX512 void dequantize_int8(const PanelLayout& layout, const uint8_t* super, int blocks,
                                   DequantizedInt8& out) {
  using Lines = CodeLines<kCode, true>;
  const SuperShape shape(layout);
  alignas(64) uint32_t offsets[8][kPanelColumns];
  Magnitudes all = no_magnitudes();
  for (int b = 0; b < blocks; ++b) {
    if (b % kBlocksPerSuper == 0) {
      if (b != 0) super += shape.bytes;
      const int row = b / kBlocksPerSuper * shape.groups;
      widen(all,
            decode_int8_scales(kCode, shape, super, 0, kDequantVectors, out.scale[row], nullptr));
      if constexpr (kCode == CodeKind::u4zero)
        decode_offsets(super + shape.zeros, shape.groups, 0, kDequantVectors, offsets);
    }
    const uint8_t* codes = super + b % kBlocksPerSuper * kDequantVectors * Lines::kBytes;
    for (int line = 0; line < Lines::kLines; ++line)
      MARLIN_UNROLLED(v, kDequantVectors) {
        const uint8_t* from = codes + v * Lines::kBytes;
        const int group = (b % kBlocksPerSuper * 2 + line * 2 / Lines::kLines) >> shape.shift;
        const Codes packed = Lines::read(from, line, _mm512_load_si512(&offsets[group][16 * v]));
        _mm512_store_si512(out.codes[b][2 * line][v], unsigned_codes<kCode, 0>(packed));
        _mm512_store_si512(out.codes[b][2 * line + 1][v], unsigned_codes<kCode, 1>(packed));
      }
  }
  out.smallest = _mm512_reduce_min_epu32(all.smallest);
  out.largest = _mm512_reduce_max_epu32(all.largest);
}

/// Adds the dot products of kCount steps from step `first` of a block on.
template <int kCount>
MARLIN_AVX512_VNNI MARLIN_INLINE void dot_steps(const uint8_t (&codes)[8][kDequantVectors][64],
                                                int first, const uint32_t* a_block, Int8Sums& dot) {
#pragma GCC unroll 8
  for (int step = first; step < first + kCount; ++step) {
    __m512i w[kDequantVectors];
    MARLIN_UNROLLED(v, kDequantVectors) w[v] = _mm512_load_si512(codes[step][v]);
    MARLIN_UNROLLED(r, kDequantRows) {
      const __m512i x = broadcast(a_block + step * kDequantRows + r);
      MARLIN_UNROLLED(v, kDequantVectors) dot[r][v] = _mm512_dpbusd_epi32(dot[r][v], w[v], x);
    }
    fence();
  }
}

MARLIN_AVX512 MARLIN_INLINE void fetch_a_blocks(const uint32_t* a_block) {
  _mm_prefetch(reinterpret_cast<const char*>(a_block) + 2048, _MM_HINT_T0);
  _mm_prefetch(reinterpret_cast<const char*>(a_block) + 2112, _MM_HINT_T0);
}

/// Multiplies 3 rows by 64 columns over the blocks of a chunk: 12 integer and 12 float sums, 4
/// vectors of codes and one of activations. Every block (of 16 slots with kParts = 2) has its
/// scale.
template <int kParts, Factor kFactor>
MARLIN_AVX512_VNNI [[gnu::noinline]] void multiply_blocks(const DequantizedInt8& dequantized,
                                                          int blocks, bool first,
                                                          const uint32_t* a_block, float* sums) {
  constexpr ActivationLayout kLayout{
      .form = ActivationForm::int8, .tile_rows = kDequantRows, .sums_per_block = kParts};
  constexpr int kSteps = 8 / kParts;
  FloatSums acc;
  load_sums(first, sums, acc);
  for (int b = 0; b < blocks; ++b, a_block += kLayout.a_block_size()) {
    fetch_a_blocks(a_block);
    MARLIN_UNROLLED(part, kParts) {
      Int8Sums dot;
      MARLIN_UNROLLED(r, kDequantRows) {
        const __m512i start = broadcast(a_block + kLayout.sum_index(part, r));
        MARLIN_UNROLLED(v, kDequantVectors) dot[r][v] = start;
      }
      dot_steps<kSteps>(dequantized.codes[b], part * kSteps, a_block, dot);
      MARLIN_UNROLLED(r, kDequantRows) {
        const __m512 d = _mm512_castsi512_ps(broadcast(a_block + 8 * kDequantRows + r));
        MARLIN_UNROLLED(v, kDequantVectors) {
          const __m512 factor =
              factor_of<kFactor>(_mm512_load_ps(&dequantized.scale[b * kParts + part][16 * v]), d);
          acc[r][v] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot[r][v]), factor, acc[r][v]);
        }
      }
    }
  }
  store_sums(acc, sums);
}

/// The same with a scale for every kGroup blocks. d multiplies the integer sums of a block. The
/// scale multiplies the sums of a group, which are then added to the sums in memory. This takes
/// (kGroup + 1) / 2 kGroup of the multiplications that a scale for every block takes.
/// `overflow_prone` marks rows with a d so large that sums of a group might overflow; they are
/// scaled block by block.
template <int kGroup, bool kSomeOverflowProne>
MARLIN_AVX512_VNNI [[gnu::noinline]] void multiply_groups(
    const DequantizedInt8& dequantized, int blocks, bool first,
    const bool (&overflow_prone)[kDequantRows], const uint32_t* a_block, float* sums) {
  constexpr ActivationLayout kLayout{
      .form = ActivationForm::int8, .tile_rows = kDequantRows, .sums_per_block = 1};
  for (int b = 0; b < blocks; b += kGroup) {
    FloatSums part;
#pragma GCC unroll 3
    for (auto& row : part)
#pragma GCC unroll 4
      for (__m512& sum : row) sum = _mm512_setzero_ps();
    for (int i = 0; i < kGroup; ++i, a_block += kLayout.a_block_size()) {
      fetch_a_blocks(a_block);
      Int8Sums dot;
      MARLIN_UNROLLED(r, kDequantRows) {
        const __m512i start = broadcast(a_block + kLayout.sum_index(0, r));
        MARLIN_UNROLLED(v, kDequantVectors) dot[r][v] = start;
      }
      dot_steps<8>(dequantized.codes[b + i], 0, a_block, dot);
      MARLIN_UNROLLED(r, kDequantRows) {
        const __m512 d = _mm512_castsi512_ps(broadcast(a_block + 8 * kDequantRows + r));
        float* const row = sums + r * kPanelColumns;
        MARLIN_UNROLLED(v, kDequantVectors) {
          const __m512 whole = _mm512_cvtepi32_ps(dot[r][v]);
          if (kSomeOverflowProne && overflow_prone[r]) {
            const __m512 factor =
                finite_product(_mm512_load_ps(&dequantized.scale[b / kGroup][16 * v]), d);
            const __m512 sum =
                first && b + i == 0 ? _mm512_setzero_ps() : _mm512_load_ps(row + 16 * v);
            _mm512_store_ps(row + 16 * v, _mm512_fmadd_ps(whole, factor, sum));
          } else {
            part[r][v] = _mm512_fmadd_ps(whole, d, part[r][v]);
          }
        }
      }
    }
    MARLIN_UNROLLED(r, kDequantRows) {
      float* const row = sums + r * kPanelColumns;
      MARLIN_UNROLLED(v, kDequantVectors) {
        const bool is_overflow_prone = kSomeOverflowProne && overflow_prone[r];
        __m512 sum = first && b == 0 && !is_overflow_prone ? _mm512_setzero_ps()
                                                           : _mm512_load_ps(row + 16 * v);
        if (!is_overflow_prone)
          sum = _mm512_fmadd_ps(part[r][v], _mm512_load_ps(&dequantized.scale[b / kGroup][16 * v]),
                                sum);
        _mm512_store_ps(row + 16 * v, sum);
      }
    }
  }
}

/// One tile of rows, and a chunk.
struct Int8Tile {
  const DequantizedInt8& dequantized;
  int blocks;
  bool first;
  const float* row_stats;  ///< of its rows (activations.h)
  const uint32_t* a_block;
  float* sums;
};

void dequantize_any(const PanelArgs& args, const uint8_t* super, int blocks, DequantizedInt8& out) {
  if (args.code == CodeKind::u4)
    return dequantize_int8<CodeKind::u4>(*args.layout, super, blocks, out);
  if (args.code == CodeKind::u4zero)
    return dequantize_int8<CodeKind::u4zero>(*args.layout, super, blocks, out);
  dequantize_int8<CodeKind::fp4>(*args.layout, super, blocks, out);
}

Factor factor_for(const Int8Tile& tile, ScaleType type) {
  const DequantizedInt8& dequantized = tile.dequantized;
  if (type == ScaleType::e8m0 && ScaleRange::of<true>(tile.row_stats, kDequantRows)
                                     .holds(dequantized.smallest, dequantized.largest))
    return Factor::exponents;
  return ScaleRange::of<false>(tile.row_stats, kDequantRows)
                 .holds(dequantized.smallest, dequantized.largest)
             ? Factor::product
             : Factor::finite;
}

template <int kParts, Factor kFactor>
void run_blocks(const Int8Tile& tile) {
  multiply_blocks<kParts, kFactor>(tile.dequantized, tile.blocks, tile.first, tile.a_block,
                                   tile.sums);
}

template <int kParts>
void blocks_any(const Int8Tile& tile, ScaleType type) {
  const Factor factor = factor_for(tile, type);
  if constexpr (kParts == 1)
    if (factor == Factor::exponents) return run_blocks<1, Factor::exponents>(tile);
  factor == Factor::finite ? run_blocks<kParts, Factor::finite>(tile)
                           : run_blocks<kParts, Factor::product>(tile);
}

template <int kGroup>
void groups_any(const Int8Tile& tile) {
  bool overflow_prone[kDequantRows], any = false;
  for (int r = 0; r < kDequantRows; ++r)
    any |= overflow_prone[r] = tile.row_stats[r] > kOverflowProne;
  const auto run = any ? multiply_groups<kGroup, true> : multiply_groups<kGroup, false>;
  run(tile.dequantized, tile.blocks, tile.first, overflow_prone, tile.a_block, tile.sums);
}

void tile_any(const DequantizedInt8& dequantized, int blocks, bool first, const PanelArgs& args,
              int64_t index, const uint32_t* a_block, float* sums) {
  const auto* row_stats =
      reinterpret_cast<const float*>(args.packed_a + args.activations.rows_offset(index));
  const Int8Tile tile{dequantized, blocks, first, row_stats, a_block, sums};
  switch (args.layout->slot_group) {
    case 16:
      return blocks_any<2>(tile, args.layout->scale_type);
    case 32:
      return blocks_any<1>(tile, args.layout->scale_type);
    case 64:
      return groups_any<2>(tile);
    default:
      return groups_any<4>(tile);
  }
}

}  // namespace

void cpu_avx512vnni_dequant_any_sparse_i8(const PanelArgs& args) {
  walk_chunks<DequantizedInt8, dequantize_any, tile_any>(args);
}

}  // namespace metal_marlin::cpu

#endif
