// INT8 compute of dense weights by register-decoded tiles (avx512_regdecode.h).
//
//   packed stream         registers, for one column group
//   line of codes    ---> low, high  unsigned bytes, a dword per column: 4 slots each
//   packed A block   ---> memory operand of vpdpbusd: 4 signed bytes, broadcast to all lanes
//                         dot[r]     += low . x[r], then high . x[r]; starts from the sum of the
//                                    activations, which undoes the offset of the codes
//   chunk's scales   ---> acc[r]     += float(dot[r]) * (scale * d[r])            multiply_blocks
//                         part[r]    += float(dot[r]) * d[r], and for each group
//                         acc[r]     += part[r] * scale                           multiply_groups
//   sums (in L1)     <--> acc[r]     loaded and stored once per chunk
//
//   M: tiles of up to 12 rows; if a row takes three registers, tiles of more than 8 rows are cut in
//   two halves. N: 16 columns at a time, four times. K: chunk of 12 blocks, block, part, line.
//   Codes are decoded again for every tile.
//
// The functions and their template parameters (kCode: any, dense):
//   multiply_blocks  kParts 1 with groups of 32, 2 with groups of 16; kFactor product or exponents
//                    (fp4 with E8M0 scales, kParts 1) with kRows 2, 4, .. 12; finite with kRows 1.
//                    With groups of 64 and more for overflow-prone rows: kParts 1, finite.
//   multiply_groups  groups of 64 and 128; kRows 2, 4, 6, 8, and 1 beside overflow-prone rows
//   multiply_paired  fp4 with E4M3 scales that fit in pairs; exponents with kRows 2, 4, 6, 8, or
//                    finite with kRows 1
//
// Limits: vpdpbusd and all multiplications share two pipes, so the multiplications beside the 8 dot
// products of a block of 32 slots and a row limit the speed: one (powers of two; groups of 64 and
// more) gives 8 / 9 of the peak, two give 8 / 10. Lookups (FP4) take a pipe of the dot products
// half of the time: 96 dot products, 12 FMA and 8 lookups for 12 rows give 0.86 of the peak. Two
// sets of 12 sums leave 8 registers; three sets have room for 8 rows.
#if defined(__x86_64__)

#include "backends/cpu/chunks.h"
#include "backends/cpu/x86/avx512_int8_paired_scales.h"
#include "backends/cpu/x86/avx512_regdecode.h"

namespace metal_marlin::cpu {
namespace {

/// The scales and zeros of a chunk, a row of 64 for each group, and the place of its codes.
struct alignas(64) Int8ScaleChunk {
  float scale[2 * kRegdecodeBlocks][kPanelColumns];
  union {
    float zero[2 * kRegdecodeBlocks][kPanelColumns];       ///< additive zeros
    uint32_t offset[2 * kRegdecodeBlocks][kPanelColumns];  ///< u4zero: decode_offsets
    uint32_t pairs[kRegdecodeBlocks]
                  [kPanelColumns];  ///< FP4 with E4M3 scales: pair_scales, instead of scale
  };
  uint32_t smallest, largest;  ///< magnitudes of scale, or the power of pairs, as bits
  bool paired;
  const uint8_t* codes;
  int64_t super_bytes;
  ExpandedChunk<CodeKind::i8> expanded;
  int shift;  ///< block b has its scale in row b >> shift (groups of 16: rows 2 b, 2 b + 1)

