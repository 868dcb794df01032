// Weights of the NEON kernels, which are decoded during the multiplication, or once into cache for
// many rows.
#pragma once

#include <algorithm>

#include "backends/cpu/arm64/neon_codes.h"
#include "backends/cpu/chunks.h"

namespace metal_marlin::cpu {

/// A superblock whose codes are decoded in registers. Tiles read sources of weights like this one
/// from at() of a block and vector, with offsets_at() of its group, in quads of steps. `column`
/// counts vectors from there, inside a column group.
template <class Codes>
struct InRegisters {
  static constexpr int kQuads = Codes::kQuads;
  explicit InRegisters(const SuperScales& scales) : super(scales.super), offset(scales.offset) {}
  MARLIN_INLINE const uint8_t* at(int64_t block, int v) const {
    return Codes::Lines::at(super, block, v);
  }
  MARLIN_INLINE const uint8_t* offsets_at(int64_t group, int v) const {
    return offset[group][4 * v];
  }
  MARLIN_INLINE void read(const uint8_t* from, const uint8_t* offsets, int quad, int column,
                          Quad& w) const {
    Codes::read(from + 16 * column, offsets + 16 * column, quad, w);
  }
  const uint8_t* super;
  const uint8_t (*offset)[kPanelColumns][4];
};

/// The same for Bf16Codes of dense 4-bit codes without integer zeros. The table is an argument, so
/// one tile serves all of these codes.
struct LookedUp {
  using Lines = CodeLines<CodeKind::fp4, false>;
  static constexpr int kQuads = 4;
  template <CodeKind kCode>
  LookedUp(const SuperScales& scales, const Bf16Table<kCode>& table)
      : super(scales.super), low(vld1q_u8(table.low)), high(vld1q_u8(table.high)) {}
  MARLIN_INLINE const uint8_t* at(int64_t block, int v) const { return Lines::at(super, block, v); }
  MARLIN_INLINE const uint8_t* offsets_at(int64_t, int) const { return nullptr; }
  MARLIN_INLINE void read(const uint8_t* from, const uint8_t* offsets, int quad, int column,
                          Quad& w) const {
    const Codes codes = Lines::read(from + 16 * column, offsets, quad);
    join_bytes(vqtbl1q_u8(low, codes.low), vqtbl1q_u8(high, codes.low), w[0], w[2]);
    join_bytes(vqtbl1q_u8(low, codes.high), vqtbl1q_u8(high, codes.high), w[1], w[3]);
  }
  const uint8_t* super;
  uint8x16_t low, high;
};

/// A source that gives 1 for kept codes and 0 for others, instead of the codes.
template <class Codes>
struct Kept : InRegisters<Codes> {
  using InRegisters<Codes>::InRegisters;
  MARLIN_INLINE void read(const uint8_t* from, const uint8_t*, int quad, int column,
                          Quad& w) const {
    Codes::kept(from + 16 * column, quad, w);
  }
};

/// A decoded superblock: quads of steps. The quads of vectors that a tile takes at a time are next
/// to each other.
template <int kQuads>
struct NeonDequantized {
  uint8_t weights[kBlocksPerSuper][kColumnGroups][kQuads][kVectors / kColumnGroups][4][16];
  SuperScales scales;
};
template <int kQuadsOfBlock>
struct FromDequantized {
  static constexpr int kQuads = kQuadsOfBlock;
  explicit FromDequantized(const NeonDequantized<kQuadsOfBlock>& dequantized)
      : weights(dequantized.weights) {}
  MARLIN_INLINE const uint8_t* at(int64_t block, int v) const {
    return weights[block][v / 4][0][v % 4][0];
  }
  MARLIN_INLINE const uint8_t* offsets_at(int64_t, int) const { return nullptr; }
  MARLIN_INLINE void read(const uint8_t* from, const uint8_t*, int quad, int column,
                          Quad& w) const {
    for (int i = 0; i < 4; ++i) w[i] = vld1q_u8(from + ((quad * 4 + column) * 4 + i) * 16);
  }
  const uint8_t (*weights)[kColumnGroups][kQuads][kVectors / kColumnGroups][4][16];
};

/// Matrix instructions take 2 columns x 2 steps: for every two steps, the first two columns come
/// first, and then the other two.
MARLIN_INLINE void pair_steps(Quad& w) {
  for (int i = 0; i < 4; i += 2) {
    const uint32x4_t a = vreinterpretq_u32_u8(w[i]), b = vreinterpretq_u32_u8(w[i + 1]);
    w[i] = vreinterpretq_u8_u32(vzip1q_u32(a, b));
    w[i + 1] = vreinterpretq_u8_u32(vzip2q_u32(a, b));
  }
}

MARLIN_INLINE void write_quad(const Quad& w, uint8_t (&out)[4][16]) {
  for (int i = 0; i < 4; ++i) vst1q_u8(out[i], w[i]);
}

/// Calls each(block, quad, vector, group) for a superblock whose blocks have kQuads quads.
template <int kQuads, class Each>
MARLIN_INLINE void for_quads(const PanelLayout& layout, Each each) {
  const int shift = std::countr_zero(static_cast<unsigned>(layout.slot_group / 16));
  for (int block = 0; block < kBlocksPerSuper; ++block)
    for (int quad = 0; quad < kQuads; ++quad)
      for (int v = 0; v < kVectors; ++v)
        each(block, quad, v, (2 * block + quad * 2 / kQuads) >> shift);
}

template <class Weights>
MARLIN_INLINE void read_quad(const Weights& weights, int block, int quad, int v, int group,
                             Quad& w) {
  weights.read(weights.at(block, v), weights.offsets_at(group, v), quad, 0, w);
}

/// Dequantizes a superblock from a source of weights (InRegisters, Kept).
template <bool kPaired, class Weights>
void dequantize_codes(const PanelLayout& layout, Weights weights,
                      NeonDequantized<Weights::kQuads>& out) {
  for_quads<Weights::kQuads>(layout, [&](int block, int quad, int v, int group) {
    Quad w;
    read_quad(weights, block, quad, v, group, w);
    if constexpr (kPaired) pair_steps(w);
    write_quad(w, out.weights[block][v / 4][quad][v % 4]);
  });
}

template <bool kPaired>
void dequantize_int8(const PanelArgs& args, const uint8_t* super, int, NeonDequantized<2>& out) {
  decode_super_scales(*args.layout, super, int8_factor(args.code), out.scales);
  with_codes(args, [&]<CodeKind kCode, bool kSparse>() {
    dequantize_codes<kPaired>(*args.layout, InRegisters<Int8Codes<kCode, kSparse>>(out.scales),
                              out);
  });
}

/// Whether some scale times some d of the tile may overflow although both are finite.
inline bool may_overflow(const PanelArgs& args, const SuperScales& scales, int64_t tile) {
  const uint32_t* const d =
      args.packed_a + args.activations.rows_offset(tile);  // DRange; none is negative
  const float largest_d =
      std::bit_cast<float>(*std::max_element(d, d + args.activations.tile_rows));
  return !(scales.largest * largest_d <= kLargestFloat);
}

}  // namespace metal_marlin::cpu
