// The common parts of gemv and gemm: their bindings, the loop over K, and the storing of results.
#pragma once
#include "activations.h"
#include "epilogue.h"
#include "scales.h"

#define PRODUCT_PARAMETERS(T)                                                                   \
  const device uint4 *codes [[buffer(MARLIN_BUFFER_CODES)]],                                    \
      const device void *scales [[buffer(MARLIN_BUFFER_SCALES)]],                               \
      const device void *zeros [[buffer(MARLIN_BUFFER_ZEROS), function_constant(has_zeros)]],   \
      const device RowFactor *factors                                                           \
      [[buffer(MARLIN_BUFFER_ROWS), function_constant(finishes_factor)]],                       \
      const device T *a [[buffer(MARLIN_BUFFER_A)]],                                            \
      const device float *a_scales                                                              \
      [[buffer(MARLIN_BUFFER_A_SCALES), function_constant(quantized)]],                         \
      const device void *bias [[buffer(MARLIN_BUFFER_BIAS), function_constant(finishes_bias)]], \
      device void *c [[buffer(MARLIN_BUFFER_C), function_constant(finished)]],                  \
      device float *partials [[buffer(MARLIN_BUFFER_PARTIALS), function_constant(partial)]],    \
      constant ProductArgs &args [[buffer(MARLIN_BUFFER_ARGS)]],                                \
      uint3 group [[threadgroup_position_in_grid]], ushort lane [[thread_index_in_simdgroup]],  \
      ushort simdgroup [[simdgroup_index_in_threadgroup]]

/// The work of a simdgroup: the codes of its row block, and the blocks of K of this split.
template <typename Codes>
struct Walk {
  const device uint4* codes;
  int begin, end;  // blocks of K

  Walk(const device uint4* all, constant ProductArgs& args, long row_block, uint split) {
    codes = all + row_block * Codes::Span::words(args.slots);
    begin = int(split) * args.split_blocks;
    end = min(begin + args.split_blocks, block_count(args.slots));
  }
};

/// Row m of A. Rows past M repeat the last row and are never stored.
template <typename T>
static inline const device T* row_of(const device T* a, constant ProductArgs& args, int m) {
  return a + long(min(m, args.m - 1)) * args.lda;
}
/// The scale of the INT8 activations of row m at `slot`.
static inline float activation_scale(const device float* a_scales, constant ProductArgs& args,
                                     int m, int slot) {
  return a_scales[long(min(m, args.m - 1)) * (args.slots / kActivationBlock) +
                  slot / kActivationBlock];
}
/// Only the last block can have slots without a column of A.
static inline bool needs_care(constant ProductArgs& args, int block) {
  return a_ragged && block == block_count(args.slots) - 1;
}

/// Writes one element of C or of the partials.
static inline void write_sum(float sum, int m, int n, uint split, const device RowFactor* factors,
                             const device void* bias, device void* c, device float* partials,
                             constant ProductArgs& args) {
  if (partial) {
    partials[(long(split) * args.m + m) * args.n + n] = sum;
  } else {
    store(c, long(m) * args.ldc + n, activate(scale_and_bias(sum, n, factors, bias)));
  }
}

/// 1 for every element of a unit that has a zero point or an additive zero, and 0 for an element
/// that is not kept.
static inline void kept_ones(uint4, ushort, thread half2* one) {
  UNROLL for (ushort t = 0; t < 4; t++) one[t] = half2(1.0h);
}
static inline void kept_ones(ByteSpan::Unit, ushort, thread half2* one) {
  kept_ones(uint4(0), 0, one);
}
static inline void kept_ones(SparseSpan::Unit unit, ushort i, thread half2* one) {
  if (!has_zeros) return kept_ones(uint4(0), 0, one);  // decoded as the zero point
  const uint nibbles = kept_nibbles(unit.positions[i]);
  UNROLL for (ushort t = 0; t < 4; t++) one[t] =
      as_type<half2>((t < 3 ? nibbles << (10 - 4 * t) : nibbles >> 2) & 0x3C003C00u);
}

/// The factor that step t of a decoded unit lacks. If the scales have room, they contain range(0).
template <typename Codes>
static inline float range_of(ushort t) {
  return scales_have_room ? Codes::range(t) / Codes::range(0) : Codes::range(t);
}

/// The eight codes of tile i of a unit less their zero points, exactly. If the scales have room,
/// the codes are divided by range(0).
template <typename Codes>
static inline void decode_codes(typename Codes::Span::Unit unit, ushort i,
                                thread const GroupScales<Codes>& group, thread float2* q) {
  half2 h[4], one[4];
  Codes::decode(unit, i, h);
  kept_ones(unit, i, one);
  UNROLL for (ushort t = 0; t < 4; t++) {
    const float range = range_of<Codes>(t);
    if (!Codes::kZeros || additive)
      q[t] = float2(h[t]) * range;
    else
      q[t] = fma(float2(h[t]), float2(range), float2(one[t]) * -group.code_zero[i]);
  }
}

/// The eight weights of tile i of a unit, rounded once.
template <typename Codes>
static inline void decode_weights(typename Codes::Span::Unit unit, ushort i,
                                  thread const GroupScales<Codes>& group, thread float2* w) {
  if (additive || (Codes::kZeros && scales_have_room)) {  // float16 times a zero point is exact
    half2 h[4], one[4];
    Codes::decode(unit, i, h);
    kept_ones(unit, i, one);
    UNROLL for (ushort t = 0; t < 4; t++) {
      const float range = range_of<Codes>(t);
      // Both ways are exact; a scale without room might overflow.
      const float2 q = scales_have_room ? float2(h[t]) : float2(h[t]) * range;
      const float scale = scales_have_room ? group.scale[i] * range : group.scale[i];
      w[t] = fma(q, float2(scale), float2(one[t]) * group.weight_zero[i]);
    }
  } else {
    decode_codes<Codes>(unit, i, group, w);
    UNROLL for (ushort t = 0; t < 4; t++) w[t] *= group.scale[i];
  }
}
