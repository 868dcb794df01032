// BF16 activations: few rows by BFDOT, many by BFMMLA. Products are exact. Each sum of two products
// rounds to odd, and so does its addition to the running sum. (FEAT_EBF16 rounds better, but only
// in a mode that is never set here.) A step of two slots therefore costs two roundings of 2^-23,
// and gamma_K counts two of 2^-24; one of the two roundings concerns only these two products. Over
// a sum of K this is (K + 2) 2^-24 in all, and less over partial sums of a block. Subnormals count
// as 0, for which the accuracy rule allows K * 2^-126.
//
//   prescaled: FP4 times an E8M0 or E4M3 scale has at most 6 significant bits and fits BF16, so the
//     dequantized weights carry their scale
//   dequant, gemv: other formats keep codes without scales, and the sums of a block are multiplied
//     by the scales
//
// neon_tile.inc has the picture of a tile. Math is Bfdot (a lane of x: 2 slots of a row) or Bfmmla
// (2 columns x 4 slots times 2 rows x 4 slots). For gemv, dense 4-bit codes without integer zeros
// are decoded in registers, by one tile with the table as an argument. All other codes are
// dequantized for each tile. A quad is 8 slots.
#if defined(__aarch64__)

#include "backends/cpu/arm64/neon_dequant.h"

#define MARLIN_TARGET MARLIN_NEON_BF16
#include "backends/cpu/arm64/neon_tile.inc"

namespace metal_marlin::cpu {
namespace {

struct Bfdot {
  using Sum = float32x4_t;
  static constexpr int kSteps = 16;
  static constexpr bool kInteger = false, kMatrix = false;
  template <int kLane>
  MARLIN_TARGET MARLIN_INLINE static void multiply_add(Sum& sum, uint8x16_t w, uint32x4_t x) {
    // With the intrinsic, clang 19 copies the lane into a vector each time, which takes 121
    // instructions per block of 4 x 4 instead of 89.
    __asm__("bfdot %0.4s, %1.8h, %2.2h[%3]" : "+w"(sum) : "w"(w), "w"(x), "i"(kLane));
  }
};

struct Bfmmla {
  using Sum = float32x4_t;
  static constexpr int kSteps = 16;
  static constexpr bool kInteger = false, kMatrix = true;
  MARLIN_TARGET MARLIN_INLINE static void multiply_add(Sum& sum, uint8x16_t w, uint32x4_t x) {
    sum = vbfmmlaq_f32(sum, vreinterpretq_bf16_u8(w), vreinterpretq_bf16_u32(x));
  }
};

void decode_scales(const PanelArgs& args, const uint8_t* super, int, SuperScales& out) {
  decode_super_scales(*args.layout, super, 1.0f, out);
}

void tile_in_registers(const SuperScales& scales, int, bool first, const PanelArgs& args, int64_t,
                       const uint32_t* a_block, float* sums) {
  with_codes(args, [&]<CodeKind kCode, bool kSparse>() {
    using Codes = Bf16Codes<kCode, kSparse>;
    const InRegisters<Codes> codes(scales);
    const TileWalk walk = walk_of(args, scales, first);
    if constexpr (kSparse || kCode == CodeKind::u4zero || is_eight_bits(kCode))
      multiply_dequantized<Bfdot>(args, codes, walk, a_block, sums);
    else
      multiply_scaled<Bfdot>(LookedUp(scales, Codes::kTable), walk, args.activations.tile_rows,
                             a_block, sums);
  });
}

void dequantize(const PanelArgs& args, const uint8_t* super, int, NeonDequantized<4>& out) {
  decode_super_scales(*args.layout, super, 1.0f, out.scales);
  with_codes(args, [&]<CodeKind kCode, bool kSparse>() {
    dequantize_codes<true>(*args.layout, InRegisters<Bf16Codes<kCode, kSparse>>(out.scales), out);
  });
}

void dequantized_tile(const NeonDequantized<4>& dequantized, int, bool first, const PanelArgs& args,
                      int64_t, const uint32_t* a_block, float* sums) {
  const TileWalk walk = walk_of(args, dequantized.scales, first);
  multiply_scaled<Bfmmla>(FromDequantized(dequantized), walk, args.activations.tile_rows, a_block,
                          sums);
}

template <bool kSparse>
void dequantize_prescaled(const PanelLayout& layout, const uint8_t* super,
                          NeonDequantized<4>& out) {
  decode_super_scales(layout, super, 1.0f, out.scales);
  const InRegisters<Bf16Codes<CodeKind::fp4, kSparse>> codes(out.scales);
  for_quads<4>(layout, [&](int block, int quad, int v, int group) {
    const float32x4_t scale = vld1q_f32(&out.scales.scale[group][4 * v]);
    Quad w;
    read_quad(codes, block, quad, v, group, w);
    for (uint8x16_t& pair : w) {
      const auto scaled = [&](float32x4_t x) { return vreinterpretq_u16_f32(vmulq_f32(x, scale)); };
      pair = vreinterpretq_u8_u16(
          vtrn2q_u16(scaled(first_of_pair(pair)), scaled(second_of_pair(pair))));
    }
    pair_steps(w);
    write_quad(w, out.weights[block][v / 4][quad][v % 4]);
  });
}

void dequantize_prescaled_any(const PanelArgs& args, const uint8_t* super, int,
                              NeonDequantized<4>& out) {
  args.layout->sparse ? dequantize_prescaled<true>(*args.layout, super, out)
                      : dequantize_prescaled<false>(*args.layout, super, out);
}

void prescaled_tile(const NeonDequantized<4>& dequantized, int, bool first, const PanelArgs& args,
                    int64_t, const uint32_t* a_block, float* sums) {
  multiply_rows<Bfmmla, Scaling::prescaled, 4>(
      FromDequantized(dequantized), walk_of(args, dequantized.scales, first), a_block, sums);
}

}  // namespace

void cpu_neonbf16_prescaled_fp4_bf16(const PanelArgs& args) {
  walk_chunks<NeonDequantized<4>, dequantize_prescaled_any, prescaled_tile>(args);
}
void cpu_neonbf16_dequant_any_bf16(const PanelArgs& args) {
  walk_chunks<NeonDequantized<4>, dequantize, dequantized_tile>(args);
}
void cpu_neonbf16_gemv_any_bf16(const PanelArgs& args) {
  walk_chunks<SuperScales, decode_scales, tile_in_registers>(args);
}

}  // namespace metal_marlin::cpu

#endif
