// C = f(A W^T) for up to eight rows of A, in float32 on the ordinary ALUs.
// A threadgroup takes a row block of W. Its simdgroups share K, block by block. Every byte of
// weights is read once for all rows of A. With half and INT8 activations, a scale multiplies the
// sum of its group. For INT8, this sum is an integer and exact in float32 (32 products of at most
// 255 * 127). With float32 and bfloat16 activations, or codes that are floats, such a sum might
// overflow although the product does not. There the scale multiplies each weight, as in the matrix
// kernels.
#include "product.h"

/// The most simdgroups of a threadgroup.
constant constexpr ushort kMostSharers = 8;

/// total + sum * scale * d, for sums of INT8 codes times activations of scale d. `sum` lacks a
/// factor of `range`, which `scale` contains. The order keeps the intermediate product in the range
/// of float32 if the whole product is: with a large scale, sum * d is smaller than the whole
/// product.
static inline float add_scaled(float total, float sum, float scale, float d, float range) {
  const bool large = fabs(scale) > range;
  return fma(large ? sum * range * d : sum * scale, large ? scale / range : d, total);
}

/// The sums of one lane: rows of A times its four tiles.
template <typename Codes, typename T, ushort ROWS>
struct Sums {
  float total[ROWS][4];

  void clear() {
    UNROLL for (ushort m = 0; m < ROWS; m++) UNROLL for (ushort i = 0; i < 4; i++) total[m][i] =
        0.0f;
  }

  /// Adds units first .. first + count - 1 of a span, all of one group. `column` is that of unit 0.
  void add(thread const typename Codes::Span& span, ushort first, ushort count,
           thread const GroupScales<Codes>& group, const device T* const thread* row, int column,
           int K, bool check, thread const float* d) {
    constexpr bool kNarrow = Activation<T>::kQuantized || (Activation<T>::kNarrow && !Codes::kReal);
    float part[ROWS][4], zeros[ROWS][4];
    UNROLL for (ushort m = 0; m < ROWS; m++) UNROLL for (ushort i = 0; i < 4; i++) part[m][i] =
        zeros[m][i] = 0.0f;
    for (ushort w = first; w < first + count; w++) {
      const typename Codes::Span::Unit unit = span.unit(w);
      Eight<T> x[ROWS];
      UNROLL for (ushort m = 0; m < ROWS; m++) x[m] =
          load8(row[m], column + kUnitSlots * w, K, check);
      UNROLL for (ushort i = 0; i < 4; i++) {
        if (!kNarrow) {
          float2 value[4];
          decode_weights<Codes>(unit, i, group, value);
          add_products(value, x, total, i);
          continue;
        }
        float2 q[4];
        decode_codes<Codes>(unit, i, group, q);
        add_products(q, x, part, i);
        if (additive && (Codes::kSparse ||
                         i == 0)) {  // all tiles of dense weights have the same sum of activations
          half2 one[4];
          kept_ones(unit, i, one);
          add_products(one, x, zeros, i);
        }
      }
    }
    if (!kNarrow) return;
    const float range = scales_have_room ? Codes::range(0) : 1.0f;
    UNROLL for (ushort m = 0; m < ROWS; m++) UNROLL for (ushort i = 0; i < 4; i++) {
      const float zero_sum = zeros[m][Codes::kSparse ? i : 0];
      if (Activation<T>::kQuantized) {
        total[m][i] = add_scaled(total[m][i], part[m][i], group.scale[i], d[m], range);
        if (additive)
          total[m][i] = add_scaled(total[m][i], zero_sum, group.weight_zero[i], d[m], 1.0f);
      } else {
        total[m][i] = fma(group.scale[i], part[m][i], total[m][i]);
        if (additive) total[m][i] = fma(group.weight_zero[i], zero_sum, total[m][i]);
      }
    }
  }

  /// Multiplies eight weights, or codes, of tile i by eight columns of each row of A.
  template <typename Pair>
  static void add_products(thread const Pair* w, thread const Eight<T>* x,
                           thread float (&sum)[ROWS][4], ushort i) {
    UNROLL for (ushort t = 0; t < 4; t++) {
      const float2 q = float2(w[t]);
      UNROLL for (ushort m = 0; m < ROWS; m++) sum[m][i] =
          fma(q.y, float(x[m].hi[t]), fma(q.x, float(x[m].lo[t]), sum[m][i]));
    }
  }

  /// The four lanes j = 0..3 of a row hold parts of its four tiles. Halving the tiles twice leaves
  /// tile j in lane j.
  float reduce(ushort m, ushort lane) const {
    const bool odd = lane & 1, high = lane & 8;
    const float a =
        (high ? total[m][2] : total[m][0]) + simd_shuffle_xor(high ? total[m][0] : total[m][2], 8);
    const float b =
        (high ? total[m][3] : total[m][1]) + simd_shuffle_xor(high ? total[m][1] : total[m][3], 8);
    return (odd ? b : a) + simd_shuffle_xor(odd ? a : b, 1);
  }
};

