// INT8 compute of dense weights by register-decoded tiles (avx512_regdecode.h).
//
//   packed stream         registers, for one column group (4 rows and fewer: two)
//   octet of codes   ---> low, high  unsigned bytes, a dword per column: 4 slots each
//                                    (avx512_int8.h)
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
// The functions and their template parameters (kReading: avx512_int8.h). Files have these
// forms; multiply_rare() expands the codes of others, and of scales or rows whose products might
// overflow, to bytes in L1:
//   multiply_blocks  groups of 32, any reading, kFactor product (looked_up with E8M0 scales:
//                    exponents), kRows 2, 4, .. 12. kBoth with groups of 16, six_bits and bytes,
//                    moderate scales and kRows 2, 4, 6, 8. Rare: bytes in groups of 16 (kParts 2)
//                    with kRows 2, 4, 6; finite with kRows 1
//   multiply_groups  groups of 64 and 128, any reading but looked_up, kRows 2, 4, 6, 8. Rare: bytes
//                    with kRows 1, beside overflow-prone rows
//   multiply_paired  FP4 with E4M3 scales in pairs; exponents with kRows 2 to 8, finite with 1
//
// Limits: vpdpbusd and all multiplications share two pipes, so the multiplications beside the 8 dot
// products of a block of 32 slots and a row limit the speed: one (powers of two; groups of 64 and
// more) gives 8 / 9 of the peak, two give 8 / 10, and three (additive zeros; groups of 16) 8 / 11.
// Lookups (FP4) take a pipe of the dot products half of the time: 96 dot products, 12 FMA and 8
// lookups for 12 rows give 0.86 of the peak. Two sets of sums leave room for 12 rows, three for 8.
#if defined(__x86_64__)

#include "backends/cpu/x86/avx512_int8_chunk.h"

namespace metal_marlin::cpu {
namespace {

using Tile = Int8Tile;

/// sum + w * the 4 activations of dword kDword of a packed A block. This is assembly because g++ 12
/// would broadcast with a separate instruction, and would keep each place in a register of its own.
template <int kDword>
MARLIN_AVX512_VNNI MARLIN_INLINE void dot_broadcast(__m512i& sum, __m512i w,
                                                    const uint32_t* a_block) {
  __asm__("vpdpbusd %c3(%2)%{1to16%}, %1, %0"
          : "+v"(sum)
          : "v"(w), "r"(a_block), "i"(4 * kDword),
            "m"(*reinterpret_cast<const uint32_t(*)[8 * kRegdecodeRows]>(a_block)));
}
/// The same for all rows, whose dwords follow kFirst.
template <int kFirst, int kRows, int... kRow>
MARLIN_AVX512_VNNI MARLIN_INLINE void dot_rows(std::integer_sequence<int, kRow...>, __m512i w,
                                               const uint32_t* a_block, __m512i (&sum)[kRows]) {
  (dot_broadcast<kFirst + kRow>(sum[kRow], w, a_block), ...);
}

/// sum += a * the float at x, in the same way.
MARLIN_AVX512 MARLIN_INLINE void add_broadcast(__m512& sum, __m512 a, const float* x) {
  __asm__("vfmadd231ps %2%{1to16%}, %1, %0" : "+v"(sum) : "v"(a), "m"(*x));
}

/// The vectors of 16 columns at a time: as many as hide the 4 cycles of vpdpbusd (Zen 5 starts
/// two).
template <int kRows>
inline constexpr int kWide = kRows <= 4 ? 2 : 1;
template <int kRows>
using IntegerSums = __m512i[kWide<kRows>][kRows];
template <int kRows>
using FloatSums = __m512[kWide<kRows>][kRows];

/// What an octet of kWide column groups is read from.
struct OctetArgs {
  const uint8_t* group;
  const uint32_t* offsets;  ///< of integer zeros
  const uint32_t* a_block;
  int64_t ahead;
  __m512i table;
};

/// Multiplies octet kOctet of a block.
template <Reading kReading, int kRows, int kOctet>
MARLIN_AVX512_VNNI MARLIN_INLINE void dot_octet(const OctetArgs& args, IntegerSums<kRows>& dot) {
  using Dense = DenseCodes<kReading>;
  constexpr auto kAll = std::make_integer_sequence<int, kRows>{};
  constexpr int kFirst = 2 * kOctet * kRegdecodeRows;
  MARLIN_UNROLLED(i, kWide<kRows>) {
    const uint8_t* const from = args.group + i * Dense::kBytes;
    const Codes codes =
        Dense::template read<kOctet>(from, _mm512_load_si512(args.offsets + i * kGroupColumns));
    if (args.ahead != 0) Dense::fetch(from, kOctet, args.ahead);
    const __m512i low = Dense::template quad<kOctet, 0>(codes, args.table);
    dot_rows<kFirst>(kAll, low, args.a_block, dot[i]);
    const __m512i high = Dense::template quad<kOctet, 1>(codes, args.table);
    dot_rows<kFirst + kRegdecodeRows>(kAll, high, args.a_block, dot[i]);
  }
  fence();
}

/// The sums of half `part` of a block, or of the whole block (kParts 1), from `start` on, a dword
/// for each row.
template <Reading kReading, int kRows, int kParts, int kPart>
MARLIN_AVX512_VNNI MARLIN_INLINE void dot_octets(const OctetArgs& args, const uint32_t* start,
                                                 IntegerSums<kRows>& dot) {
  MARLIN_UNROLLED(r, kRows) {
    const __m512i first = broadcast(start + r);
    MARLIN_UNROLLED(i, kWide<kRows>) dot[i][r] = first;
  }
  constexpr int kFirst = 2 * kPart;
  dot_octet<kReading, kRows, kFirst>(args, dot);
  dot_octet<kReading, kRows, kFirst + 1>(args, dot);
  if constexpr (kParts == 1) {
    dot_octet<kReading, kRows, 2>(args, dot);
    dot_octet<kReading, kRows, 3>(args, dot);
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
    return factor_of<kFactor>(scale, broadcast_float(d));
  }
  __m512 scale;
};

/// A block of one tile, and the column groups that are multiplied at a time.
template <Reading kReading, int kParts>
struct BlockOfTile {
  const Tile& tile;
  const ChunkSums<kReading, kParts>& sums;
  __m512i table;
  int b, v;
  const uint32_t *a_block, *start;
  const uint8_t* group;  ///< the codes

