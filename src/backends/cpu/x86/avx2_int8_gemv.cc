// INT8 compute with AVX2 for few rows. The kernel reads the packed stream once, decodes codes in
// registers, and multiplies them by vpmaddubsw (avx2_int8.h).
//
//   packed stream          registers, for 8 columns
//   half a line      ----> w[v]   8 columns x 4 slots: the low nibbles of every byte (FP4: looked
//                                 up by vpshufb), then the high ones; or the bytes themselves
//   packed A block   ----> b      4 slots of a row, in all lanes
//   sums (in L1)     <---- sums of a part of a block, scaled
//
//   M: a pass over the panel for each tile of kRows rows. N and K as memory has them: superblock,
//   block, 16 columns, part, 16 slots, step of 4 slots. Codes that are expanded into L1, and 3
//   rows: superblock, 16 columns (3 rows: 8), block, ...
//
// Template parameters: every kCode of dense weights; kRows 1 to 3; kParts 2 with groups of 16, else
// 1; kClamp: scale * d may overflow.
//
// Limits: a block of 8 columns takes 32 instructions with one row of 4-bit codes, of which 12 need
// one of two ports. By count that is 14 bytes a cycle, so that memory is the limit.
#if defined(__x86_64__)

#include <algorithm>
#include <bit>

#include "backends/cpu/x86/avx2_int8.h"

namespace metal_marlin::cpu {
namespace {

/// Codes of half a block.
template <CodeKind kCode>
struct PackedCodes {
  using Lines = CodeLines8<kCode, false>;
  static constexpr bool kEight = is_eight_bits(kCode);
  const uint8_t* lines;  ///< of the half, from the first column on
  const uint8_t* zeros;  ///< integer zeros, from the first column on
  Ahead ahead;

  MARLIN_AVX2 MARLIN_INLINE __m256i operator()(int step, int v) const {
    constexpr int kSteps = 8 / Lines::kLines;  // of a line
    const int line = step / kSteps;
    if (v == 0 && step % kSteps == 0) {
      Lines::fetch(lines, line, ahead.far);
      if (!kEight) Lines::fetch(lines, line, ahead.near);
    }
    const Codes8 codes = Lines::read(lines, line, v, zeros + 8 * v);
    if constexpr (kEight) return codes.low;
    return step % kSteps == 0 ? unsigned_codes<kCode, false, 0>(codes)
                              : unsigned_codes<kCode, false, 1>(codes);
  }
};

/// A superblock, for multiply_int8_block.
template <CodeKind kCode>
struct PackedWalk {
  static constexpr bool kEight = is_eight_bits(kCode);
  const Avx2Int8Scales* scales;
  int group_shift;
  const uint8_t *super, *zeros;
  Ahead ahead;

