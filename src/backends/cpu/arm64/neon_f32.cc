// Activations of any type by FMLA, on any arm64 processor. Weights are decoded to their value in
// F32, a superblock at a time, with scales and zeros. neon_tile.inc has the picture of a tile. A
// vector is 4 columns x one slot, and a quad is 4 slots. Prescaled weights need no second set of
// sums.
#if defined(__aarch64__)

#include "backends/cpu/arm64/neon_dequant.h"

#define MARLIN_TARGET
#include "backends/cpu/arm64/neon_tile.inc"

namespace metal_marlin::cpu {
namespace {

struct Fmla {
  using Sum = float32x4_t;
  static constexpr bool kMatrix = false;
  template <int kLane>
  MARLIN_INLINE static void multiply_add(Sum& sum, uint8x16_t w, uint32x4_t x) {
    // With the intrinsic, g++ 12 copies sums between registers, which takes 204 instructions per
    // block of 4 x 4 instead of 158.
    __asm__("fmla %0.4s, %1.4s, %2.s[%3]" : "+w"(sum) : "w"(w), "w"(x), "i"(kLane));
  }
};

/// Both slots of every BF16 pair of 8 slots. The first slots are steps 0..3, and the second slots
/// are steps 4..7 (slot_of_step in activations.h).
template <CodeKind kCode, bool kSparse>
void dequantize(const PanelLayout& layout, const uint8_t* super, NeonDequantized<8>& out) {
  using Codes = Bf16Codes<kCode, kSparse>;
  decode_super_scales(layout, super, 1.0f, out.scales);
  const InRegisters<Codes> codes(out.scales);
  const Kept<Codes> kept_codes(out.scales);
  for_quads<4>(layout, [&](int block, int octet, int v, int group) {
    const float32x4_t scale = vld1q_f32(&out.scales.scale[group][4 * v]),
                      zero = vld1q_f32(&out.scales.zero[group][4 * v]);
    const auto value = [&](float32x4_t x, float32x4_t kept) {
      if constexpr (!is_additive(kCode)) return vreinterpretq_u8_f32(vmulq_f32(x, scale));
      const uint8x16_t shifted = vreinterpretq_u8_f32(vfmaq_f32(zero, x, scale));
      if constexpr (!Codes::Lines::kCountsKept) return shifted;
      const uint32x4_t bits = vreinterpretq_u32_f32(kept);
      return vandq_u8(shifted, vreinterpretq_u8_u32(vtstq_u32(bits, bits)));
    };
    Quad pairs, kept = {}, first, second;
    read_quad(codes, block, octet, v, group, pairs);
    if constexpr (Codes::Lines::kCountsKept) read_quad(kept_codes, block, octet, v, group, kept);
    for (int i = 0; i < 4; ++i) {
      first[i] = value(first_of_pair(pairs[i]), first_of_pair(kept[i]));
      second[i] = value(second_of_pair(pairs[i]), second_of_pair(kept[i]));
    }
    write_quad(first, out.weights[block][v / 4][2 * octet][v % 4]);
    write_quad(second, out.weights[block][v / 4][2 * octet + 1][v % 4]);
  });
}

/// The floats of codes, one for each column's dword, by kByte of the dword.
template <int kByte>
MARLIN_INLINE float32x4_t look_up_floats(const uint8x16x4_t& codebook, uint8x16_t codes) {
  const uint8x16_t column = {kByte,      kByte,      kByte,      kByte,     4 + kByte, 4 + kByte,
                             4 + kByte,  4 + kByte,  8 + kByte,  8 + kByte, 8 + kByte, 8 + kByte,
                             12 + kByte, 12 + kByte, 12 + kByte, 12 + kByte},
                   byte = {0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3};
  const uint8x16_t first = vshlq_n_u8(vqtbl1q_u8(codes, column), 2);
  return vreinterpretq_f32_u8(vqtbl4q_u8(codebook, vaddq_u8(first, byte)));
}

/// Steps of 8 slots of 4 columns of real codes, whose lines are at `codes`. Steps have the order of
/// lines of floats (layout.h).
template <CodeKind kCode>
MARLIN_INLINE void read_real_slots(const uint8x16x4_t& codebook, const uint8_t* codes,
                                   float32x4_t (&step)[8]) {
  if constexpr (kCode == CodeKind::lut4) {
    const uint8x16_t packed = vld1q_u8(codes), low = vandq_u8(packed, vdupq_n_u8(15)),
                     high = vshrq_n_u8(packed, 4);
    step[0] = look_up_floats<0>(codebook, low);
    step[1] = look_up_floats<0>(codebook, high);
    step[2] = look_up_floats<1>(codebook, low);
    step[3] = look_up_floats<1>(codebook, high);
    step[4] = look_up_floats<2>(codebook, low);
    step[5] = look_up_floats<2>(codebook, high);
    step[6] = look_up_floats<3>(codebook, low);
    step[7] = look_up_floats<3>(codebook, high);
  } else {
    for (int i = 0; i < 4; ++i) {
      const uint8x16_t line = vld1q_u8(codes + 64 * i);
      if constexpr (kCode == CodeKind::bf16) {
        step[i] = first_of_pair(line);
        step[4 + i] = second_of_pair(line);
      } else if constexpr (kCode == CodeKind::f16) {
        const uint32x4_t pairs = vreinterpretq_u32_u8(line);
        step[i] = vcvt_f32_f16(vreinterpret_f16_u16(vmovn_u32(pairs)));
        step[4 + i] = vcvt_f32_f16(vreinterpret_f16_u16(vshrn_n_u32(pairs, 16)));
      } else {
        step[i] = vreinterpretq_f32_u8(line);
        step[4 + i] = vreinterpretq_f32_u8(vld1q_u8(codes + 64 * (4 + i)));
      }
    }
  }
}

/// The scales of a superblock of real codes, which may be nested. A fused multiply-add rounds each
/// nested scale once.
void decode_real_scales(const PanelArgs& args, const uint8_t* super, SuperScales& out) {
  const PanelLayout& layout = *args.layout;
  if (!layout.has_nested_scales()) return decode_super_scales(layout, super, 1.0f, out);
  const NestedSuper nested(layout, args.panel, super);
  const uint8_t* bytes = super + layout.scales_offset();
  out.super = super;
  for (int g = 0; g < layout.groups_per_super(); ++g) {
    const float* const factors = nested.factors(g);
    for (int c = 0; c < kPanelColumns; c += 4, bytes += 4) {
      const float32x4_t units = {layout.scale_map[bytes[0]], layout.scale_map[bytes[1]],
                                 layout.scale_map[bytes[2]], layout.scale_map[bytes[3]]};
      vst1q_f32(&out.scale[g][c],
                vfmaq_f32(vld1q_f32(nested.offsets + c), units, vld1q_f32(factors + c)));
    }
  }
}

template <CodeKind kCode>
void dequantize_real(const PanelArgs& args, const uint8_t* super, NeonDequantized<8>& out) {
  const PanelLayout& layout = *args.layout;
  constexpr int kLines = lines_of_block(kCode);
  decode_real_scales(args, super, out.scales);
  const uint8x16x4_t codebook = vld1q_u8_x4(reinterpret_cast<const uint8_t*>(layout.codebook));
  for_quads<4>(layout, [&](int block, int octet, int v, int group) {
    const float32x4_t scale = vld1q_f32(&out.scales.scale[group][4 * v]);
    const uint8_t* const codes =
        out.scales.super + ((block * kColumnGroups + v / 4) * kLines + octet * (kLines / 4)) * 64;
    float32x4_t step[8];
    read_real_slots<kCode>(codebook, codes + v % 4 * 16, step);
    for (int i = 0; i < 8; ++i)
      vst1q_u8(out.weights[block][v / 4][2 * octet + i / 4][v % 4][i % 4],
               vreinterpretq_u8_f32(vmulq_f32(step[i], scale)));
  });
}

void dequantize_any(const PanelArgs& args, const uint8_t* super, int, NeonDequantized<8>& out) {
  if (is_real(args.code))
    return with_any_code(args.code, [&]<CodeKind kCode>() {
      if constexpr (is_real(kCode)) dequantize_real<kCode>(args, super, out);
    });
  with_codes(args, [&]<CodeKind kCode, bool kSparse>() {
    dequantize<kCode, kSparse>(*args.layout, super, out);
  });
}

void prescaled_tile(const NeonDequantized<8>& dequantized, int, bool first, const PanelArgs& args,
                    int64_t, const uint32_t* a_block, float* sums) {
  multiply_tile<Fmla, Scaling::prescaled>(FromDequantized(dequantized),
                                          walk_of(args, dequantized.scales, first),
                                          args.activations.tile_rows, a_block, sums);
}

}  // namespace

void cpu_neon_prescaled_any_f32(const PanelArgs& args) {
  walk_chunks<NeonDequantized<8>, dequantize_any, prescaled_tile>(args);
}

}  // namespace metal_marlin::cpu

#endif