  MARLIN_INLINE const uint32_t* d() const { return a_block + 8 * kRegdecodeRows; }
  /// The row of scales for half `part`.
  MARLIN_INLINE int scale_row(int part) const {
    return kParts == 2 ? 2 * b + part : b >> tile.chunk.shift;
  }
  /// The integer sums of half kPart, or of the whole block (kParts 1).
  template <int kPart, int kRows>
  MARLIN_AVX512_VNNI MARLIN_INLINE void dot_part(IntegerSums<kRows>& dot) const {
    dot_octets<kReading, kRows, kParts, kPart>(
        {group, &tile.chunk.offset[scale_row(kPart)][16 * v], a_block, tile.ahead, table},
        start + kPart * kRegdecodeRows, dot);
  }
  /// Adds the additive zeros of half kPart to the sums of rows in column group v + i.
  template <int kPart, int kRows>
  MARLIN_AVX512 MARLIN_INLINE void add_zeros(int i, FloatSums<kRows>& acc) const {
    if (!tile.codes.additive) return;
    const __m512 zero = _mm512_load_ps(&tile.chunk.zero[scale_row(kPart)][16 * (v + i)]);
    MARLIN_UNROLLED(r, kRows) add_broadcast(acc[i][r], zero, &sums.times_d[kParts * b + kPart][r]);
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
  MARLIN_UNROLLED(i, kWide<kRows>) {
    block.template add_zeros<kPart, kRows>(i, acc);
    const RowFactor<kFactor> factor(block.scale(kPart, i));
    MARLIN_UNROLLED(r, kRows)
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
  MARLIN_UNROLLED(i, kWide<kRows>) {
    block.template add_zeros<0, kRows>(i, acc);
    MARLIN_UNROLLED(r, kRows)
      scaled[i][r] = _mm512_mul_ps(_mm512_cvtepi32_ps(dot[i][r]), block.scale(0, i));
  }
  fence();
  block.template dot_part<1, kRows>(dot);
  MARLIN_UNROLLED(i, kWide<kRows>) {
    block.template add_zeros<1, kRows>(i, acc);
    MARLIN_UNROLLED(r, kRows) {
      scaled[i][r] =
          _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot[i][r]), block.scale(1, i), scaled[i][r]);
      add_broadcast(acc[i][r], scaled[i][r], reinterpret_cast<const float*>(block.d() + r));
    }
  }
  fence();
}

/// Multiplies kRows rows by 64 columns, a few vectors at a time. Every block (of 16 slots with
/// kParts = 2) is scaled; with kBoth, by multiply_both.
template <Reading kReading, int kParts, Factor kFactor, int kRows, bool kBoth = false>
MARLIN_AVX512_VNNI [[gnu::noinline]] void multiply_blocks(const Tile& tile) {
  constexpr int kABlock = (9 + kParts) * kRegdecodeRows, kBytes = DenseCodes<kReading>::kBytes;
  const ChunkSums<kReading, kParts> sums(tile, kRows);
  const __m512i table = _mm512_load_si512(tile.codes.table);
  for (int v = 0; v < kColumnGroups; v += kWide<kRows>) {
    BlockOfTile<kReading, kParts> block{tile, sums, table, 0, v, tile.a_block, sums.first, nullptr};
    FloatSums<kRows> acc;
    MARLIN_UNROLLED(i, kWide<kRows>) load_sums(tile.first, tile.sums + 16 * (v + i), acc[i]);
    for (; block.b < tile.blocks; ++block.b) {
      if (block.b % kBlocksPerSuper == 0) block.group = tile.codes.group(block.b, v, kBytes);
      fetch_later_a_blocks<kABlock>(block.a_block, tile.blocks * kABlock, v);
      if constexpr (kReading == Reading::bytes)
        for (int i = 0; i < kWide<kRows>; ++i) tile.later.fetch(block.b, v + i);
      if constexpr (kBoth) {
        multiply_both<kRows>(block, acc);
      } else {
        multiply_part<0, kFactor, kRows>(block, acc);
        if constexpr (kParts == 2) multiply_part<1, kFactor, kRows>(block, acc);
      }
      block.group += kColumnGroups * kBytes;
      block.a_block += kABlock;
      block.start += sums.stride;
    }
    MARLIN_UNROLLED(i, kWide<kRows>) store_sums(acc[i], tile.sums + 16 * (v + i));
  }
}

/// The same for groups of 64 and more: d multiplies the integer sums of a block, and the scale
/// multiplies the sums of a group. There are three sets of sums.
template <Reading kReading, int kRows>
MARLIN_AVX512_VNNI [[gnu::noinline]] void multiply_groups(const Tile& tile) {
  constexpr int kABlock = 10 * kRegdecodeRows, kSets = kWide<kRows>;
  constexpr int kBytes = DenseCodes<kReading>::kBytes;
  const Int8ScaleChunk& chunk = tile.chunk;
  const int length = 1 << chunk.shift;
  const ChunkSums<kReading, 1> sums(tile, kRows, chunk.shift);
  const __m512i table = _mm512_load_si512(tile.codes.table);
  for (int v = 0; v < kColumnGroups; v += kSets) {
    const uint32_t *a_block = tile.a_block, *start = sums.first;
    FloatSums<kRows> acc;
    MARLIN_UNROLLED(i, kSets) load_sums(tile.first, tile.sums + 16 * (v + i), acc[i]);
    for (int b = 0; b < tile.blocks;) {
      const int row = b >> chunk.shift;
      const uint8_t* codes = tile.codes.group(b, v, kBytes);
      const uint32_t* const offsets = &chunk.offset[row][16 * v];
      FloatSums<kRows> part;
      MARLIN_UNROLLED_2(i, kSets, r, kRows) part[i][r] = _mm512_setzero_ps();
      for (const int end = b + length; b < end; ++b) {
        const uint32_t* const d = a_block + 8 * kRegdecodeRows;
        IntegerSums<kRows> dot;
        fetch_later_a_blocks<kABlock>(a_block, tile.blocks * kABlock, v);
        if constexpr (kReading == Reading::bytes)
          for (int i = 0; i < kSets; ++i) tile.later.fetch(b, v + i);
        dot_octets<kReading, kRows, 1, 0>({codes, offsets, a_block, tile.ahead, table}, start, dot);
        MARLIN_UNROLLED_2(r, kRows, i, kSets)
          part[i][r] =
              _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot[i][r]), broadcast_float(d + r), part[i][r]);
        fence();
        codes += kColumnGroups * kBytes;
        a_block += kABlock;
        start += sums.stride;
      }
      MARLIN_UNROLLED(i, kSets) {
        if (tile.codes.additive) {
          const __m512 zero = _mm512_load_ps(&chunk.zero[row][16 * (v + i)]);
          MARLIN_UNROLLED(r, kRows) add_broadcast(acc[i][r], zero, &sums.times_d[row][r]);
        }
        const __m512 scale = _mm512_load_ps(&chunk.scale[row][16 * (v + i)]);
        MARLIN_UNROLLED(r, kRows) acc[i][r] = _mm512_fmadd_ps(part[i][r], scale, acc[i][r]);
      }
    }
    MARLIN_UNROLLED(i, kSets) store_sums(acc[i], tile.sums + 16 * (v + i));
  }
}

