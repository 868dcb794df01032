// C = f(A W^T) by matmul2d of Metal 4, which the matrix units of Apple 10 and later serve. A
// threadgroup takes 64 rows of A by 64 rows of W, with float32 sums. These kernels are a library of
// their own, because its headers exist only from macOS 26 on.
//
// The tiles in threadgroup memory have the type of the activations, half or bfloat. This type holds
// the activations as given, and codes less their zero points exactly (8 bits at most), but not
// weights. Therefore a product covers at most one group of K, and its scale is applied when the
// product is added to the sums, as are additive zeros times the sums of A over the group. (Of 2:4
// sparse weights they take a second product instead, with 1 for every kept element.)
#include "../metal/product.h"

#include <MetalPerformancePrimitives/MetalPerformancePrimitives.h>
#include <metal_tensor>

using namespace mpp::tensor_ops;

constant constexpr ushort kTile = 64;   // rows of A, and of W
constant constexpr ushort kStage = 64;  // slots of K at a time: 8 KB each for A and W, of 32 KB
constant constexpr ushort kSimdgroups = 4, kThreads = kSimdgroups * kLanes;

template <typename T>
struct Stage {
  T a[kTile * kStage], w[kTile * kStage];  // [row][slot]
  // Of a product's group, for each row of W, and for each row of A.
  float scale[kStage / 16][kTile], zero[kStage / 16][kTile], sum_of_a[kStage / 16][kTile];

  static threadgroup T* unit(threadgroup T* tile, ushort row, ushort slot) {
    return tile + row * kStage + slot;
  }
  static void put(threadgroup T* to, vec<T, 4> lo, vec<T, 4> hi) {
    ((threadgroup vec<T, 4>*)to)[0] = lo;
    ((threadgroup vec<T, 4>*)to)[1] = hi;
  }
};

template <typename Codes>
static inline bool sums_a() {
  return additive && !Codes::kSparse;
}

/// The slots of a stage: `count` slots, 64 or 32, from slot `from` of block b on.
struct SlotRange {
  int b;
  ushort from, count;
};

/// Rows past M repeat the last row; slots after those of the stage are 0.
template <typename Codes, typename T, ushort STEP>
static inline void stage_activations(threadgroup Stage<T>& stage, const device T* a,
                                     constant ProductArgs& args, thread const TileRows& rows,
                                     SlotRange place, ushort thread_index) {
  constexpr ushort kRowUnits = kStage / kUnitSlots;
  UNROLL for (ushort i = 0; i < kTile * kRowUnits / kThreads; i++) {
    const ushort unit = thread_index + i * kThreads, row = unit / kRowUnits,
                 slot = unit % kRowUnits * kUnitSlots;
    const Eight<T> x =
        load8(row_of(a, args, rows.of_a(row)), block_begin(args.slots, place.b) + place.from + slot,
              args.k, needs_care(args, place.b) || slot >= place.count);
    Stage<T>::put(Stage<T>::unit(stage.a, row, slot), x.lo, x.hi);
    if (!sums_a<Codes>()) continue;
    float sum = 0.0f;
    UNROLL for (ushort t = 0; t < 4; t++) sum += float(x.lo[t]) + float(x.hi[t]);
    UNROLL for (ushort units = 1; units < STEP / kUnitSlots; units *= 2) sum +=
        simd_shuffle_xor(sum, units);  // neighboring lanes have neighboring units
    if (slot % STEP == 0) stage.sum_of_a[slot / STEP][row] = sum;
  }
}

/// The factor that decoded codes lack because their scale contains it. Codes are multiplied by it,
/// and the product is divided by it again, because the scale divided by it may be too small.
template <typename Codes>
static inline float missing_range() {
  return scales_have_room ? Codes::range(0) : 1.0f;
}

