// INT8 compute of dense weights by register-decoded tiles (avx512_regdecode.h).
//
//   packed stream         registers, for one column group (4 rows and fewer: two)
//   octet of codes   ---> low, high  unsigned bytes, a dword per column: 4 slots each
//                                    (avx512_int8_reading.h)
//   packed A block   ---> memory operand of vpdpbusd: 4 signed bytes, broadcast to all lanes
//                         dot[r]     += low . x[r], then high . x[r]; starts from the sum of the
//                                    activations, which undoes the offset of the codes
//   chunk's scales   ---> acc[r]     += float(dot[r]) * (scale * d[r])            multiply_part
//                         acc[r]     += (float(dot[r]) * scale, both halves) * d[r]  multiply_both
//                         part[r]    += float(dot[r]) * d[r], and for each group
//                         acc[r]     += part[r] * scale                           multiply_groups
//   sums (in L1)     <--> acc[r]     loaded and stored once per chunk
//
//   M: tiles of up to 12 rows; if a row takes three registers, tiles of more than 8 rows are cut in
//   two halves. N: 16 (or 32) columns at a time, four (or two) times. K: chunk of 12 blocks, block,
//   part, octet. Codes are decoded again for every tile, except planes for many tiles (kManyTiles).
//
// The functions and their template parameters (Dense: DenseCodes of any codes and reading):
//   multiply_blocks  kParts 1 with groups of 32, 2 with groups of 16; kFactor product or exponents
//                    (fp4 with E8M0 scales, kParts 1) with kRows 2, 4, .. 12; finite with kRows 1.
//                    With groups of 64 and more for overflow-prone rows: kParts 1, finite. kBoth
//                    with groups of 16, moderate scales and kRows 2, 4, 6, 8.
//   multiply_groups  groups of 64 and 128; kRows 2, 4, 6, 8, and 1 beside overflow-prone rows
//   multiply_paired  fp4 with E4M3 scales in pairs; exponents with kRows 2 to 8, finite with 1
//
// Limits: vpdpbusd and all multiplications share two pipes, so the multiplications beside the 8 dot
// products of a block of 32 slots and a row limit the speed: one (powers of two; groups of 64 and
// more) gives 8 / 9 of the peak, two give 8 / 10, and three (additive zeros; groups of 16) 8 / 11.
// Lookups (FP4) take a pipe of the dot products half of the time: 96 dot products, 12 FMA and 8
// lookups for 12 rows give 0.86 of the peak. Two sets of sums leave room for 12 rows, three for 8.
#if defined(__x86_64__)

#include "backends/cpu/x86/avx512_int8_paired_scales.h"
#include "backends/cpu/x86/avx512_int8_reading.h"
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

