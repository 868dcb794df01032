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
// Template parameters: how codes and their scales are read; kRows 1 to 3.
//
// Limits: a block of 8 columns takes 32 instructions with one row of 4-bit codes, of which 12 need
// one of two ports. By count that is 14 bytes a cycle, so that memory is the limit.
#if defined(__x86_64__)

#include <algorithm>
#include <bit>

#include "backends/cpu/x86/avx2_reading.h"

namespace metal_marlin::cpu {
namespace {

/// A superblock, for multiply_int8_block.
template <Reading kReading, class Scales>
struct PackedWalk {
  using Codes = PackedCodes<kReading>;
  static constexpr Products kProducts = Codes::kProducts;
  static constexpr int kSumShift = Codes::kSumShift;
  const Scales* scales;
  bool additive;
  int group_shift;
  const uint8_t *super, *zeros;
  Ahead ahead;

  bool adds_zeros() const {
    return kReading != Reading::less_zeros && kReading != Reading::looked_up && additive;
  }
  static constexpr bool counts_kept() { return false; }
  bool corrected() const { return kProducts != Products::signed_bytes && !adds_zeros(); }
  MARLIN_INLINE Codes codes(int b, int half, int column, int group) const {
    const int column_group = b * kColumnGroups + column / kGroupColumns;
    return {super + column_group * Codes::kBytes + column % kGroupColumns * 4,
            zeros + group * kPanelColumns + column, half, ahead};
  }
  template <int kRows, int kVectors>
  void add_kept_zeros(int, int, int, const uint32_t*, float*) const {}
};

/// What all superblocks of a tile share.
struct Tile {
  const PanelLayout* layout;
  CodeKind code;
  int group_shift;
  int64_t ahead;
};

/// Multiplies a tile by a superblock in the order of memory, which keeps its prefetchers busy.
template <Reading kReading, class Scales, int kRows>
MARLIN_AVX2 void multiply_packed(const Tile& tile, const uint8_t* super, const uint32_t* a_block,
                                 float* sums) {
  constexpr int kVectors = kRows < 3 ? 2 : 1;
  Scales scales;
  decode_super(*tile.layout, tile.code, super, scales);
  const PackedWalk<kReading, Scales> walk{&scales,
                                          is_additive(tile.code),
                                          tile.group_shift,
                                          super,
                                          super + tile.layout->zeros_offset(),
                                          Ahead{tile.ahead, kSecondChance}};
  const int words = int8_block_words<kRows>(tile.group_shift);
  for (int b = 0; b < kBlocksPerSuper; ++b, a_block += words)
    for (int column = 0; column < kPanelColumns; column += 8 * kVectors)
      multiply_int8_block<kRows, kVectors, false>(walk, b, column, a_block, sums + column);
}
using Multiply = void (*)(const Tile&, const uint8_t*, const uint32_t*, float*);

/// One tile and one panel. `multiply` reads packed codes, and is null if they have to be expanded.
/// Expanded codes, and scales whose products with d may overflow, take the way of many rows.
void run_tile(const PanelArgs& args, int64_t index, Multiply multiply, float* sums) {
  const PanelLayout& layout = *args.layout;
  const int rows = args.activations.tile_rows;
  const int64_t bytes = layout.super_bytes();
  const Tile tile{&layout, args.code,
                  std::countr_zero(static_cast<unsigned>(layout.slot_group / 16)),
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

template <Reading kReading, class Scales>
void run_tiles(const PanelArgs& args) {
  static constexpr Multiply kMultiply[] = {multiply_packed<kReading, Scales, 1>,
                                           multiply_packed<kReading, Scales, 2>,
                                           multiply_packed<kReading, Scales, 3>};
  const int rows = args.activations.tile_rows;
  const bool reads = kReading != Reading::bytes || args.layout->expansion == Expansion::none;
  for (int64_t tile = args.tile_begin; tile < args.tile_end; ++tile)
    run_tile(args, tile, reads ? kMultiply[rows - 1] : nullptr,
             args.sums + (tile - args.tile_begin) * rows * kPanelColumns);
}

}  // namespace

void cpu_avx2_gemv_any_i8(const PanelArgs& args) {
  const Reading reading = packed_reading(args);
  using enum Reading;
  const bool is_k_quant = reading != less_zeros && reading != looked_up && reading != bytes;
  if (is_k_quant && has_two_level_scales(*args.layout, args.code))
    return with_reading_of<nibbles, two_bits, three_bits, five_bits, six_bits, iq4>(
        reading, [&]<Reading kReading>() { run_tiles<kReading, Avx2TwoLevelScales>(args); });
  with_reading_of<nibbles, less_zeros, looked_up, bytes, two_bits, three_bits, five_bits, six_bits,
                  iq4>(reading,
                       [&]<Reading kReading>() { run_tiles<kReading, Avx2FloatScales>(args); });
}

}  // namespace metal_marlin::cpu

#endif