  /// The codes of block b, from column 16 v on.
  MARLIN_INLINE const uint8_t* group(int b, int v, int bytes) const {
    return codes + b / kBlocksPerSuper * super_bytes +
           (b % kBlocksPerSuper * kColumnGroups + v) * bytes;
  }
};
using Tile = RegdecodeTile<Int8ScaleChunk>;

template <CodeKind kCode>
MARLIN_AVX512 void dequantize(const PanelArgs& args, const uint8_t* super, int blocks,
                              Int8ScaleChunk& out) {
  const SuperShape shape(*args.layout);
  const bool expands = is_eight_bits(kCode) && shape.expands;
  out.codes = expands ? out.expanded.supers[0].bytes : super;
  out.super_bytes = expands ? int64_t{sizeof(ExpandedCodes<kCode>)} : shape.bytes;
  out.shift = shape.shift - 1;
  for (int s = 0; s < blocks / kBlocksPerSuper; ++s) {
    shape.fetch_scales(super + s * shape.bytes);
    if (expands)
      expand_avx512(*args.layout, super + s * shape.bytes, 0, kColumnGroups, 0,
                    out.expanded.supers[s].bytes);
  }
  float power = 0;
  out.paired = !args.block_by_block && kCode == CodeKind::fp4 &&
               shape.scale_type == ScaleType::e4m3 && shape.shift == 0 &&
               pair_scales(shape, super, blocks, out.pairs, power);
  out.smallest = out.largest = std::bit_cast<uint32_t>(power);
  if (out.paired) return;
  Magnitudes all = no_magnitudes();
  for (int s = 0; s < blocks / kBlocksPerSuper; ++s, super += shape.bytes) {
    const int row = s * shape.groups;
    widen(all,
          decode_int8_scales<kCode>(shape, super, 0, kColumnGroups, out.scale[row], out.zero[row]));
    if constexpr (kCode == CodeKind::u4zero)
      decode_offsets(super + shape.zeros, shape.groups, 0, kColumnGroups, out.offset + row);
  }
  out.smallest = _mm512_reduce_min_epu32(all.smallest);
  out.largest = _mm512_reduce_max_epu32(all.largest);
}

/// The initial value of the sums of a block, which corrects the offset of unsigned codes.
template <CodeKind kCode>
MARLIN_AVX512 MARLIN_INLINE __m512i start_of(const uint32_t* sum) {
  if constexpr (!is_additive(kCode)) return broadcast(sum);
  return kUncorrected<kCode> == 0
             ? _mm512_setzero_si512()
             : _mm512_set1_epi32(-kUncorrected<kCode> * static_cast<int>(*sum));
}

/// sum + w * the 4 activations at x. This is assembly because g++ 12 would broadcast with a
/// separate instruction.
MARLIN_AVX512_VNNI MARLIN_INLINE void dot_broadcast(__m512i& sum, __m512i w, const uint32_t* x) {
  __asm__("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(sum) : "v"(w), "m"(*x));
}

/// The sums of kCount lines of 16 columns, from line `first` on, of a block. `start` are the sums
/// of the activations of the rows.
template <CodeKind kCode, int kRows, int kCount>
MARLIN_AVX512_VNNI MARLIN_INLINE void dot_lines(const uint8_t* group, int first,
                                                const uint32_t* offsets, const uint32_t* a_block,
                                                const uint32_t* start, int64_t ahead,
                                                __m512i (&dot)[kRows]) {
  using Lines = CodeLines<kCode, false>;
  constexpr int kQuads = is_eight_bits(kCode) ? 1 : 2;
#pragma GCC unroll 12
  for (int r = 0; r < kRows; ++r) dot[r] = start_of<kCode>(start + r);
#pragma GCC unroll 8
  for (int line = first; line < first + kCount; ++line) {
    const __m512i offset =
        kCode == CodeKind::u4zero ? _mm512_load_si512(offsets) : _mm512_setzero_si512();
    const Codes codes = Lines::read(group, line, offset);
    if (ahead != 0) Lines::fetch(group, line, ahead);
    const uint32_t* const x = a_block + line * kQuads * kRegdecodeRows;
    const __m512i low = unsigned_codes<kCode, false, 0>(codes);
#pragma GCC unroll 12
    for (int r = 0; r < kRows; ++r) dot_broadcast(dot[r], low, x + r);
    if constexpr (kQuads == 2) {
      const __m512i high = unsigned_codes<kCode, false, 1>(codes);
#pragma GCC unroll 12
      for (int r = 0; r < kRows; ++r) dot_broadcast(dot[r], high, x + kRegdecodeRows + r);
    }
    fence();
  }
}

/// A scale that is multiplied by the d of one row after another. It does the work of factor_of, and
/// does the part that depends only on the scale once.
template <Factor kFactor>
struct RowFactor {
  MARLIN_AVX512 MARLIN_INLINE explicit RowFactor(__m512 of) : scale(of) {
    if constexpr (kFactor == Factor::exponents) scale = _mm512_castsi512_ps(less_one(of));
  }
  MARLIN_AVX512 MARLIN_INLINE __m512 times(const uint32_t* d) const {
    if constexpr (kFactor == Factor::exponents) return add_exponents(scale, broadcast(d));
    return factor_of<kFactor>(scale, _mm512_castsi512_ps(broadcast(d)));
  }
  __m512 scale;
};

/// Multiplies kRows rows by 64 columns, 16 at a time. Every block (of 16 slots with kParts = 2) is
/// scaled.
template <CodeKind kCode, int kParts, Factor kFactor, int kRows>
MARLIN_AVX512_VNNI [[gnu::noinline]] void multiply_blocks(const Tile& tile) {
  using Lines = CodeLines<kCode, false>;
  constexpr int kLines = Lines::kLines / kParts, kABlock = (9 + kParts) * kRegdecodeRows;
  const Int8ScaleChunk& chunk = tile.chunk;
  for (int v = 0; v < kColumnGroups; ++v) {
    const uint32_t* a_block = tile.a_block;
    __m512 acc[kRows];
    load_sums(tile.first, tile.sums + 16 * v, acc);
    for (int b = 0; b < tile.blocks; ++b, a_block += kABlock) {
      const uint8_t* const group = chunk.group(b, v, Lines::kBytes);
      fetch_later_a_blocks<kABlock>(a_block, tile.blocks * kABlock, v);
      if constexpr (is_eight_bits(kCode)) tile.later.fetch(b, v);
#pragma GCC unroll 2
      for (int part = 0; part < kParts; ++part) {
        const int row = kParts == 2 ? 2 * b + part : b >> chunk.shift;
        const uint32_t* const d = a_block + 8 * kRegdecodeRows;
        const uint32_t* const count = d + (1 + part) * kRegdecodeRows;
        __m512i dot[kRows];
        dot_lines<kCode, kRows, kLines>(group, part * kLines, &chunk.offset[row][16 * v], a_block,
                                        count, tile.ahead, dot);
        const RowFactor<kFactor> factor(_mm512_load_ps(&chunk.scale[row][16 * v]));
#pragma GCC unroll 12
        for (int r = 0; r < kRows; ++r) {
          if constexpr (is_additive(kCode)) {
            const __m512 sum = _mm512_set1_ps(static_cast<float>(static_cast<int32_t>(count[r])) *
                                              std::bit_cast<float>(d[r]));
            acc[r] = _mm512_fmadd_ps(sum, _mm512_load_ps(&chunk.zero[row][16 * v]), acc[r]);
          }
          acc[r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot[r]), factor.times(d + r), acc[r]);
        }
        fence();
      }
    }
    store_sums(acc, tile.sums + 16 * v);
  }
}

/// The same for groups of 64 and more: d multiplies the integer sums of a block, and the scale
/// multiplies the sums of a group. There are three sets of sums.
template <CodeKind kCode, int kRows>
MARLIN_AVX512_VNNI [[gnu::noinline]] void multiply_groups(const Tile& tile) {
  using Lines = CodeLines<kCode, false>;
  constexpr int kABlock = 10 * kRegdecodeRows;
  const Int8ScaleChunk& chunk = tile.chunk;
  const int length = 1 << chunk.shift;
  for (int v = 0; v < kColumnGroups; ++v) {
    const uint32_t* a_block = tile.a_block;
    __m512 acc[kRows];
    load_sums(tile.first, tile.sums + 16 * v, acc);
    for (int b = 0; b < tile.blocks;) {
      const int row = b >> chunk.shift;
      __m512 part[kRows];
      float counts[kRows] = {};  // sums times d, which additive zeros multiply
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) part[r] = _mm512_setzero_ps();
      for (const int end = b + length; b < end; ++b, a_block += kABlock) {
        const uint32_t* const d = a_block + 8 * kRegdecodeRows;
        const uint32_t* const count = d + kRegdecodeRows;
        __m512i dot[kRows];
        fetch_later_a_blocks<kABlock>(a_block, tile.blocks * kABlock, v);
        if constexpr (is_eight_bits(kCode)) tile.later.fetch(b, v);
        dot_lines<kCode, kRows, Lines::kLines>(chunk.group(b, v, Lines::kBytes), 0,
                                               &chunk.offset[row][16 * v], a_block, count,
                                               tile.ahead, dot);
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r) {
          if constexpr (is_additive(kCode))
            counts[r] +=
                static_cast<float>(static_cast<int32_t>(count[r])) * std::bit_cast<float>(d[r]);
          part[r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot[r]),
                                    _mm512_castsi512_ps(broadcast(d + r)), part[r]);
        }
        fence();
      }
      const __m512 scale = _mm512_load_ps(&chunk.scale[row][16 * v]);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        if constexpr (is_additive(kCode))
          acc[r] = _mm512_fmadd_ps(_mm512_set1_ps(counts[r]),
                                   _mm512_load_ps(&chunk.zero[row][16 * v]), acc[r]);
        acc[r] = _mm512_fmadd_ps(part[r], scale, acc[r]);
      }
    }
    store_sums(acc, tile.sums + 16 * v);
  }
}

