// Group scales and zeros: a lane's quads for its four tiles, which are loaded if the group changes.
#pragma once
#include "decode.h"

static inline float bf16_bits(uint bits) { return as_type<float>(bits << 16); }

static inline void e4m3_bits(uint bytes, thread half* h) {
  const half2 a = e4m3_pair(bytes), b = e4m3_pair(bytes >> 8);
  h[0] = a.x, h[1] = b.x, h[2] = a.y, h[3] = b.y;
}
constant float kE4m3Range = 256.0f;

/// Loads four numbers of type float32, float16 or bfloat16 as floats. `type` is a MarlinFloat.
static inline void load_floats(const device void* from, long quad, uint type, thread float* out) {
  if (type == kFloat32) {
    const uint4 v = ((const device uint4*)from)[quad];
    UNROLL for (ushort i = 0; i < 4; i++) out[i] = as_type<float>(v[i]);
  } else {
    const uint2 v = ((const device uint2*)from)[quad];
    UNROLL for (ushort i = 0; i < 4; i++) {
      const uint bits = i % 2 == 0 ? v[i / 2] & 0xFFFF : v[i / 2] >> 16;
      out[i] = type == kFloat16 ? float(as_type<half>(ushort(bits))) : bf16_bits(bits);
    }
  }
}

/// Decoded codes lack range(). The scales contain it if they have room: stored E8M0 bytes already
/// have it, and float16 and E4M3 are small.
constant bool scales_have_room = scale_type == kScaleF16 || (scale_type >= kScaleE8m0 && !nested);

/// The quads of a row block or, of two-level scales, its uint32 in that order.
static inline long row_block_quads(int quads) {
  return two_level
             ? long(quads >> (kSuperBlockShift - group_shift)) * super_block_words(group_shift)
             : long(quads) * 8;
}

/// The numbers of nested scales for the rows 8 i + r of a row block (../common/layout.h).
struct NestedScales {
  NestedScales(const device void* codebook, int quads, long row_block, ushort r) {
    if (!nested) return;
    const device float* const floats = (const device float*)codebook;
    map = floats + kScaleMapAt;
    factor_quads = ((const device int*)codebook)[kFactorQuadsAt];
    own = (const device float4*)(floats + kNestedAt +
                                 row_block * nested_row_block(quads, factor_quads)) +
          r;
  }
  float4 offsets() const { return own[0]; }
  float4 factors(int quad) const { return own[kRowBlock / 4 * (1 + quad / factor_quads)]; }
  float unit(uint byte) const { return map[byte]; }

 private:
  const device float* map;
  const device float4* own;
  int factor_quads;
};

template <typename Codes>
struct GroupScales {
  float scale[4];        // with room: times range(0)
  float code_zero[4];    // is subtracted from codes; with room: divided by range(0)
  float weight_zero[4];  // is added to codes times scale
  TableInLanes table;    // of codebooks

  /// The scales of the lane's rows in a row block.
  GroupScales(const device void* all_scales, const device void* all_zeros,
              constant ProductArgs& args, long row_block, ushort lane)
      : scales(all_scales),
        zeros(all_zeros),
        first(row_block * row_block_quads(args.quads)),
        quad_blocks(args.quad_blocks),
        first_factor(row_block * (args.quads >> (kSuperBlockShift - group_shift)) * kFactorWords),
        row(fragment_row(lane)),
        levels(all_zeros, args.quads, row_block, fragment_row(lane)),
        group(-1) {
    table.own = has_codebook ? ((const device float*)all_zeros)[lane % 16] : 0.0f;
  }

