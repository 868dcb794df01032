// C = f(A W^T) by matmul2d of Metal 4 on operands in registers, which a simdgroup holds in
// fragments of 16 x 16 elements. The weights are the left operand:
//   left    16 rows of W by K    weights: device memory -> registers -> decode -> the fragment
//   right   16 or 32 rows of A by K, transposed; from device memory
//   result  16 rows of W by the rows of A, in float32
// A lane holds four neighbors of row r = fragment_row() and of row r + 8, from element 4 j on, j =
// fragment_column(). (So it is on every GPU that has these operations; it is in no contract, and
// the host checks a product on the device.) The packed layout gives the lane two tiles of rows r
// and r + 8, so that each lane scales its own sums by scales in registers. Which slot is which
// column of K is free.
//
// A product covers a group of 32 slots, as the packed layout has them in the four units of a lane
// of each row. Lane j takes unit j of them: the codes that lane_at(r, group) of other kernels
// reads. It multiplies codes less their zero points, which 16 bits hold. Additive zeros are
// multiplied by the sums of A over the group. Groups of 16 are those of NVFP4, whose codes times
// their scales 16 bits hold, too (6 bits from 2^-10 to 2688): there the weights are multiplied.
#include "../metal/product.h"

#include <MetalPerformancePrimitives/MetalPerformancePrimitives.h>
#include <metal_tensor>

using namespace mpp::tensor_ops;

/// The simdgroups of a threadgroup, which share K.
constant constexpr ushort kSharers = 4;

/// What multiplies a group: of 16 rows of A all 32 slots at once, of 32 rows in two steps.
template <ushort TILES>
struct Product {
  static constexpr constant ushort kSteps = TILES, kLeft = 16 / TILES, kRight = 16,
                                   kSums = 8 * TILES;
  /// The half of a unit, slots 0..3 or 4..7, of an element of a step; and the eight rows of A.
  static ushort half_of(ushort step, ushort e) { return TILES == 1 ? e / 8 : step; }
  static ushort tile_of(ushort e) { return TILES == 1 ? 0 : e / 8; }
};

/// Rows of A as a lane has them: rows r and r + 8 of each 16.
template <typename T, ushort TILES>
struct RowsOfA {
  const device T* row[TILES][2];
  Eight<T> x[TILES][2];

  RowsOfA(const device T* a, constant ProductArgs& args, thread const TileRows& rows, ushort lane) {
    UNROLL for (ushort t = 0; t < TILES; t++) UNROLL for (ushort h = 0; h < 2; h++) row[t][h] =
        row_of(a, args, rows.of_a(16 * t + 8 * h + fragment_row(lane)));
  }
  void load(int column, int K, bool check) {
    UNROLL for (ushort t = 0; t < TILES; t++) UNROLL for (ushort h = 0; h < 2; h++) x[t][h] =
        load8(row[t][h], column, K, check);
  }
  /// The sums of rows 4 j .. 4 j + 3 of tile t over the group.
  void sums(ushort t, ushort lane, thread float (&sum)[4]) const {
    float own[2];
    UNROLL for (ushort h = 0; h < 2; h++) {
      own[h] = 0.0f;
      UNROLL for (ushort i = 0; i < 4; i++) own[h] += float(x[t][h].lo[i]) + float(x[t][h].hi[i]);
      own[h] += simd_shuffle_xor(own[h], 1);
      own[h] += simd_shuffle_xor(own[h], 8);
    }
    const ushort j = fragment_column(lane);
    const float given = j < 2 ? own[0] : own[1];  // the row that a lane of this j wants
    UNROLL for (ushort i = 0; i < 4; i++) sum[i] =
        simd_shuffle(given, ushort(lane_at((4 * j + i) % 8, j)));
  }
};

/// Whether weights are multiplied instead of codes.
constant bool scales_first = group_shift == 4;

/// The factor that decoded codes lack because their scale contains it. Codes are multiplied by it,
/// and the product is divided by it again, because the scale divided by it may be too small.
template <typename Codes>
static inline float missing_range() {
  return scales_have_room && !scales_first ? Codes::range(0) : 1.0f;
}

/// Adds the products of two of the four tiles of a row block, from tile 2 `pair` on.
template <typename Codes, typename T, ushort TILES>
static inline void add_pair(thread const float2 (&q)[2][4], thread const RowsOfA<T, TILES>& a,
                            thread const float* scale, thread const float* zero,
                            thread const float (&sums_of_a)[TILES][4],
                            thread float (&sum)[8 * TILES]) {
  typedef Product<TILES> P;
  constexpr matmul2d_descriptor kProduct(16, 16 * TILES, 32 / TILES, false, true, false,
                                         matmul2d_descriptor::mode::multiply_accumulate);
  matmul2d<kProduct, execution_simdgroup> op;
  auto left = op.template get_left_input_cooperative_tensor<T, T, float>();
  auto right = op.template get_right_input_cooperative_tensor<T, T, float>();
  auto product =
      op.template get_destination_cooperative_tensor<remove_addrspace_t<decltype(left)>,
                                                     remove_addrspace_t<decltype(right)>, float>();
  if (left.get_capacity() != P::kLeft || right.get_capacity() != P::kRight ||
      product.get_capacity() != P::kSums) {  // other fragments, which the host finds by the result
    UNROLL for (ushort e = 0; e < P::kSums; e++) sum[e] = NAN;
    return;
  }
  UNROLL for (ushort e = 0; e < P::kSums; e++) product[e] = 0.0f;
  UNROLL for (ushort step = 0; step < P::kSteps; step++) {
    UNROLL for (ushort e = 0; e < P::kLeft; e++) {
      const float2 both = q[e % 8 / 4][e % 4];
      left[e] = T((P::half_of(step, e) == 0 ? both.x : both.y) * missing_range<Codes>());
    }
    UNROLL for (ushort e = 0; e < P::kRight; e++) {
      const Eight<T> x = a.x[P::tile_of(e)][e % 8 / 4];
      right[e] = P::half_of(step, e) == 0 ? x.lo[e % 4] : x.hi[e % 4];
    }
    op.run(left, right, product);
  }
  UNROLL for (ushort e = 0; e < P::kSums; e++) {
    const ushort h = e % 8 / 4;
    sum[e] =
        fma(product[e] * (1.0f / missing_range<Codes>()), scales_first ? 1.0f : scale[h], sum[e]);
    if (additive) sum[e] = fma(zero[h], sums_of_a[e / 8][e % 4], sum[e]);
  }
}