/// The same for FP4 with E4M3 scales in groups of 16, if they fit in pairs. The sums of both groups
/// of a block, below 2^15, become the halves of a dword, and one vpmaddwd multiplies them by two
/// scales and adds them. There are three sets of sums.
template <Factor kFactor, int kRows>
MARLIN_AVX512_VNNI [[gnu::noinline]] void multiply_paired(const Tile& tile) {
  constexpr Reading kReading = Reading::looked_up;
  constexpr int kABlock = 11 * kRegdecodeRows, kSets = kWide<kRows>;
  const Int8ScaleChunk& chunk = tile.chunk;
  const __m512i table = _mm512_load_si512(tile.codes.table);
  const RowFactor<kFactor> factor(_mm512_set1_ps(std::bit_cast<float>(chunk.largest)));
  for (int v = 0; v < kColumnGroups; v += kSets) {
    const uint32_t* a_block = tile.a_block;
    FloatSums<kRows> acc;
    MARLIN_UNROLLED(i, kSets) load_sums(tile.first, tile.sums + 16 * (v + i), acc[i]);
    for (int b = 0; b < tile.blocks; ++b, a_block += kABlock) {
      const OctetArgs octets{tile.codes.group(b, v, DenseCodes<kReading>::kBytes), chunk.pairs[0],
                             a_block, tile.ahead, table};
      const uint32_t* const d = a_block + 8 * kRegdecodeRows;
      fetch_later_a_blocks<kABlock>(a_block, tile.blocks * kABlock, v);
      IntegerSums<kRows> low, high;
      dot_octets<kReading, kRows, 2, 0>(octets, d + kRegdecodeRows, low);
      dot_octets<kReading, kRows, 2, 1>(octets, d + 2 * kRegdecodeRows, high);
      MARLIN_UNROLLED(i, kSets) {
        const __m512i integers = _mm512_load_si512(&chunk.pairs[b][16 * (v + i)]);
        MARLIN_UNROLLED(r, kRows) {
          const __m512i both =
              _mm512_mask_blend_epi16(0xaaaaaaaau, low[i][r], _mm512_slli_epi32(high[i][r], 16));
          acc[i][r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(_mm512_madd_epi16(both, integers)),
                                      factor.times(d + r), acc[i][r]);
        }
      }
      fence();
    }
    MARLIN_UNROLLED(i, kSets) store_sums(acc[i], tile.sums + 16 * (v + i));
  }
}

