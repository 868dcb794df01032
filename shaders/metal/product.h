// The common parts of gemv and gemm: their bindings, the loop over K, and the storing of results.
#pragma once
#include "activations.h"
#include "epilogue.h"
#include "scales.h"

#define PRODUCT_PARAMETERS(T)                                                                    \
  const device uint4 *codes [[buffer(MARLIN_BUFFER_CODES)]],                                     \
      const device void *scales [[buffer(MARLIN_BUFFER_SCALES)]],                                \
      const device void *zeros [[buffer(MARLIN_BUFFER_ZEROS), function_constant(has_zeros)]],    \
      const device RowFactor *factors                                                            \
      [[buffer(MARLIN_BUFFER_ROWS), function_constant(finishes_factor)]],                        \
      const device T *a [[buffer(MARLIN_BUFFER_A)]],                                             \
      const device float *a_scales                                                               \
      [[buffer(MARLIN_BUFFER_A_SCALES), function_constant(quantized)]],                          \
      const device void *bias [[buffer(MARLIN_BUFFER_BIAS), function_constant(finishes_bias)]],  \
      device void *c [[buffer(MARLIN_BUFFER_C), function_constant(finished)]],                   \
      device float *partials [[buffer(MARLIN_BUFFER_PARTIALS), function_constant(partial)]],     \
      device int *routes [[buffer(MARLIN_BUFFER_ROUTES), function_constant(routed)]],            \
      const device int *ids [[buffer(MARLIN_BUFFER_ROUTED_IDS), function_constant(sorts_rows)]], \
      const device void *id_scales                                                               \
      [[buffer(MARLIN_BUFFER_ROUTED_SCALES), function_constant(sorts_scales)]],                  \
      constant ProductArgs &args [[buffer(MARLIN_BUFFER_ARGS)]],                                 \
      uint3 group [[threadgroup_position_in_grid]], ushort lane [[thread_index_in_simdgroup]],   \
      ushort simdgroup [[simdgroup_index_in_threadgroup]],                                       \
      ushort sharers [[simdgroups_per_threadgroup]]

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

/// The rows of tile number `tile` of tiles of ROWS rows: neighbors in A and C or, with routing, the
/// routed rows of an item. Rows past the last one repeat it and are never stored.
struct TileRows {
  long weights;  // bytes from the first expert's weights to those of the tile
  bool empty;    // the tile has no work: there are fewer items

  TileRows(const device int* routes, constant ProductArgs& args, int tile, int rows)
      : weights(0),
        empty(false),
        first(tile * rows),
        last(args.m - 1),
        rows_of_a(1),
        sorted(nullptr),
        few(0) {
    if (!routed) return;
    empty = tile >= routes[0];
    if (empty) return;
    const device int* item = routes + kRouteItem * (1 + tile);
    weights = item[0] * args.expert_stride;
    first = item[1];
    last = item[1] + item[2] - 1;
    rows_of_a = args.rows_of_a;
    sorted = routes + route_sorted_at(args.items);
  }
  /// The same where no kernel has sorted the rows, of which each lane has one: `expert` is that of
  /// its own. All lanes of a simdgroup call it.
  TileRows(int expert, constant ProductArgs& args, int tile, int rows, ushort lane)
      : weights(0),
        empty(false),
        first(0),
        last(0),
        rows_of_a(args.rows_of_a),
        sorted(nullptr),
        few(0) {
    int before = 0;  // rows of the lane's expert
    for (ushort i = 0; i < args.m; i++) {
      const bool same = simd_shuffle(expert, i) == expert;
      before += same && i < lane ? 1 : 0;
    }
    const bool begins = expert >= 0 && before % rows == 0;
    const int item = simd_prefix_exclusive_sum(begins ? 1 : 0);
    const uint beginner = simd_sum(begins && item == tile ? 1u << lane : 0u);
    empty = beginner == 0;
    if (empty) return;
    const int own = simd_shuffle(expert, ushort(ctz(beginner)));
    const int from = simd_shuffle(before, ushort(ctz(beginner)));
    few = simd_sum(expert == own && before >= from ? 1u << lane : 0u);  // and of later tiles
    weights = own * args.expert_stride;
    last = min(int(popcount(few)), rows) - 1;
  }
  /// The row of A of row i of the tile.
  int of_a(int i) const {
    const int at = min(first + i, last);
    return routed && rows_of_a != 0 ? routed_row(at) / rows_of_a : at;
  }
  bool has(int i) const { return first + i <= last; }
  /// The row of C, or of the partials, of row i of the tile, which must be there.
  int of_c(int i) const { return routed ? routed_row(first + i) : first + i; }

 private:
  int first, last, rows_of_a;
  const device int* sorted;
  uint few;  // the routed rows of the tile, where it has found them itself

  int routed_row(int place) const {
    if (!sorts_rows) return sorted[place];
    uint left = few;
    for (int i = 0; i < place; i++) left &= left - 1;
    return int(ctz(left));
  }
};

/// The expert of the routed row of each lane, as the caller's ids have it, or -1.
static inline int named_expert(const device int* ids, constant ProductArgs& args, ushort lane) {
  if (lane >= args.m) return -1;
  const int id = ids[lane / args.top_k * args.id_stride + lane % args.top_k];
  return id >= 0 && id < args.experts ? id : -1;
}
/// Writes what finish reads of the routed rows.
static inline void tell_finish(device int* routes, const device void* scales, int expert,
                               constant ProductArgs& args, ushort lane) {
  if (lane >= args.m) return;
  routes[route_experts_at(args.items, args.m) + lane] = expert;
  if (!sorts_scales || expert < 0) return;
  const long at = lane / args.top_k * args.scale_stride + lane % args.top_k;
  ((device float*)routes)[route_scales_at(args.items, args.m) + lane] =
      read_float(scales, at, bias_type);
}

/// The memory of the tile's weights, given that of the first expert's.
template <typename T>
static inline const device T* of_expert(const device T* first, thread const TileRows& rows) {
  return (const device T*)((const device char*)first + rows.weights);
}
/// Row m of A.
template <typename T>
static inline const device T* row_of(const device T* a, constant ProductArgs& args, int m) {
  return a + long(m) * args.lda;
}
/// The scale of the INT8 activations of row m at `slot`.
static inline float activation_scale(const device float* a_scales, constant ProductArgs& args,
                                     int m, int slot) {
  return a_scales[long(m) * (args.slots / kActivationBlock) + slot / kActivationBlock];
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
static inline void kept_ones(PlaneSpan::Unit, ushort, thread half2* one) {
  kept_ones(uint4(0), 0, one);
}
static inline void kept_ones(FloatSpan::Unit, ushort, thread half2* one) {
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
  typename Codes::Pair h[4];
  half2 one[4];
  decode_pairs<Codes>(unit, i, group.table, h);
  kept_ones(unit, i, one);
  UNROLL for (ushort t = 0; t < 4; t++) {
    const float range = range_of<Codes>(t);
    if (Codes::zero_point() == 0 || additive)
      q[t] = float2(h[t]) * range;
    else
      q[t] = fma(float2(h[t]), float2(range), float2(one[t]) * -group.code_zero[i]);
  }
}

/// The eight weights of tile i of a unit, rounded once.
template <typename Codes>
static inline void decode_weights(typename Codes::Span::Unit unit, ushort i,
                                  thread const GroupScales<Codes>& group, thread float2* w) {
  if (additive ||
      (Codes::zero_point() != 0 && scales_have_room)) {  // float16 times a zero point is exact
    typename Codes::Pair h[4];
    half2 one[4];
    decode_pairs<Codes>(unit, i, group.table, h);
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