template <CodeKind kCode, Reading kReading>
MARLIN_AVX512 void dequantize(const PanelArgs& args, const uint8_t* super, int blocks,
                              Int8ScaleChunk& out) {
  const SuperShape shape(*args.layout);
  const bool expands = DenseCodes<kCode, kReading>::kMayBeExpanded && shape.expands;
  out.codes = expands ? out.expanded.supers[0].bytes : super;
  out.super_bytes = expands ? int64_t{sizeof(ExpandedCodes<kCode>)} : shape.bytes;
  out.shift = shape.shift - 1;
  for (int s = 0; s < blocks / kBlocksPerSuper; ++s) {
    shape.fetch_scales(super + s * shape.bytes);
    if constexpr (kReading == Reading::bytes)
      (args.layout->code_bits == 5
           ? join_in_l1<kCode, 1>
           : join_in_l1<kCode, 2>)(super + s * shape.bytes, out.expanded.supers[s].bytes);
    else if (expands)
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

/// sum + w * the 4 activations at x. This is assembly because g++ 12 would broadcast with a
/// separate instruction.
MARLIN_AVX512_VNNI MARLIN_INLINE void dot_broadcast(__m512i& sum, __m512i w, const uint32_t* x) {
  __asm__("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(sum) : "v"(w), "m"(*x));
}

/// sum += a * the float at x, in the same way.
MARLIN_AVX512 MARLIN_INLINE void add_broadcast(__m512& sum, __m512 a, const float* x) {
  __asm__("vfmadd231ps %2%{1to16%}, %1, %0" : "+v"(sum) : "v"(a), "m"(*x));
}

/// The initial value of the sums of a block, which corrects the offset of unsigned codes.
template <class Dense>
MARLIN_AVX512 MARLIN_INLINE __m512i start_of(const uint32_t* sum) {
  if constexpr (!Dense::kAdditive) return broadcast(sum);
  return Dense::kUncorrected == 0
             ? _mm512_setzero_si512()
             : _mm512_set1_epi32(-Dense::kUncorrected * static_cast<int>(*sum));
}

/// The vectors of 16 columns at a time: as many as hide the 4 cycles of vpdpbusd (Zen 5 starts
/// two).
template <int kRows>
inline constexpr int kWide = kRows <= 4 ? 2 : 1;
template <int kRows>
using IntegerSums = __m512i[kWide<kRows>][kRows];
template <int kRows>
using FloatSums = __m512[kWide<kRows>][kRows];

/// Multiplies octet kOctet of kWide column groups, from `group` on, of a block.
template <class Dense, int kRows, int kOctet>
MARLIN_AVX512_VNNI MARLIN_INLINE void dot_octet(const uint8_t* group, const uint32_t* offsets,
                                                const uint32_t* a_block, int64_t ahead,
                                                IntegerSums<kRows>& dot) {
  const uint32_t* const x = a_block + 2 * kOctet * kRegdecodeRows;
#pragma GCC unroll 2
  for (int i = 0; i < kWide<kRows>; ++i) {
    const uint8_t* const from = group + i * Dense::kBytes;
    const Codes codes =
        Dense::template read<kOctet>(from, _mm512_load_si512(offsets + i * kGroupColumns));
    if (ahead != 0) Dense::template fetch<kOctet>(from, ahead);
    const __m512i low = Dense::template quad<kOctet, 0>(codes);
#pragma GCC unroll 12
    for (int r = 0; r < kRows; ++r) dot_broadcast(dot[i][r], low, x + r);
    const __m512i high = Dense::template quad<kOctet, 1>(codes);
#pragma GCC unroll 12
    for (int r = 0; r < kRows; ++r) dot_broadcast(dot[i][r], high, x + kRegdecodeRows + r);
  }
  fence();
}

/// The sums of half `part` of a block, or of the whole block (kParts 1). `start` are the sums of
/// the activations of the rows.
template <class Dense, int kRows, int kParts, int kPart>
MARLIN_AVX512_VNNI MARLIN_INLINE void dot_octets(const uint8_t* group, const uint32_t* offsets,
                                                 const uint32_t* a_block, const uint32_t* start,
                                                 int64_t ahead, IntegerSums<kRows>& dot) {
#pragma GCC unroll 12
  for (int r = 0; r < kRows; ++r) {
    const __m512i first = start_of<Dense>(start + r);
#pragma GCC unroll 2
    for (int i = 0; i < kWide<kRows>; ++i) dot[i][r] = first;
  }
  constexpr int kFirst = 2 * kPart;
  dot_octet<Dense, kRows, kFirst>(group, offsets, a_block, ahead, dot);
  dot_octet<Dense, kRows, kFirst + 1>(group, offsets, a_block, ahead, dot);
  if constexpr (kParts == 1) {
    dot_octet<Dense, kRows, 2>(group, offsets, a_block, ahead, dot);
    dot_octet<Dense, kRows, 3>(group, offsets, a_block, ahead, dot);
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

/// What follows from the sums of the activations of a chunk, in advance: with additive zeros their
/// products with d, for planes of codes the initial values of integer sums. This saves up to three
/// instructions for each row, block and column group.
template <class Dense, int kParts>
struct alignas(64) ChunkSums {
  static constexpr bool kShifts = !Dense::kAdditive && Dense::kSumShift != 0;
  union {
    float times_d[kParts * kRegdecodeBlocks][16];  ///< [block and half][row]
    uint32_t start[kParts * kRegdecodeBlocks][16];
  };

  MARLIN_AVX512 MARLIN_INLINE ChunkSums(const Tile& tile, int rows) {
    if constexpr (!Dense::kAdditive && !kShifts) return;
    const auto mask = static_cast<__mmask16>((1 << rows) - 1);
    for (int i = 0; i < kParts * tile.blocks; ++i) {
      const uint32_t* const d = tile.a_block + (i / kParts * (9 + kParts) + 8) * kRegdecodeRows;
      const __m512i sum = _mm512_maskz_loadu_epi32(mask, d + (1 + i % kParts) * kRegdecodeRows);
      if constexpr (kShifts)
        _mm512_store_si512(start[i], _mm512_srai_epi32(sum, Dense::kSumShift));
      else
        _mm512_store_ps(times_d[i],
                        _mm512_mul_ps(_mm512_cvtepi32_ps(sum), _mm512_maskz_loadu_ps(mask, d)));
    }
  }
};

/// A block of one tile, and the column groups that are multiplied at a time.
template <class Dense, int kParts>
struct BlockOfTile {
  const Tile& tile;
  const ChunkSums<Dense, kParts>& sums;
  int b, v;
  const uint32_t* a_block;
  const uint8_t* group;  ///< the codes

  MARLIN_INLINE const uint32_t* d() const { return a_block + 8 * kRegdecodeRows; }
  /// The row of scales for half `part`.
  MARLIN_INLINE int scale_row(int part) const {
    return kParts == 2 ? 2 * b + part : b >> tile.chunk.shift;
  }
  /// The integer sums of half kPart, or of the whole block (kParts 1).
  template <int kPart, int kRows>
  MARLIN_AVX512_VNNI MARLIN_INLINE void dot_part(IntegerSums<kRows>& dot) const {
    const uint32_t* start = d() + (1 + kPart) * kRegdecodeRows;
    if constexpr (ChunkSums<Dense, kParts>::kShifts) start = sums.start[kParts * b + kPart];
    dot_octets<Dense, kRows, kParts, kPart>(group, &tile.chunk.offset[scale_row(kPart)][16 * v],
                                            a_block, start, tile.ahead, dot);
  }
  /// Adds the additive zeros of half kPart to the sums of rows in column group v + i.
  template <int kPart, int kRows>
  MARLIN_AVX512 MARLIN_INLINE void add_zeros(int i, FloatSums<kRows>& acc) const {
    if constexpr (Dense::kAdditive) {
      const __m512 zero = _mm512_load_ps(&tile.chunk.zero[scale_row(kPart)][16 * (v + i)]);
#pragma GCC unroll 12
      for (int r = 0; r < kRows; ++r)
        add_broadcast(acc[i][r], zero, &sums.times_d[kParts * b + kPart][r]);
    }
  }
  MARLIN_AVX512 MARLIN_INLINE __m512 scale(int part, int i) const {
    return _mm512_load_ps(&tile.chunk.scale[scale_row(part)][16 * (v + i)]);
  }
};

/// Multiplies half kPart of a block, or the whole block (kParts 1), and scales the sums.
template <int kPart, Factor kFactor, int kRows, class Block>
MARLIN_AVX512_VNNI MARLIN_INLINE void multiply_part(const Block& block, FloatSums<kRows>& acc) {
  IntegerSums<kRows> dot;
  block.template dot_part<kPart, kRows>(dot);
#pragma GCC unroll 2
  for (int i = 0; i < kWide<kRows>; ++i) {
    block.template add_zeros<kPart, kRows>(i, acc);
    const RowFactor<kFactor> factor(block.scale(kPart, i));
#pragma GCC unroll 12
    for (int r = 0; r < kRows; ++r)
      acc[i][r] =
          _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot[i][r]), factor.times(block.d() + r), acc[i][r]);
  }
  fence();
}

/// Multiplies both halves of a block, adds their products with their scales, and multiplies by d.
/// This is three multiplications for two groups, where multiply_part takes four.
template <int kRows, class Block>
MARLIN_AVX512_VNNI MARLIN_INLINE void multiply_both(const Block& block, FloatSums<kRows>& acc) {
  FloatSums<kRows> scaled;
  IntegerSums<kRows> dot;
  block.template dot_part<0, kRows>(dot);
#pragma GCC unroll 2
  for (int i = 0; i < kWide<kRows>; ++i) {
    block.template add_zeros<0, kRows>(i, acc);
#pragma GCC unroll 12
    for (int r = 0; r < kRows; ++r)
      scaled[i][r] = _mm512_mul_ps(_mm512_cvtepi32_ps(dot[i][r]), block.scale(0, i));
  }
  fence();
  block.template dot_part<1, kRows>(dot);
#pragma GCC unroll 2
  for (int i = 0; i < kWide<kRows>; ++i) {
    block.template add_zeros<1, kRows>(i, acc);
#pragma GCC unroll 12
    for (int r = 0; r < kRows; ++r) {
      scaled[i][r] =
          _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot[i][r]), block.scale(1, i), scaled[i][r]);
      add_broadcast(acc[i][r], scaled[i][r], reinterpret_cast<const float*>(block.d() + r));
    }
  }
  fence();
}

/// Multiplies kRows rows by 64 columns, a few vectors at a time. Every block (of 16 slots with
/// kParts = 2) is scaled; with kBoth, by multiply_both.
template <class Dense, int kParts, Factor kFactor, int kRows, bool kBoth = false>
MARLIN_AVX512_VNNI [[gnu::noinline]] void multiply_blocks(const Tile& tile) {
  constexpr int kABlock = (9 + kParts) * kRegdecodeRows;
  const ChunkSums<Dense, kParts> sums(tile, kRows);
  for (int v = 0; v < kColumnGroups; v += kWide<kRows>) {
    BlockOfTile<Dense, kParts> block{tile, sums, 0, v, tile.a_block, nullptr};
    FloatSums<kRows> acc;
#pragma GCC unroll 2
    for (int i = 0; i < kWide<kRows>; ++i) load_sums(tile.first, tile.sums + 16 * (v + i), acc[i]);
    for (; block.b < tile.blocks; ++block.b, block.a_block += kABlock) {
      block.group = tile.chunk.group(block.b, v, Dense::kBytes);
      fetch_later_a_blocks<kABlock>(block.a_block, tile.blocks * kABlock, v);
      if constexpr (Dense::kMayBeExpanded)
        for (int i = 0; i < kWide<kRows>; ++i) tile.later.fetch(block.b, v + i);
      if constexpr (kBoth) {
        multiply_both<kRows>(block, acc);
      } else {
        multiply_part<0, kFactor, kRows>(block, acc);
        if constexpr (kParts == 2) multiply_part<1, kFactor, kRows>(block, acc);
      }
    }
#pragma GCC unroll 2
    for (int i = 0; i < kWide<kRows>; ++i) store_sums(acc[i], tile.sums + 16 * (v + i));
  }
}

/// The same for groups of 64 and more: d multiplies the integer sums of a block, and the scale
/// multiplies the sums of a group. There are three sets of sums.
template <class Dense, int kRows>
MARLIN_AVX512_VNNI [[gnu::noinline]] void multiply_groups(const Tile& tile) {
  constexpr int kABlock = 10 * kRegdecodeRows, kSets = kWide<kRows>;
  const Int8ScaleChunk& chunk = tile.chunk;
  const int length = 1 << chunk.shift;
  const ChunkSums<Dense, 1> sums(tile, kRows);
  for (int v = 0; v < kColumnGroups; v += kSets) {
    const uint32_t* a_block = tile.a_block;
    FloatSums<kRows> acc;
#pragma GCC unroll 2
    for (int i = 0; i < kSets; ++i) load_sums(tile.first, tile.sums + 16 * (v + i), acc[i]);
    for (int b = 0; b < tile.blocks;) {
      const int row = b >> chunk.shift;
      FloatSums<kRows> part;
      float counts[kRows] = {};  // sums times d, which additive zeros multiply
#pragma GCC unroll 2
      for (int i = 0; i < kSets; ++i)
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r) part[i][r] = _mm512_setzero_ps();
      for (const int end = b + length; b < end; ++b, a_block += kABlock) {
        const uint32_t* const d = a_block + 8 * kRegdecodeRows;
        const uint32_t* start = d + kRegdecodeRows;
        if constexpr (ChunkSums<Dense, 1>::kShifts) start = sums.start[b];
        IntegerSums<kRows> dot;
        fetch_later_a_blocks<kABlock>(a_block, tile.blocks * kABlock, v);
        if constexpr (Dense::kMayBeExpanded)
          for (int i = 0; i < kSets; ++i) tile.later.fetch(b, v + i);
        dot_octets<Dense, kRows, 1, 0>(chunk.group(b, v, Dense::kBytes), &chunk.offset[row][16 * v],
                                       a_block, start, tile.ahead, dot);
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r) {
          if constexpr (Dense::kAdditive) counts[r] += sums.times_d[b][r];
#pragma GCC unroll 2
          for (int i = 0; i < kSets; ++i)
            part[i][r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot[i][r]),
                                         _mm512_castsi512_ps(broadcast(d + r)), part[i][r]);
        }
        fence();
      }
#pragma GCC unroll 2
      for (int i = 0; i < kSets; ++i) {
        const __m512 scale = _mm512_load_ps(&chunk.scale[row][16 * (v + i)]);
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r) {
          if constexpr (Dense::kAdditive)
            acc[i][r] = _mm512_fmadd_ps(_mm512_set1_ps(counts[r]),
                                        _mm512_load_ps(&chunk.zero[row][16 * (v + i)]), acc[i][r]);
          acc[i][r] = _mm512_fmadd_ps(part[i][r], scale, acc[i][r]);
        }
      }
    }
