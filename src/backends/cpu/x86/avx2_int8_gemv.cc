// INT8 compute with AVX2 for few rows. The kernel reads the packed stream once, decodes codes in
// registers, and multiplies them by vpmaddubsw (avx2_int8.h).
//
//   packed stream          registers, for 8 columns
//   half a line      ----> w[v]   8 columns x 4 slots: the low nibbles of every byte (FP4: looked
//                                 up by vpshufb), then the high ones; or the bytes themselves; or
//                                 joined planes, and integers of IQ4 (avx2_reading.h)
//   scales           ----> floats, or bytes and factors of two levels (avx2_scales.h)
//   packed A block   ----> b      4 slots of a row, in all lanes
//   sums (in L1)     <---- sums of a part of a block, scaled
//
//   M: a pass over the panel for each tile of kRows rows. N and K as memory has them: superblock,
//   block, 16 columns (3 rows: 8), part, 16 slots, step of 4 slots. Planes with integer zeros, and
//   scales whose products may overflow, are dequantized as for many rows (avx2_int8.cc).
//
// Template parameters: every kCode of dense weights; how they and their scales are read; kRows 1 to
// 3; kParts 2 with groups of 16, else 1.
//
// Limits: a block of 8 columns takes 32 instructions with one row of 4-bit codes, of which 12 need
// one of two ports. By count that is 14 bytes a cycle, so that memory is the limit.
#if defined(__x86_64__)

#include <algorithm>
#include <bit>

#include "backends/cpu/x86/avx2_int8.h"
#include "backends/cpu/x86/avx2_reading.h"

namespace metal_marlin::cpu {
namespace {

/// Codes of half a block: lines, planes, or indices of IQ4.
template <CodeKind kCode, Avx2Reading kReading>
struct PackedCodes {
  using Planes = PlaneCodes<kReading>;
  const uint8_t* lines;  ///< of the block, from the first column on
  const uint8_t* zeros;  ///< integer zeros, from the first column on
  int half;
  Ahead ahead;

  MARLIN_AVX2 MARLIN_INLINE __m256i operator()(int step, int v) const {
    const int quad = 4 * half + step;
    if (v == 0) fetch_share<Planes::kLines>(lines, quad, ahead);
    return Planes::read(lines, quad, v);
  }
};
template <CodeKind kCode>
struct PackedCodes<kCode, Avx2Reading::lines> {
  using Lines = CodeLines8<kCode, false>;
  const uint8_t *lines, *zeros;
  int half;
  Ahead ahead;

  MARLIN_AVX2 MARLIN_INLINE __m256i operator()(int step, int v) const {
    constexpr int kQuads = 8 / Lines::kLines;  // of a line
    const int quad = 4 * half + step;
    if (v == 0) fetch_share<Lines::kLines>(lines, quad, ahead);
    const Codes8 codes = Lines::read(lines, quad / kQuads, v, zeros + 8 * v);
    if constexpr (is_eight_bits(kCode)) return codes.low;
    return quad % kQuads == 0 ? unsigned_codes<kCode, false, 0>(codes)
                              : unsigned_codes<kCode, false, 1>(codes);
  }
};

/// What multiplication must know of the codes that are read.
template <CodeKind kCode, Avx2Reading kReading>
struct ReadCodes {
  static constexpr int kBytes = PlaneCodes<kReading>::kBytes;
  static constexpr Products products() {
    if (kReading == Avx2Reading::iq4) return Products::signed_bytes;
    return kReading == Avx2Reading::six_bits ? Products::two : Products::four;
  }
  static constexpr Products kProducts = products();
  /// sum_factor (activations.h) is that of codes 128 above their value.
  static constexpr int kSumShift = 8 - PlaneCodes<kReading>::kLines;
};
template <CodeKind kCode>
struct ReadCodes<kCode, Avx2Reading::lines> {
  static constexpr int kBytes = CodeLines8<kCode, false>::kBytes;
  static constexpr Products kProducts =
      is_eight_bits(kCode) ? Products::signed_bytes : Products::four;
  static constexpr int kSumShift = 0;
};

/// A superblock, for multiply_int8_block.
template <CodeKind kCode, Avx2Reading kReading, class Scales>
struct PackedWalk {
  static constexpr Products kProducts = ReadCodes<kCode, kReading>::kProducts;
  static constexpr int kSumShift = ReadCodes<kCode, kReading>::kSumShift;
  const Scales* scales;
  int group_shift;
  const uint8_t *super, *zeros;
  Ahead ahead;