/// The slow step for products that might overflow, one row at a time.
template <class One>
void row_by_row(const Tile& tile, int rows, One one) {
  for (int r = 0; r < rows; ++r) one(r, tile.from_row(r, r == 0));
}

void multiply_pairs(const Tile& tile, int rows, const float* row_stats) {
  if (ScaleRange::of<true>(row_stats, kRegdecodeRows)
          .holds(tile.chunk.smallest, tile.chunk.largest))
    return in_halves<8>(tile, rows, []<int kRows>(const Tile& part) {
      multiply_paired<Factor::exponents, kRows>(part);
    });
  row_by_row(tile, rows, [](int, const Tile& row) { multiply_paired<Factor::finite, 1>(row); });
}

/// Multiplies a form that files have, and whose products do not overflow. Returns false for others.
template <Reading kReading>
bool multiply_usual(const PanelArgs& args, const Tile& tile, int rows, const float* row_stats) {
  const Int8ScaleChunk& chunk = tile.chunk;
  const int group = args.layout->slot_group;
  if (group > kBlockSlots && !args.block_by_block) {
    if (*std::max_element(row_stats, row_stats + rows) > kOverflowProne) return false;
    if constexpr (kReading != Reading::looked_up)
      in_halves<8>(tile, rows,
                   []<int kRows>(const Tile& part) { multiply_groups<kReading, kRows>(part); });
    return kReading != Reading::looked_up;
  }
  const auto holds = [&](const ScaleRange& range) {
    return range.holds(chunk.smallest, chunk.largest);
  };
  if (group < kBlockSlots) {
    // The sums of a block times such scales are finite, and so d needs no care.
    constexpr float kModerate = 0x1p100f;
    if (args.block_by_block || chunk.largest > std::bit_cast<uint32_t>(kModerate)) return false;
    if constexpr (kReading == Reading::six_bits || kReading == Reading::bytes) {
      in_halves<8>(tile, rows, []<int kRows>(const Tile& part) {
        multiply_blocks<kReading, 2, Factor::product, kRows, true>(part);
      });
      return true;
    }
    return false;
  }
  if constexpr (kReading == Reading::looked_up)
    if (args.layout->scale_type == ScaleType::e8m0 && group == kBlockSlots &&
        holds(ScaleRange::of<true>(row_stats, kRegdecodeRows))) {
      dispatch_rows<kRegdecodeRows>(
          rows, [&]<int kRows>() { multiply_blocks<kReading, 1, Factor::exponents, kRows>(tile); });
      return true;
    }
  if (!holds(ScaleRange::of<false>(row_stats, kRegdecodeRows))) return false;
  dispatch_rows<kRegdecodeRows>(
      rows, [&]<int kRows>() { multiply_blocks<kReading, 1, Factor::product, kRows>(tile); });
  return true;
}