/// A thread decodes one unit of four rows of a stage. Neighboring threads are neighboring lanes of
/// the packed layout.
template <typename Codes, typename T, ushort STEP>
static inline void stage_weights(threadgroup Stage<T>& stage, const device uint4* codes,
                                 const device void* scales, const device void* zeros,
                                 constant ProductArgs& args, uint column_tile, SlotRange place,
                                 bool ones, ushort thread_index) {
  const ushort slots = block_slots(args.slots, place.b),
               lanes = slots == kBlockSlots ? 16 : 32;  // half of a block of 128
  const ushort rows = thread_index / place.count, piece = thread_index % place.count;
  if (rows >=
      kTile / kRowBlock) {  // half of the threads stage 32 slots; the others put 0 after them
    UNROLL for (ushort slot = kTailSlots; slot < kStage; slot += kUnitSlots) Stage<T>::put(
        Stage<T>::unit(stage.w, thread_index - kTile, slot), vec<T, 4>(T(0)), vec<T, 4>(T(0)));
    return;
  }
  const ushort at = piece % lanes, w = piece / lanes;
  const ushort lane =
      lanes == 32 ? at : ushort((at & 8) << 1 | (place.from / kStage) << 3 | (at & 7));
  const long row_block =
      min(long(column_tile) * (kTile / kRowBlock) + rows, long(args.n - 1) / kRowBlock);
  const Walk<Codes> walk(codes, args, row_block, 0);
  const ushort slot = slots / 4 * fragment_column(lane) + kUnitSlots * w;
  const int k0 = block_begin(args.slots, place.b);
  GroupScales<Codes> group(scales, zeros, args, row_block, lane);
  group.load(k0 + slot);
  typename Codes::Span span;
  span.open(walk.codes + Codes::Span::words(k0), slots / kLanes, lane);
  const typename Codes::Span::Unit unit = span.unit(w);
  UNROLL for (ushort i = 0; i < 4; i++) {
    half2 one[4];
    float2 q[4];
    kept_ones(unit, i, one);
    decode_codes<Codes>(unit, i, group, q);
    vec<T, 4> lo, hi;
    UNROLL for (ushort t = 0; t < 4; t++) {
      const float2 code = ones ? float2(one[t]) : q[t] * missing_range<Codes>();
      lo[t] = T(code.x), hi[t] = T(code.y);
    }
    const ushort row = kRowBlock * rows + 8 * i + fragment_row(lane), column = slot - place.from;
    Stage<T>::put(Stage<T>::unit(stage.w, row, column), lo, hi);
    if (column % STEP != 0) continue;
    stage.scale[column / STEP][row] = ones ? group.weight_zero[i] : group.scale[i];
    if (sums_a<Codes>()) stage.zero[column / STEP][row] = group.weight_zero[i];
  }
}

