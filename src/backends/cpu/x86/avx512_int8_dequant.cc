// INT8 compute for many rows of sparse weights, any codes and groups (avx512_int8_dequant.h).
#if defined(__x86_64__)

#include "backends/cpu/x86/avx512_int8_dequant.h"
#include "backends/cpu/chunks.h"

namespace metal_marlin::cpu {
namespace {

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
    return dequantize_int8<CodeKind::u4, true>(*args.layout, super, blocks, out);
  if (args.code == CodeKind::u4zero)
    return dequantize_int8<CodeKind::u4zero, true>(*args.layout, super, blocks, out);
  args.layout->sparse ? dequantize_int8<CodeKind::fp4, true>(*args.layout, super, blocks, out)
                      : dequantize_int8<CodeKind::fp4, false>(*args.layout, super, blocks, out);
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
  multiply_blocks<kParts, false, kFactor>(tile.dequantized, tile.blocks, tile.first, tile.a_block,
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

void dequant_int8(const PanelArgs& args) {
  walk_chunks<DequantizedInt8, dequantize_any, tile_any>(args);
}
void cpu_avx512vnni_dequant_any_sparse_i8(const PanelArgs& args) { dequant_int8(args); }

}  // namespace metal_marlin::cpu

#endif