/// The same for FP4 with E4M3 scales in groups of 16, if they fit in pairs. The sums of both groups
/// of a block, below 2^15, become the halves of a dword, and one vpmaddwd multiplies them by two
/// scales and adds them. There are three sets of sums.
template <Factor kFactor, int kRows>
MARLIN_AVX512_VNNI [[gnu::noinline]] void multiply_paired(const Tile& tile) {
  using Lines = CodeLines<CodeKind::fp4, false>;
  constexpr int kABlock = 11 * kRegdecodeRows;
  const Int8ScaleChunk& chunk = tile.chunk;
  const RowFactor<kFactor> factor(_mm512_set1_ps(std::bit_cast<float>(chunk.largest)));
  for (int v = 0; v < kColumnGroups; ++v) {
    const uint32_t* a_block = tile.a_block;
    __m512 acc[kRows];
    load_sums(tile.first, tile.sums + 16 * v, acc);
    for (int b = 0; b < tile.blocks; ++b, a_block += kABlock) {
      const uint8_t* const group = chunk.group(b, v, Lines::kBytes);
      const uint32_t* const d = a_block + 8 * kRegdecodeRows;
      fetch_later_a_blocks<kABlock>(a_block, tile.blocks * kABlock, v);
      __m512i low[kRows], high[kRows];
      dot_lines<CodeKind::fp4, kRows, 2>(group, 0, nullptr, a_block, d + kRegdecodeRows, tile.ahead,
                                         low);
      dot_lines<CodeKind::fp4, kRows, 2>(group, 2, nullptr, a_block, d + 2 * kRegdecodeRows,
                                         tile.ahead, high);
      const __m512i integers = _mm512_load_si512(&chunk.pairs[b][16 * v]);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        const __m512i both =
            _mm512_mask_blend_epi16(0xaaaaaaaau, low[r], _mm512_slli_epi32(high[r], 16));
        acc[r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(_mm512_madd_epi16(both, integers)),
                                 factor.times(d + r), acc[r]);
      }
      fence();
    }
    store_sums(acc, tile.sums + 16 * v);
  }
}