  static constexpr bool adds_zeros() { return metal_marlin::is_additive(kCode); }
  static constexpr bool counts_kept() { return false; }
  static constexpr bool corrected() { return kProducts != Products::signed_bytes && !adds_zeros(); }
  MARLIN_INLINE PackedCodes<kCode, kReading> codes(int b, int half, int column, int group) const {
    const int column_group = b * kColumnGroups + column / kGroupColumns;
    return {super + column_group * ReadCodes<kCode, kReading>::kBytes + column % kGroupColumns * 4,
            zeros + group * kPanelColumns + column, half, ahead};
  }
  MARLIN_INLINE PackedCodes<kCode, kReading> kept(int b, int half, int column) const {
    return codes(b, half, column, 0);
  }
};

/// What all superblocks of a tile share.
struct Tile {
  const PanelLayout* layout;
  int group_shift;
  int64_t ahead;
};

/// Decodes the scales of a superblock. Functions of their own, because several walks share them.
template <CodeKind kCode>
MARLIN_AVX2 [[gnu::noinline]] void decode_scales_of(const PanelLayout& layout, const uint8_t* super,
                                                    Avx2FloatScales& out) {
  decode_float_scales<kCode>(layout, super, code_factor(kCode), out);
}
template <CodeKind kCode>
void decode_scales_of(const PanelLayout& layout, const uint8_t* super, Avx2TwoLevelScales& out) {
  decode_two_level_scales<kCode>(layout, super, out);
}

/// Multiplies a tile by a superblock in the order of memory, which keeps its prefetchers busy.
template <CodeKind kCode, Avx2Reading kReading, class Scales, int kRows, int kParts>
MARLIN_AVX2 void multiply_packed(const Tile& tile, const uint8_t* super, const uint32_t* a_block,
                                 float* sums) {
  constexpr int kVectors = kRows < 3 ? 2 : 1;
  Scales scales;
  decode_scales_of<kCode>(*tile.layout, super, scales);
  const PackedWalk<kCode, kReading, Scales> walk{&scales, tile.group_shift, super,
                                                 super + tile.layout->zeros_offset(),
                                                 Ahead{tile.ahead, kSecondChance}};
  for (int b = 0; b < kBlocksPerSuper; ++b, a_block += kInt8BlockWords<kRows, kParts>)
    for (int column = 0; column < kPanelColumns; column += 8 * kVectors)
      multiply_int8_block<kRows, kVectors, kParts, false>(walk, b, column, a_block, sums + column);
}
using Multiply = void (*)(const Tile&, const uint8_t*, const uint32_t*, float*);

/// One tile and one panel. `multiply` reads packed codes, and is null if they have to be expanded.
/// Expanded codes, and scales whose products with d may overflow, take the way of many rows.
void run_tile(const PanelArgs& args, int64_t index, Multiply multiply, float* sums) {
  const PanelLayout& layout = *args.layout;
  const int rows = args.activations.tile_rows;
  const int64_t bytes = layout.super_bytes();
  const Tile tile{&layout, std::countr_zero(static_cast<unsigned>(layout.slot_group / 16)),
                  fetch_distance(bytes)};
  const bool packed = multiply != nullptr &&
                      finite_scales(args, index, rows).holds(0, largest_scale(layout.scale_type));
  const uint32_t* a_block = args.packed_a + args.activations.offset(index, 0);
  std::fill_n(sums, rows * kPanelColumns, 0.0f);
  const uint8_t* super = args.panel;
  for (int64_t s = 0; s < layout.superblocks(); ++s, super += bytes) {
    fetch_lines(super + tile.ahead + layout.scales_offset(), bytes - layout.scales_offset());
    if (packed) [[likely]]
      multiply(tile, super, a_block, sums);
    else
      avx2_multiply_dequantized(args, index, super, a_block, sums);
    a_block += kBlocksPerSuper * args.activations.a_block_size();
  }
}

template <CodeKind kCode, Avx2Reading kReading, class Scales>
void run_tiles(const PanelArgs& args) {
  static constexpr Multiply kMultiply[][2] = {{multiply_packed<kCode, kReading, Scales, 1, 1>,
                                               multiply_packed<kCode, kReading, Scales, 1, 2>},
                                              {multiply_packed<kCode, kReading, Scales, 2, 1>,
                                               multiply_packed<kCode, kReading, Scales, 2, 2>},
                                              {multiply_packed<kCode, kReading, Scales, 3, 1>,
                                               multiply_packed<kCode, kReading, Scales, 3, 2>}};
  const int rows = args.activations.tile_rows;
  const bool reads = kReading != Avx2Reading::lines || args.layout->expansion == Expansion::none;
  for (int64_t tile = args.tile_begin; tile < args.tile_end; ++tile)
    run_tile(args, tile, reads ? kMultiply[rows - 1][args.layout->slot_group == 16] : nullptr,
             args.sums + (tile - args.tile_begin) * rows * kPanelColumns);
}

}  // namespace

void cpu_avx2_gemv_any_i8(const PanelArgs& args) {
  with_avx2_codes(args, [&]<CodeKind kCode, Avx2Reading kReading>() {
    if constexpr (may_be_two_level(kCode, kReading))
      if (has_two_level_scales(*args.layout, kCode))
        return run_tiles<kCode, kReading, Avx2TwoLevelScales>(args);
    run_tiles<kCode, kReading, Avx2FloatScales>(args);
  });
}

}  // namespace metal_marlin::cpu

#endif