template <typename T>
struct Operands {
  const device uint4* codes;
  const device void *scales, *zeros;
  const device T* a;
  const device float* a_scales;
};

/// The part of a simdgroup in the sums of the first ROWS rows of a tile. It is number sharer.x of
/// sharer.y.
template <typename Codes, typename T, ushort ROWS, ushort ALL>
struct Part {
  /// Tiles of experts are seldom full. One that has half of the rows or less is summed as a tile of
  /// half the rows, and so on. All threads of a threadgroup do the same.
  static void sum(thread const Operands<T>& of, thread const TileRows& tile,
                  constant ProductArgs& args, long row_block, uint split, ushort lane,
                  ushort2 sharer, threadgroup float (&to)[kMostSharers][ALL][kRowBlock]) {
    if (routed && !tile.has(ROWS / 2)) {
      Part<Codes, T, ROWS / 2, ALL>::sum(of, tile, args, row_block, split, lane, sharer, to);
      return;
    }
    const Walk<Codes> walk(of_expert(of.codes, tile), args, row_block, split);
    const device T* row[ROWS];
    UNROLL for (ushort m = 0; m < ROWS; m++) row[m] = row_of(of.a, args, tile.of_a(m));
    Sums<Codes, T, ROWS> sums;
    sums.clear();
    GroupScales<Codes> scale(of_expert(of.scales, tile), of_expert(of.zeros, tile), args, row_block,
                             lane);
    for (int b = walk.begin + sharer.x; b < walk.end; b += sharer.y) {
      const int k0 = block_begin(args.slots, b);
      const ushort units = block_slots(args.slots, b) / kLanes;
      const int column = k0 + kUnitSlots * units * fragment_column(lane);
      float d[ROWS];
      UNROLL for (ushort m = 0; m < ROWS; m++) d[m] =
          Activation<T>::kQuantized ? of.a_scales[(row[m] - of.a + column) / kActivationBlock]
                                    : 1.0f;
      typename Codes::Span span;
      span.open(walk.codes + Codes::Span::words(k0), units, lane);
      const ushort run = group_shift == 4 ? min(units, ushort(2)) : units;  // units of one group
      for (ushort w = 0; w < units; w += run) {
        scale.load(column + kUnitSlots * w);
        sums.add(span, w, run, scale, row, column, args.k, needs_care(args, b), d);
      }
    }
    UNROLL for (ushort m = 0; m < ROWS; m++)
        to[sharer.x][m][8 * fragment_column(lane) + fragment_row(lane)] = sums.reduce(m, lane);
  }
};
/// Every tile has a row.
template <typename Codes, typename T, ushort ALL>
struct Part<Codes, T, 0, ALL> {
  static void sum(thread const Operands<T>&, thread const TileRows&, constant ProductArgs&, long,
                  uint, ushort, ushort2, threadgroup float (&)[kMostSharers][ALL][kRowBlock]) {}
};

template <typename Codes, typename T, ushort ROWS>
kernel void gemv(PRODUCT_PARAMETERS(T)) {
  threadgroup float shared[kMostSharers][ROWS][kRowBlock];
  const int expert = sorts_rows ? named_expert(ids, args, lane) : 0;
  if (sorts_rows && simdgroup == 0 && group.x == 0 && group.y == 0)
    tell_finish(routes, id_scales, expert, args, lane);
  const TileRows tile = sorts_rows ? TileRows(expert, args, group.y, ROWS, lane)
                                   : TileRows(routes, args, group.y, ROWS);
  if (tile.empty) return;
  const long row_block = group.x;
  const Operands<T> operands = {codes, scales, zeros, a, a_scales};
  Part<Codes, T, ROWS, ROWS>::sum(operands, tile, args, row_block, group.z, lane,
                                  ushort2(simdgroup, sharers), shared);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  const int n = int(row_block) * kRowBlock + lane;
  for (ushort m = simdgroup; m < ROWS; m += sharers) {
    if (routed && !tile.has(m)) break;
    float sum = shared[0][m][lane];  // in a fixed order
    for (ushort s = 1; s < sharers; s++) sum += shared[s][m][lane];
    if (tile.has(m) && n < args.n)
      write_sum(sum, tile.of_c(m), n, group.z, factors, bias, c, partials, args);
  }
}

#define GEMV(name, Codes, a_name, T, ROWS)                                \
  template [[host_name("gemv_" #name "_" #a_name "_m" #ROWS)]] [[kernel]] \
  decltype(gemv<Codes, T, ROWS>) gemv<Codes, T, ROWS>;
#include "instances.h"
#define GEMV_ROWS(name, Codes, a_name, T) MARLIN_GEMV_ROWS(GEMV, name, Codes, a_name, T)
MARLIN_PRODUCTS(GEMV_ROWS)
