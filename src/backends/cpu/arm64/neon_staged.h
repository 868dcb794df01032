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
  explicit InRegisters(const SuperScales& scales) : super(scales.super), offset(scales.offset) {}
  MARLIN_INLINE void read(int block, int quad, int v, int group, Quad& w) const {
    Codes::read(super, offset[group][4 * v], block, quad, v, w);
  }
  const uint8_t* super;
  const uint8_t (*offset)[kPanelColumns][4];
};

/// Not the codes, but 1 where one is kept and 0 elsewhere.
template <class Codes>
struct Kept {
  static constexpr int kQuads = Codes::kQuads;
  explicit Kept(const SuperScales& scales) : super(scales.super) {}
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
  static constexpr int kQuads = kQuadsOfBlock;
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

/// Stages what a source of weights (InRegisters, Kept) reads of a superblock.
template <bool kPaired, class Weights>
void stage_codes(const PackedLayout& layout, Weights weights, Staged<Weights::kQuads>& out) {
  for_quads<Weights::kQuads>(layout, [&](int block, int quad, int v, int group) {
    Quad w;
    weights.read(block, quad, v, group, w);
    if constexpr (kPaired) pair_steps(w);
    write_quad(w, out.weights[block][quad][v]);
  });
}

template <bool kPaired>
void stage_int8(const PanelArgs& args, const uint8_t* super, int, Staged<2>& out) {
  decode_super_scales(*args.layout, super, int8_factor(args.code), out.scales);
  with_codes(args, [&]<CodeKind kCode, bool kSparse>() {
    stage_codes<kPaired>(*args.layout, InRegisters<Int8Codes<kCode, kSparse>>(out.scales), out);
  });
}

/// Whether some scale times some d of the tile may overflow, though both are finite.
inline bool may_overflow(const PanelArgs& args, const SuperScales& scales, int64_t tile) {
  const uint32_t* const d = args.records + args.activations.rows_offset(tile);  // DRange; none is negative
  const float largest_d = std::bit_cast<float>(*std::max_element(d, d + args.activations.tile_rows));
  return !(scales.largest * largest_d <= FLT_MAX);
}

}  // namespace metal_marlin::cpu