  /// Loads the scales and zeros of the group of `slot`.
  void load(int slot) {
    const int wanted = group_shift == 7 ? (slot >> 7) / quad_blocks : slot >> group_shift;
    if (wanted == group) return;
    const uint groups_shift = kSuperBlockShift - group_shift;  // of a super-block
    const bool new_pair = wanted >> 1 != group >> 1,
               new_super_block = two_level && wanted >> groups_shift != group >> groups_shift;
    group = wanted;
    const long at = first + scale_quad_at(group, row, false);
    const float factor = scales_have_room ? Codes::range(0) : 1.0f;
    uint integers = 0;
    if (scale_type == kScaleE8m0) {
      const uint e = bytes(scales, new_pair, scale_pair);
      scale[0] = as_type<float>((e << 23) & 0x7F800000u);
      scale[1] = as_type<float>((e << 15) & 0x7F800000u);
      scale[2] = as_type<float>((e << 7) & 0x7F800000u);
      scale[3] = as_type<float>((e >> 1) & 0x7F800000u);
    } else if (scale_type == kScaleE4m3) {
      half h[4];
      e4m3_bits(bytes(scales, new_pair, scale_pair), h);
      UNROLL for (ushort i = 0; i < 4; i++) scale[i] = float(h[i]) * (kE4m3Range * factor);
    } else if (two_level) {
      integers = bytes(scales, new_pair, scale_pair);
      if (new_super_block) scale_factors = factors_of(scales);
      multiply_levels(joined ? integers & kLowNibbles : integers, scale_factors, factor, scale);
    } else if (nested) {
      const uint b = bytes(scales, new_pair, scale_pair);
      const float4 factors = levels.factors(group), offsets = levels.offsets();
      UNROLL for (ushort i = 0; i < 4; i++) scale[i] =
          fma(levels.unit(b >> (8 * i) & 0xFF), factors[i], offsets[i]);
    } else {
      load_floats(scales, at, scale_type, scale);
      if (factor != 1.0f) UNROLL for (ushort i = 0; i < 4; i++) scale[i] *= factor;
    }
    if (joined) {
      if (new_super_block)
        zero_factors = ((const device uint2*)
                            zeros)[(first_factor + joined_factor_quad_at(super_block(), row)) / 2];
      multiply_levels(integers >> 4 & kLowNibbles, zero_factors, -1.0f, weight_zero);
    } else if (zero_kind == kZeroTwoLevel) {
      if (new_super_block) zero_factors = factors_of(zeros);
      multiply_levels(bytes(zeros, new_pair, zero_pair), zero_factors, -1.0f, weight_zero);
    } else if (additive) {
      load_floats(zeros, at, zero_kind - kZeroF32, weight_zero);
    } else if (Codes::zero_point() != 0) {
      const uint z = zero_kind == kZeroInteger ? bytes(zeros, new_pair, zero_pair)
                                               : 0x01010101 * Codes::zero_point();
      UNROLL for (ushort i = 0; i < 4; i++) {
        code_zero[i] = float(z >> (8 * i) & 0xFF) / factor;
        weight_zero[i] = -code_zero[i] * scale[i];
      }
    }
  }

 private:
  const device void *scales, *zeros;
  long first;  // quad, or uint of two-level scales, of the row block
  int quad_blocks;
  long first_factor;  // uint of the row block, of zeros that are factors alone
  ushort row;
  NestedScales levels;
  int group;  // the last one loaded
  uint2 scale_pair, zero_pair, scale_factors, zero_factors;

  /// The place of a quad of bytes.
  long byte_quad(int of, bool pairs) const {
    return first +
           (two_level ? two_level_quad_at(of, row, group_shift) : scale_quad_at(of, row, pairs));
  }
  /// The quad of bytes of the group. With groups of 16, both quads of a pair are loaded at once.
  uint bytes(const device void* from, bool new_pair, thread uint2& pair) const {
    if (group_shift != 4) return ((const device uint*)from)[byte_quad(group, false)];
    if (new_pair) pair = ((const device uint2*)from)[byte_quad(group & ~1, true) / 2];
    const uint even = pair.x, odd = pair.y;  // values: a choice of places would put them in memory
    return (group & 1) == 0 ? even : odd;
  }
  static constexpr constant uint kLowNibbles = 0x0F0F0F0F;
  int super_block() const { return group >> (kSuperBlockShift - group_shift); }
  uint2 factors_of(const device void* from) const {
    return (
        (const device uint2*)from)[(first + factor_quad_at(super_block(), row, group_shift)) / 2];
  }
  /// Four integers times the factors of their super-block and a power of two, exactly.
  static void multiply_levels(uint integers, uint2 factors, float power, thread float* out) {
    UNROLL for (ushort i = 0; i < 4; i++) {
      const half f = as_type<half>(ushort(factors[i / 2] >> (16 * (i % 2))));
      out[i] = float(char(integers >> (8 * i))) * (float(f) * power);
    }
  }
};