template <typename Codes, typename T, ushort TILES>
kernel void regdecode_nax(PRODUCT_PARAMETERS(T)) {
  constexpr ushort kSums = 8 * TILES;
  threadgroup float shared[kSharers][2 * kSums][kLanes];
  const TileRows rows(routes, args, group.y, TILES * 16);
  if (rows.empty) return;
  const long row_block = group.x;
  const ushort r = fragment_row(lane), j = fragment_column(lane);
  const Walk<Codes> walk(of_expert(codes, rows), args, row_block, group.z);
  GroupScales<Codes> scale(of_expert(scales, rows), of_expert(zeros, rows), args, row_block, lane);
  RowsOfA<T, TILES> x(a, args, rows, lane);
  float sum[2][kSums];
  UNROLL for (ushort e = 0; e < kSums; e++) sum[0][e] = sum[1][e] = 0.0f;
  for (int b = walk.begin + simdgroup; b < walk.end; b += kSharers) {
    const int k0 = block_begin(args.slots, b);
    const ushort units = block_slots(args.slots, b) / kLanes;
    for (ushort g = 0; g < units; g++) {  // a lane has so many units, and a block so many groups
      const int k = k0 + kLanes * g;
      const ushort unit = 4 * g + j;
      typename Codes::Span span;
      span.open(walk.codes + Codes::Span::words(k0), units, ushort(lane_at(r, unit / units)));
      const typename Codes::Span::Unit codes_of_unit = span.unit(unit % units);
      scale.load(scales_first ? k + kUnitSlots * j : k);
      x.load(k + kUnitSlots * j, args.k, needs_care(args, b));
      float sums_of_a[TILES][4];
      if (additive) UNROLL for (ushort t = 0; t < TILES; t++) x.sums(t, lane, sums_of_a[t]);
      UNROLL for (ushort pair = 0; pair < 2; pair++) {
        float2 q[2][4];
        UNROLL for (ushort h = 0; h < 2; h++) {
          if (scales_first)
            decode_weights<Codes>(codes_of_unit, 2 * pair + h, scale, q[h]);
          else
            decode_codes<Codes>(codes_of_unit, 2 * pair + h, scale, q[h]);
        }
        add_pair<Codes>(q, x, scale.scale + 2 * pair, scale.weight_zero + 2 * pair, sums_of_a,
                        sum[pair]);
      }
    }
  }
  UNROLL for (ushort pair = 0; pair < 2; pair++) UNROLL for (ushort e = 0; e < kSums; e++)
      shared[simdgroup][kSums * pair + e][lane] = sum[pair][e];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (ushort f = simdgroup; f < 2 * kSums; f += kSharers) {
    float all = shared[0][f][lane];  // in a fixed order
    UNROLL for (ushort s = 1; s < kSharers; s++) all += shared[s][f][lane];
    const ushort e = f % kSums, m = 16 * (e / 8) + 4 * j + e % 4;
    const int n = int(row_block) * kRowBlock + 16 * (f / kSums) + 8 * (e % 8 / 4) + r;
    if (rows.has(m) && n < args.n)
      write_sum(all, rows.of_c(m), n, group.z, factors, bias, c, partials, args);
  }
}

#ifndef MARLIN_PRODUCTS
#define MARLIN_PRODUCTS(X) MARLIN_NAX_CODES(X, f16, half) MARLIN_NAX_CODES(X, bf16, bfloat)
#endif
#ifndef MARLIN_NAX_ROWS
#define MARLIN_NAX_ROWS(X, ...) X(__VA_ARGS__, 16) X(__VA_ARGS__, 32)
#endif
#include "../metal/instances.h"
#define REGDECODE_NAX(name, Codes, a_name, T, ROWS)                                       \
  template [[host_name("regdecode_" #name "_" #a_name "_m" #ROWS "_n32_nax")]] [[kernel]] \
  decltype(regdecode_nax<Codes, T, ROWS / 16>) regdecode_nax<Codes, T, ROWS / 16>;
#define NAX_ROWS(name, Codes, a_name, T) MARLIN_NAX_ROWS(REGDECODE_NAX, name, Codes, a_name, T)
MARLIN_PRODUCTS(NAX_ROWS)