  static constexpr bool adds_zeros() { return metal_marlin::is_additive(kCode); }
  static constexpr bool counts_kept() { return false; }
  static constexpr bool corrected() { return !kEight && !adds_zeros(); }
  MARLIN_INLINE PackedCodes<kCode> codes(int b, int half, int column, int group) const {
    constexpr int kBytes = CodeLines8<kCode, false>::kBytes;
    const int column_group = b * kColumnGroups + column / kGroupColumns;
    return {super + column_group * kBytes + half * (kBytes / 2) + column % kGroupColumns * 4,
            zeros + group * kPanelColumns + column, ahead};
  }
  MARLIN_INLINE PackedCodes<kCode> kept(int b, int half, int column) const {
    return codes(b, half, column, 0);
  }
};

/// Multiplies one tile by a superblock in the order of memory, which keeps its prefetchers busy.
template <CodeKind kCode, int kRows, int kParts, bool kClamp>
MARLIN_AVX2 [[gnu::noinline]] void multiply_in_order(const PackedWalk<kCode>& walk,
                                                     const uint32_t* a_block, float* sums) {
  for (int b = 0; b < kBlocksPerSuper; ++b, a_block += kInt8BlockWords<kRows, kParts>)
    for (int column = 0; column < kPanelColumns; column += 16)
      multiply_int8_block<kRows, 2, kParts, kClamp>(walk, b, column, a_block, sums + column);
}

/// The same by columns, for codes that were expanded into L1 and for 3 rows, whose 8 columns are
/// half a line.
template <CodeKind kCode, int kRows, int kParts, bool kClamp>
MARLIN_AVX2 [[gnu::noinline]] void multiply_by_columns(const PackedWalk<kCode>& walk,
                                                       const uint32_t* a_block, float* sums) {
  constexpr int kVectors = kRows < 3 ? 2 : 1;
  for (int column = 0; column < kPanelColumns; column += 8 * kVectors) {
    const uint32_t* x = a_block;
    for (int b = 0; b < kBlocksPerSuper; ++b, x += kInt8BlockWords<kRows, kParts>)
      multiply_int8_block<kRows, kVectors, kParts, kClamp>(walk, b, column, x, sums + column);
  }
}

template <CodeKind kCode, int kRows, int kParts, bool kClamp>
void multiply_super(const PackedWalk<kCode>& walk, const uint32_t* a_block, float* sums) {
  if constexpr (kRows < 3)
    if (walk.ahead.far != 0)
      return multiply_in_order<kCode, kRows, kParts, kClamp>(walk, a_block, sums);
  multiply_by_columns<kCode, kRows, kParts, kClamp>(walk, a_block, sums);
}

/// One tile and one panel.
template <CodeKind kCode, int kRows, int kParts>
MARLIN_AVX2 void run_tile(const PanelArgs& args, int64_t tile, float* sums) {
  const PanelLayout& layout = *args.layout;
  const int64_t bytes = layout.super_bytes(), ahead = fetch_distance(bytes);
  const uint32_t* a_block = args.packed_a + args.activations.offset(tile, 0);
  Avx2Int8Scales scales;
  ExpandedCodes<kCode> expanded;
  std::fill_n(sums, kRows * kPanelColumns, 0.0f);
  const uint8_t* super = args.panel;
  for (int64_t s = 0; s < layout.superblocks(); ++s, super += bytes) {
    fetch_lines(super + ahead + layout.scales_offset(), bytes - layout.scales_offset());
    decode_int8_scales<kCode>(layout, super, scales);
    const uint8_t* const codes = codes_of_super<kCode>(layout, super, ahead, expanded);
    const PackedWalk<kCode> walk{
        &scales, std::countr_zero(static_cast<unsigned>(layout.slot_group / 16)), codes,
        super + layout.zeros_offset(), codes == super ? Ahead{ahead, kSecondChance} : Ahead{}};
    if (may_overflow(args, tile, kRows, scales)) [[unlikely]]
      multiply_super<kCode, kRows, kParts, true>(walk, a_block, sums);
    else
      multiply_super<kCode, kRows, kParts, false>(walk, a_block, sums);
    a_block += kBlocksPerSuper * args.activations.a_block_size();
  }
}

template <CodeKind kCode, int kRows>
void run_tiles(const PanelArgs& args) {
  const bool halves = args.layout->slot_group == 16;
  for (int64_t tile = args.tile_begin; tile < args.tile_end; ++tile) {
    float* sums = args.sums + (tile - args.tile_begin) * kRows * kPanelColumns;
    if (halves)
      run_tile<kCode, kRows, 2>(args, tile, sums);
    else
      run_tile<kCode, kRows, 1>(args, tile, sums);
  }
}

}  // namespace

void cpu_avx2_gemv_any_i8(const PanelArgs& args) {
  with_code(args.code, [&]<CodeKind kCode>() {
    switch (args.activations.tile_rows) {
      case 1:
        return run_tiles<kCode, 1>(args);
      case 2:
        return run_tiles<kCode, 2>(args);
      default:
        return run_tiles<kCode, 3>(args);
    }
  });
}

}  // namespace metal_marlin::cpu

#endif