/// A product has STEP slots: the group, or the stage if groups are longer.
template <typename Codes, typename T, ushort STEP>
static inline void multiply(threadgroup Stage<T>& stage, const device uint4* codes,
                            const device void* scales, const device void* zeros,
                            const device RowFactor* factors, const device T* a,
                            const device void* bias, device void* c, device float* partials,
                            constant ProductArgs& args, thread const TileRows& rows, uint3 group,
                            ushort thread_index) {
  typedef tensor<threadgroup T, dextents<int, 2>, tensor_inline> Tile;
  constexpr matmul2d_descriptor kProduct(kTile, kTile, STEP, false, true, false,
                                         matmul2d_descriptor::mode::multiply);
  matmul2d<kProduct, execution_simdgroups<kSimdgroups>> op;
  Tile all_a(stage.a, dextents<int, 2>(kStage, kTile)),
      all_w(stage.w, dextents<int, 2>(kStage, kTile));
  auto step_a = all_a.template slice<STEP, kTile>(0, 0);
  auto step_w = all_w.template slice<STEP, kTile>(0, 0);
  auto product =
      op.template get_destination_cooperative_tensor<decltype(step_a), decltype(step_w), float>();
  auto sum =
      op.template get_destination_cooperative_tensor<decltype(step_a), decltype(step_w), float>();
  UNROLL for (ushort i = 0; i < sum.get_capacity(); i++) if (sum.is_valid_element(i)) sum[i] = 0.0f;

  const int n0 = group.x * kTile;
  const int begin = int(group.z) * args.split_blocks,
            end = min(begin + args.split_blocks, block_count(args.slots));
  for (int b = begin; b < end; b++)
    for (int from = 0; from < block_slots(args.slots, b); from += kStage)
      for (ushort term = 0; term < (additive && Codes::kSparse ? 2 : 1); term++) {
        const SlotRange place{b, ushort(from),
                              ushort(min(block_slots(args.slots, b), marlin_int(kStage)))};
        threadgroup_barrier(mem_flags::mem_threadgroup);  // the last stage was multiplied
        if (term == 0) stage_activations<Codes, T, STEP>(stage, a, args, rows, place, thread_index);
        stage_weights<Codes, T, STEP>(stage, codes, scales, zeros, args, group.x, place, term == 1,
                                      thread_index);
        threadgroup_barrier(mem_flags::mem_threadgroup);
        for (ushort slot = 0; slot < place.count; slot += STEP) {
          auto a_slice = all_a.template slice<STEP, kTile>(slot, 0);
          auto w_slice = all_w.template slice<STEP, kTile>(slot, 0);
          op.run(a_slice, w_slice, product);
          const ushort step = slot / STEP;
          const float range = term == 0 ? 1.0f / missing_range<Codes>() : 1.0f;
          UNROLL for (ushort i = 0; i < sum.get_capacity(); i++) {
            if (!sum.is_valid_element(i)) continue;
            const auto at = sum.get_multidimensional_index(i);  // column, row
            sum[i] = fma(product[i] * range, stage.scale[step][at[0]], sum[i]);
            if (sums_a<Codes>())
              sum[i] = fma(stage.zero[step][at[0]], stage.sum_of_a[step][at[1]], sum[i]);
          }
        }
      }
  UNROLL for (ushort i = 0; i < sum.get_capacity(); i++) {
    if (!sum.is_valid_element(i)) continue;
    const auto at = sum.get_multidimensional_index(i);  // column, row
    const int n = n0 + at[0];
    if (rows.has(at[1]) && n < args.n)
      write_sum(sum[i], rows.of_c(at[1]), n, group.z, factors, bias, c, partials, args);
  }
}

#ifndef MARLIN_TENSOR_STEPS
#define MARLIN_TENSOR_STEPS(X) X(16) X(32) X(64)
#endif
template <typename Codes, typename T>
kernel void regdecode_tensor(PRODUCT_PARAMETERS(T)) {
  threadgroup Stage<T> stage;
  const TileRows rows(routes, args, group.y, kTile);
  if (rows.empty) return;
  codes = of_expert(codes, rows);
  scales = of_expert(scales, rows);
  zeros = of_expert(zeros, rows);
  const ushort thread_index = simdgroup * kLanes + lane;
  // A compiler may refuse one of the steps, so that others are compiled without it.
  const ushort step = min(ushort(kStage), ushort(1 << group_shift));
#define MULTIPLY(STEP)                                                                         \
  if (step == STEP)                                                                            \
    multiply<Codes, T, STEP>(stage, codes, scales, zeros, factors, a, bias, c, partials, args, \
                             rows, group, thread_index);
  MARLIN_TENSOR_STEPS(MULTIPLY)
}

#ifndef MARLIN_PRODUCTS
#define MARLIN_PRODUCTS(X) MARLIN_TENSOR_CODES(X, f16, half) MARLIN_TENSOR_CODES(X, bf16, bfloat)
#endif
#include "../metal/instances.h"
#define GEMM_TENSOR(name, Codes, a_name, T)                                           \
  template [[host_name("regdecode_" #name "_" #a_name "_m64_n64_tensor")]] [[kernel]] \
  decltype(regdecode_tensor<Codes, T>) regdecode_tensor<Codes, T>;
MARLIN_PRODUCTS(GEMM_TENSOR)