/// Multiplies any form, whose codes are bytes now.
void multiply_rare(const PanelArgs& args, const Tile& tile, int rows, const float* row_stats) {
  constexpr Reading kBytes = Reading::bytes;
  if (multiply_usual<kBytes>(args, tile, rows, row_stats)) return;
  const int group = args.layout->slot_group;
  if (group > kBlockSlots && !args.block_by_block)
    return row_by_row(tile, rows, [&](int r, const Tile& row) {
      row_stats[r] > kOverflowProne ? multiply_blocks<kBytes, 1, Factor::finite, 1>(row)
                                    : multiply_groups<kBytes, 1>(row);
    });
  const bool halves = group < kBlockSlots;
  if (halves && ScaleRange::of<false>(row_stats, kRegdecodeRows)
                    .holds(tile.chunk.smallest, tile.chunk.largest))
    return in_halves<6>(tile, rows, []<int kRows>(const Tile& part) {
      multiply_blocks<kBytes, 2, Factor::product, kRows>(part);
    });
  row_by_row(tile, rows, [&](int, const Tile& row) {
    halves ? multiply_blocks<kBytes, 2, Factor::finite, 1>(row)
           : multiply_blocks<kBytes, 1, Factor::finite, 1>(row);
  });
}

template <Reading kReading>
void multiply_tile(const PanelArgs& args, const RegdecodeTile<Int8ScaleChunk>& of, int rows,
                   const float* row_stats) {
  Tile tile{
      of,
      {of.chunk.codes, of.chunk.super_bytes, table_of_bytes(*args.layout), is_additive(args.code)}};
  if (of.chunk.paired) return multiply_pairs(tile, rows, row_stats);
  if (multiply_usual<kReading>(args, tile, rows, row_stats)) return;
  tile.codes = bytes_of(args, of.chunk, of.blocks);
  if (of.chunk.codes != tile.codes.codes) tile.ahead = 0;
  multiply_rare(args, tile, rows, row_stats);
}

/// From so many tiles on, planes are joined once in L1, and not for every tile in registers (AMD
/// Zen 4: 3 tiles of 6 bits gain 3 %, 11 tiles 11 %; 11 tiles of 5 bits 2 %).
constexpr int64_t many_tiles(Reading reading) { return reading == Reading::five_bits ? 6 : 3; }

}  // namespace

void cpu_avx512vnni_regdecode_any_i8(const PanelArgs& args) {
  Reading reading = reading_of(args);
  if ((reading == Reading::five_bits || reading == Reading::six_bits) &&
      args.tile_end - args.tile_begin >= many_tiles(reading))
    reading = Reading::bytes;
  with_reading(reading, [&]<Reading kReading>() {
    walk_regdecode<Int8ScaleChunk, dequantize_int8_chunk<kReading>, multiply_tile<kReading>>(args);
  });
}

void cpu_avx512vnni_regdecode_any_sparse_i8(const PanelArgs& args) {
  constexpr Reading kBytes = Reading::bytes;
  walk_regdecode<Int8ScaleChunk, dequantize_int8_chunk<kBytes>, multiply_tile<kBytes>>(args);
}

}  // namespace metal_marlin::cpu

#endif