/// The slow step for products that might overflow, one row at a time.
template <class One>
void row_by_row(const Tile& tile, int rows, One one) {
  for (int r = 0; r < rows; ++r) one(r, tile.from_row(r, r == 0));
}

template <CodeKind kCode>
void multiply_tile(const PanelArgs& args, const Tile& tile, int rows, const float* row_stats) {
  const Int8ScaleChunk& chunk = tile.chunk;
  const int group = args.layout->slot_group;
  if (group > kBlockSlots && !args.block_by_block) {
    if (*std::max_element(row_stats, row_stats + rows) <= kOverflowProne)
      return in_halves<8>(tile, rows,
                          []<int kRows>(const Tile& part) { multiply_groups<kCode, kRows>(part); });
    return row_by_row(tile, rows, [&](int r, const Tile& row) {
      row_stats[r] > kOverflowProne ? multiply_blocks<kCode, 1, Factor::finite, 1>(row)
                                    : multiply_groups<kCode, 1>(row);
    });
  }
  const auto holds = [&](const ScaleRange& range) {
    return range.holds(chunk.smallest, chunk.largest);
  };
  if constexpr (kCode == CodeKind::fp4) {
    const bool powers = holds(ScaleRange::of<true>(row_stats, kRegdecodeRows));
    if (chunk.paired) {
      if (powers)
        return in_halves<8>(tile, rows, []<int kRows>(const Tile& part) {
          multiply_paired<Factor::exponents, kRows>(part);
        });
      return row_by_row(tile, rows,
                        [](int, const Tile& row) { multiply_paired<Factor::finite, 1>(row); });
    }
    if (powers && args.layout->scale_type == ScaleType::e8m0 && group == kBlockSlots)
      return dispatch_rows<kRegdecodeRows>(
          rows, [&]<int kRows>() { multiply_blocks<kCode, 1, Factor::exponents, kRows>(tile); });
  }
  const bool finite = holds(ScaleRange::of<false>(row_stats, kRegdecodeRows));
  const auto blocks = [&]<int kParts>() {
    if (finite)
      return dispatch_rows<kRegdecodeRows>(
          rows, [&]<int kRows>() { multiply_blocks<kCode, kParts, Factor::product, kRows>(tile); });
    row_by_row(tile, rows, [](int, const Tile& row) {
      multiply_blocks<kCode, kParts, Factor::finite, 1>(row);
    });
  };
  group >= kBlockSlots ? blocks.template operator()<1>() : blocks.template operator()<2>();
}

}  // namespace

void cpu_avx512vnni_regdecode_any_i8(const PanelArgs& args) {
  with_code(args.code, [&]<CodeKind kCode>() {
    walk_regdecode<Int8ScaleChunk, dequantize<kCode>, multiply_tile<kCode>>(args);
  });
}

}  // namespace metal_marlin::cpu

#endif