#pragma GCC unroll 2
    for (int i = 0; i < kSets; ++i) store_sums(acc[i], tile.sums + 16 * (v + i));
  }
}

/// The same for FP4 with E4M3 scales in groups of 16, if they fit in pairs. The sums of both groups
/// of a block, below 2^15, become the halves of a dword, and one vpmaddwd multiplies them by two
/// scales and adds them. There are three sets of sums.
template <Factor kFactor, int kRows>
MARLIN_AVX512_VNNI [[gnu::noinline]] void multiply_paired(const Tile& tile) {
  using Dense = DenseCodes<CodeKind::fp4, Reading::lines>;
  constexpr int kABlock = 11 * kRegdecodeRows, kSets = kWide<kRows>;
  const Int8ScaleChunk& chunk = tile.chunk;
  const RowFactor<kFactor> factor(_mm512_set1_ps(std::bit_cast<float>(chunk.largest)));
  for (int v = 0; v < kColumnGroups; v += kSets) {
    const uint32_t* a_block = tile.a_block;
    FloatSums<kRows> acc;
#pragma GCC unroll 2
    for (int i = 0; i < kSets; ++i) load_sums(tile.first, tile.sums + 16 * (v + i), acc[i]);
    for (int b = 0; b < tile.blocks; ++b, a_block += kABlock) {
      const uint8_t* const group = chunk.group(b, v, Dense::kBytes);
      const uint32_t* const d = a_block + 8 * kRegdecodeRows;
      fetch_later_a_blocks<kABlock>(a_block, tile.blocks * kABlock, v);
      IntegerSums<kRows> low, high;
      dot_octets<Dense, kRows, 2, 0>(group, chunk.pairs[0], a_block, d + kRegdecodeRows, tile.ahead,
                                     low);
      dot_octets<Dense, kRows, 2, 1>(group, chunk.pairs[0], a_block, d + 2 * kRegdecodeRows,
                                     tile.ahead, high);
#pragma GCC unroll 2
      for (int i = 0; i < kSets; ++i) {
        const __m512i integers = _mm512_load_si512(&chunk.pairs[b][16 * (v + i)]);
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r) {
          const __m512i both =
              _mm512_mask_blend_epi16(0xaaaaaaaau, low[i][r], _mm512_slli_epi32(high[i][r], 16));
          acc[i][r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(_mm512_madd_epi16(both, integers)),
                                      factor.times(d + r), acc[i][r]);
        }
      }
      fence();
    }
#pragma GCC unroll 2
    for (int i = 0; i < kSets; ++i) store_sums(acc[i], tile.sums + 16 * (v + i));
  }
}

