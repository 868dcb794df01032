// INT8 activations by SDOT: signed codes times signed activations, 4 slots per lane. neon_tile.inc
// has the picture of a tile. A quad is 16 slots.
//
//   gemv     dense codes are decoded in registers (u4, u4zero, i8 in groups of 32 and more; fp4 in
//            all groups); all others are dequantized for each tile. Additive zeros of sparse
//            weights take a second tile, whose weights are 1 for kept codes.
//   dequant  a superblock is dequantized into L1 for all tiles.
#if defined(__aarch64__)

#include "backends/cpu/arm64/neon_dequant.h"

#define MARLIN_TARGET MARLIN_NEON_DOTPROD
#include "backends/cpu/arm64/neon_tile.inc"

namespace metal_marlin::cpu {
namespace {

struct Sdot {
  using Sum = int32x4_t;
  static constexpr int kSteps = 8;
  static constexpr bool kInteger = true, kMatrix = false;
  template <int kLane>
  MARLIN_TARGET MARLIN_INLINE static void multiply_add(Sum& sum, uint8x16_t w, uint32x4_t x) {
    sum = vdotq_laneq_s32(sum, vreinterpretq_s8_u8(w), vreinterpretq_s8_u32(x), kLane);
  }
};

void decode_scales(const PanelArgs& args, const uint8_t* super, int, SuperScales& out) {
  decode_super_scales(*args.layout, super, int8_factor(args.code), out);
}

/// A kind of codes with the same bytes, which can share tiles with `code`.
constexpr CodeKind same_bytes(CodeKind code, bool sparse) {
  if (sparse) return code;  // the code of slots that are not kept differs
  if (code == CodeKind::u4add) return CodeKind::u4;
  return code == CodeKind::i8add ? CodeKind::i8 : code;
}

void tile_in_registers(const SuperScales& scales, int, bool first, const PanelArgs& args,
                       int64_t tile, const uint32_t* a_block, float* sums) {
  with_codes(args, [&]<CodeKind kCode, bool kSparse>() {
    using Codes = Int8Codes<same_bytes(kCode, kSparse), kSparse>;
    constexpr bool kCountsKept = CodeLines<kCode, kSparse>::kCountsKept;
    const InRegisters<Codes> codes(scales);
    TileWalk walk = walk_of(args, scales, first);
    if (kCountsKept) walk.zero = nullptr;
    const int rows = args.activations.tile_rows;
    if (may_overflow(args, scales, tile))
      multiply_dequantized<Sdot, true>(args, codes, walk, a_block, sums);
    else if constexpr (kSparse)
      multiply_dequantized<Sdot>(args, codes, walk, a_block, sums);
    else if constexpr (kCode == CodeKind::fp4)
      multiply_scaled<Sdot>(codes, walk, rows, a_block, sums);
    else if (walk.group_shift == 0)  // few weights but NVFP4 have groups of 16: no tiles for them
      multiply_dequantized<Sdot>(args, codes, walk, a_block, sums);
    else
      multiply_tile<Sdot, Scaling::blocks>(codes, walk, rows, a_block, sums);
    if constexpr (kCountsKept) {
      // Additive zeros of 2:4 sparse weights are multiplied by the sum of the activations at kept
      // positions.
      walk.scale = scales.zero;
      walk.first = false;
      multiply_dequantized<Sdot, true>(args, Kept<Codes>(scales), walk, a_block, sums);
    }
  });
}

}  // namespace

void cpu_neondotprod_dequant_any_i8(const PanelArgs& args) {
  walk_chunks<NeonDequantized<2>, dequantize_int8<false>, dequantized_int8_tile<Sdot>>(args);
}
void cpu_neondotprod_gemv_any_i8(const PanelArgs& args) {
  walk_chunks<SuperScales, decode_scales, tile_in_registers>(args);
}

}  // namespace metal_marlin::cpu

#endif
