// Kernels with NEON: weights that are decoded as they are multiplied, or once into cache for many rows.
#pragma once

#include <algorithm>

#include "backends/cpu/arm64/neon_codes.h"
#include "backends/cpu/chunks.h"

namespace metal_marlin::cpu {

/// A superblock whose codes are decoded in registers.
template <class Codes>
struct InRegisters {
  static constexpr int kQuads = Codes::kQuads;
  static constexpr int kColumns = Codes::Lines::kBytes == kSparseGroupBytes ? 2 : 4;  ///< vectors that leave registers free
  explicit InRegisters(const SuperScales& scales) : super(scales.super), offset(scales.offset) {}
  MARLIN_INLINE void read(int block, int quad, int v, int group, Quad& w) const {
    Codes::read(super, offset[group][4 * v], block, quad, v, w);
  }
  const uint8_t* super;
  const uint8_t (*offset)[kPanelColumns][4];
};

/// The places where codes are kept, 1 or 0.
template <class Codes>
struct KeptInRegisters {
  static constexpr int kQuads = Codes::kQuads, kColumns = 2;
  explicit KeptInRegisters(const SuperScales& scales) : super(scales.super) {}
  MARLIN_INLINE void read(int block, int quad, int v, int, Quad& w) const { Codes::kept(super, block, quad, v, w); }
  const uint8_t* super;
};

/// A decoded superblock: [block][quad][vector] quads of steps.
template <int kQuads>
struct Staged {
  uint8_t weights[kBlocksPerSuper][kQuads][kVectors][4][16];
  SuperScales scales;
};
template <int kQuadsOfBlock>
struct FromStaged {
  static constexpr int kQuads = kQuadsOfBlock, kColumns = 4;
  explicit FromStaged(const Staged<kQuadsOfBlock>& staged) : weights(staged.weights) {}
  MARLIN_INLINE void read(int block, int quad, int v, int, Quad& w) const {
    for (int i = 0; i < 4; ++i) w[i] = vld1q_u8(weights[block][quad][v][i]);
  }
  const uint8_t (*weights)[kQuads][kVectors][4][16];
};

/// Matrix instructions take 2 columns x 2 steps: of every two steps the first two columns, then the others.
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
MARLIN_INLINE void for_quads(const PackedLayout& layout, Each each) {
  const int shift = std::countr_zero(static_cast<unsigned>(layout.slot_group / 16));
  for (int block = 0; block < kBlocksPerSuper; ++block)
    for (int quad = 0; quad < kQuads; ++quad)
      for (int v = 0; v < kVectors; ++v) each(block, quad, v, (2 * block + quad * 2 / kQuads) >> shift);
}

/// Decodes the scales, `factor` times, and the codes of a superblock.
template <class Codes, bool kPaired>
void stage_codes(const PackedLayout& layout, const uint8_t* super, float factor, Staged<Codes::kQuads>& out) {
  decode_super_scales(layout, super, factor, out.scales);
  const InRegisters<Codes> codes(out.scales);
  for_quads<Codes::kQuads>(layout, [&](int block, int quad, int v, int group) {
    Quad w;
    codes.read(block, quad, v, group, w);
    if constexpr (kPaired) pair_steps(w);
    write_quad(w, out.weights[block][quad][v]);
  });
}

template <bool kPaired>
void stage_int8(const PanelArgs& args, const uint8_t* super, int, Staged<2>& out) {
  with_codes(args, [&]<CodeKind kCode, bool kSparse>() {
    stage_codes<Int8Codes<kCode, kSparse>, kPaired>(*args.layout, super, int8_factor(kCode), out);
  });
}

/// Whether some scale times some d of the tile may overflow, though both are finite.
inline bool may_overflow(const PanelArgs& args, const SuperScales& scales, int64_t tile) {
  const uint32_t* const d = args.records + args.activations.rows_offset(tile);  // DRange; none is negative
  const float largest_d = std::bit_cast<float>(*std::max_element(d, d + args.activations.tile_rows));
  return !(scales.largest * largest_d <= FLT_MAX);
}

}  // namespace metal_marlin::cpu