/// The slow step for products that might overflow, one row at a time.
template <class One>
void row_by_row(const Tile& tile, int rows, One one) {
  for (int r = 0; r < rows; ++r) one(r, tile.from_row(r, r == 0));
}

template <CodeKind kCode, Reading kReading>
void multiply_tile(const PanelArgs& args, const Tile& tile, int rows, const float* row_stats) {
  using Dense = DenseCodes<kCode, kReading>;
  const Int8ScaleChunk& chunk = tile.chunk;
  const int group = args.layout->slot_group;
  if (group > kBlockSlots && !args.block_by_block) {
    if (*std::max_element(row_stats, row_stats + rows) <= kOverflowProne)
      return in_halves<8>(tile, rows,
                          []<int kRows>(const Tile& part) { multiply_groups<Dense, kRows>(part); });
    return row_by_row(tile, rows, [&](int r, const Tile& row) {
      row_stats[r] > kOverflowProne ? multiply_blocks<Dense, 1, Factor::finite, 1>(row)
                                    : multiply_groups<Dense, 1>(row);
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
          rows, [&]<int kRows>() { multiply_blocks<Dense, 1, Factor::exponents, kRows>(tile); });
  }
  // The sums of a block times such scales are finite, and so d needs no care.
  constexpr float kModerate = 0x1p100f;
  if (group < kBlockSlots && !args.block_by_block &&
      chunk.largest <= std::bit_cast<uint32_t>(kModerate))
    return in_halves<8>(tile, rows, []<int kRows>(const Tile& part) {
      multiply_blocks<Dense, 2, Factor::product, kRows, true>(part);
    });
  const bool finite = holds(ScaleRange::of<false>(row_stats, kRegdecodeRows));
  const auto blocks = [&]<int kParts>() {
    if (finite)
      return dispatch_rows<kRegdecodeRows>(
          rows, [&]<int kRows>() { multiply_blocks<Dense, kParts, Factor::product, kRows>(tile); });
    row_by_row(tile, rows, [](int, const Tile& row) {
      multiply_blocks<Dense, kParts, Factor::finite, 1>(row);
    });
  };
  group >= kBlockSlots ? blocks.template operator()<1>() : blocks.template operator()<2>();
}

/// From so many tiles on, planes are joined once in L1, and not for every tile in registers (AMD
/// Zen 4: 3 tiles of 6 bits gain 3 %, 11 tiles 11 %; 11 tiles of 5 bits 2 %).
template <int kHigh>
inline constexpr int64_t kManyTiles = kHigh == 1 ? 6 : 3;

}  // namespace

void cpu_avx512vnni_regdecode_any_i8(const PanelArgs& args) {
  with_dense_codes(args, [&]<CodeKind kCode, Reading kReading>() {
    constexpr int kHigh = DenseCodes<kCode, kReading>::kHigh;
    if constexpr (kHigh != 0)
      if (args.tile_end - args.tile_begin >= kManyTiles<kHigh>)
        return walk_regdecode<Int8ScaleChunk, dequantize<kCode, Reading::bytes>,
                              multiply_tile<kCode, Reading::bytes>>(args);
    walk_regdecode<Int8ScaleChunk, dequantize<kCode, kReading>, multiply_tile<kCode, kReading>>(
        args);
  });
}

}  // namespace metal_marlin::cpu

#endif
