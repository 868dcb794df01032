// C = f(A W^T) by simdgroup_matrix 8x8 with float32 sums. Per simdgroup a tile of C^T: 32 rows of W by 8 TILES rows of A.
//   operand A (8 n x 8 k)   weights: device memory -> registers -> decode -> thread_elements(); never in threadgroup memory
//   operand B (8 k x 8 m)   activations, as float
// The fragment holds the weight's value, so a group's scale needs no sums of its own.
#include "product.h"

/// The 16 fragments of one unit of the four tiles.
template <typename Codes>
static inline void decode_unit(typename Codes::Span::Unit unit, thread const GroupScales<Codes>& group,
                               thread simdgroup_float8x8 (&w)[4][4]) {
  UNROLL for (ushort i = 0; i < 4; i++) {
    half2 h[4], one[4];
    Codes::decode(unit, i, group.zero[i], h);
    if (additive) kept_ones(unit, i, one);
    UNROLL for (ushort t = 0; t < 4; t++) {
      float2 value = float2(Codes::kFp4 && !scales_have_room ? h[t] * half(kFp4Range) : h[t]);
      if (additive) {  // rounded once, as the weight is
        value = fma(value, float2(group.scale[i]), float2(one[t]) * group.additive_zero[i]);
      } else {
        value *= group.scale[i];
      }
      w[t][i].thread_elements()[0] = value.x;
      w[t][i].thread_elements()[1] = value.y;
    }
  }
}

/// Four steps of eight rows of A: x.lo and x.hi are the lane's columns for its rows 2 j and 2 j + 1 of the tile.
template <typename T>
static inline void multiply_unit(thread const Eight<T>& x, float2 d, thread simdgroup_float8x8 (&w)[4][4],
                                 thread simdgroup_float8x8 (&sum)[4]) {
  UNROLL for (ushort t = 0; t < 4; t++) {
    simdgroup_float8x8 b;
    b.thread_elements()[0] = Activation<T>::kQuantized ? float(x.lo[t]) * d.x : float(x.lo[t]);
    b.thread_elements()[1] = Activation<T>::kQuantized ? float(x.hi[t]) * d.y : float(x.hi[t]);
    UNROLL for (ushort i = 0; i < 4; i++) simdgroup_multiply_accumulate(sum[i], w[t][i], b, sum[i]);
  }
}

/// A simdgroup's tile of C^T, and what its lane needs of A.
template <typename Codes, typename T, ushort TILES>
struct Tile {
  simdgroup_float8x8 sum[TILES][4];
  int first_row;  // of A: the tile's
  ushort lane;

  void clear(int m0, ushort in_simdgroup) {
    first_row = m0;
    lane = in_simdgroup;
    UNROLL for (ushort m = 0; m < TILES; m++)
      UNROLL for (ushort i = 0; i < 4; i++) sum[m][i] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
  }
  /// Row of A of element e of operand B and of C^T in 8-row tile m.
  int row(ushort m, ushort e) const { return first_row + 8 * m + 2 * fragment_column(lane) + e; }
  /// The lane's offset in a block, as operand B: row r of B is element p = r % 2 of span j = r / 2.
  int column(ushort units) const { return kUnitSlots * units * (fragment_row(lane) / 2) + 4 * (fragment_row(lane) % 2); }

  /// The scales of INT8 activations of a block; 1 for others.
  void load_scales(const device float* a_scales, constant ProductArgs& args, int slot, thread float2 (&d)[TILES]) const {
    UNROLL for (ushort m = 0; m < TILES; m++)
      d[m] = Activation<T>::kQuantized ? float2(activation_scale(a_scales, args, row(m, 0), slot), activation_scale(a_scales, args, row(m, 1), slot))
                                       : float2(1.0f);
  }

  /// Block b with activations straight from device memory.
  void add_block(thread const Walk<Codes>& walk, thread GroupScales<Codes>& scale, const device void* scales,
                 const device void* zeros, const device T* a, const device float* a_scales, constant ProductArgs& args, int b) {
    const int k0 = block_begin(args.slots, b);
    const ushort units = block_slots(args.slots, b) / kLanes;
    const int span_slot = k0 + kUnitSlots * units * fragment_column(lane), k = k0 + column(units);
    const bool check = needs_care(args, b);
    float2 d[TILES];
    load_scales(a_scales, args, k, d);
    typename Codes::Span span;
    span.open(walk.codes + Codes::Span::words(k0), units, lane);
    for (ushort w = 0; w < units; w++) {
      scale.load(scales, zeros, walk.first_record, span_slot + kUnitSlots * w, args.record_blocks, true);
      simdgroup_float8x8 weights[4][4];
      decode_unit<Codes>(span.unit(w), scale, weights);
      UNROLL for (ushort m = 0; m < TILES; m++) {
        Eight<T> x;
        x.lo = load4(row_of(a, args, row(m, 0)), k + kUnitSlots * w, args.k, check);
        x.hi = load4(row_of(a, args, row(m, 1)), k + kUnitSlots * w, args.k, check);
        multiply_unit<T>(x, d[m], weights, sum[m]);
      }
    }
  }

  void write(int n0, uint split, const device RowFactor* factors, const device void* bias, device void* c,
             device float* partials, constant ProductArgs& args) const {
    UNROLL for (ushort m = 0; m < TILES; m++)
      UNROLL for (ushort e = 0; e < 2; e++)
        UNROLL for (ushort i = 0; i < 4; i++) {
          const int n = n0 + 8 * i + fragment_row(lane);
          if (row(m, e) < args.m && n < args.n)
            write_sum(sum[m][i].thread_elements()[e], row(m, e), n, split, factors, bias, c, partials, args);
        }
  }
};

/// 32 rows of W a threadgroup; its four simdgroups share K and add up at the end. No barrier before that: for few rows of A,
/// where the weights are what there is to read.
template <typename Codes, typename T, ushort TILES>
kernel void gemm_direct(PRODUCT_PARAMETERS(T)) {
  constexpr ushort kSimdgroups = 4;
  threadgroup float2 shared[kSimdgroups][TILES * 4][kLanes];
  const Walk<Codes> walk(codes, args, group.x, group.z, lane);
  Tile<Codes, T, TILES> tile;
  tile.clear(group.y * TILES * 8, lane);
  GroupScales<Codes> scale;
  scale.reset();
  for (int b = walk.begin + simdgroup; b < walk.end; b += kSimdgroups)
    tile.add_block(walk, scale, scales, zeros, a, a_scales, args, b);
  UNROLL for (ushort m = 0; m < TILES; m++)
    UNROLL for (ushort i = 0; i < 4; i++)
      shared[simdgroup][4 * m + i][lane] = float2(tile.sum[m][i].thread_elements()[0], tile.sum[m][i].thread_elements()[1]);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (ushort f = simdgroup; f < TILES * 4; f += kSimdgroups) {
    float2 sum = shared[0][f][lane];  // in a fixed order
    UNROLL for (ushort s = 1; s < kSimdgroups; s++) sum += shared[s][f][lane];
    const int n = int(group.x) * kRowBlock + 8 * (f % 4) + fragment_row(lane);
    UNROLL for (ushort e = 0; e < 2; e++)
      if (tile.row(f / 4, e) < args.m && n < args.n)
        write_sum(sum[e], tile.row(f / 4, e), n, group.z, factors, bias, c, partials, args);
  }
}

/// Activations through threadgroup memory, in the order of fragments. A stage is UNITS (1, 2 or 4) units of a 128-slot block:
/// 32 UNITS columns. A thread copies pieces of eight columns: neighbouring threads read neighbouring pieces, and a piece is two
/// lanes' fragments.
template <typename T, ushort TILES, ushort UNITS>
struct Stage {
  static constexpr constant ushort kPieces = 8 * TILES * 4 * UNITS;
  typedef Eight<T> Buffer[UNITS][TILES][kLanes];

  static ushort row(ushort piece) { return piece / (4 * UNITS); }
  static ushort span(ushort piece) { return piece / UNITS % 4; }
  static ushort unit(ushort piece) { return piece % UNITS; }

  static Eight<T> load(const device T* a, constant ProductArgs& args, int m0, int stage, ushort piece) {
    const int unit_in_k = stage * UNITS + unit(piece);  // four units a block
    const int k = unit_in_k / 4 * kBlockSlots + kLanes * span(piece) + kUnitSlots * (unit_in_k % 4);
    return load8(row_of(a, args, m0 + row(piece)), k, args.k, needs_care(args, unit_in_k / 4));
  }
  /// As operand B, rows 2 span and 2 span + 1 take the halves of the piece; the row of A is a column: element row % 2 of the lane.
  static void store(threadgroup Buffer& to, ushort piece, thread const Eight<T>& x) {
    const ushort lane = lane_at(2 * span(piece), row(piece) % 8 / 2), next = lane_at(2 * span(piece) + 1, row(piece) % 8 / 2);
    threadgroup Eight<T>* tile = to[unit(piece)][row(piece) / 8];
    if (row(piece) % 2 == 0) {
      tile[lane].lo = x.lo;
      tile[next].lo = x.hi;
    } else {
      tile[lane].hi = x.lo;
      tile[next].hi = x.hi;
    }
  }
};

/// 128 rows of W a threadgroup, 32 a simdgroup; all share the staged activations. One barrier a stage: two buffers.
template <typename Codes, typename T, ushort TILES>
kernel void gemm_staged(PRODUCT_PARAMETERS(T)) {
  constexpr ushort kMost = 256 / (8 * TILES * sizeof(T)), UNITS = kMost > 4 ? 4 : kMost;  // two buffers of at most 16 KB
  typedef Stage<T, TILES, UNITS> S;
  constexpr ushort kSimdgroups = 4, kThreads = kSimdgroups * kLanes, kCopies = S::kPieces / kThreads;
  static_assert(S::kPieces % kThreads == 0, "every thread copies the same number of pieces");
  threadgroup typename S::Buffer shared[2];
  const long row_block = long(group.x) * kSimdgroups + simdgroup;
  const bool live = row_block * kRowBlock < args.n;  // a simdgroup past N still copies, and meets every barrier
  const int m0 = group.y * TILES * 8;
  const ushort thread_index = simdgroup * kLanes + lane;
  const Walk<Codes> walk(codes, args, row_block, group.z, lane);
  Tile<Codes, T, TILES> tile;
  tile.clear(m0, lane);
  GroupScales<Codes> scale;
  scale.reset();
  typename Codes::Span span;
  float2 d[TILES];
  Eight<T> piece[kCopies];
  const int full_end = min(walk.end, args.slots / kBlockSlots), end = full_end * (4 / UNITS);
  int stage = walk.begin * (4 / UNITS);
  if (stage < end) {
    UNROLL for (ushort i = 0; i < kCopies; i++) piece[i] = S::load(a, args, m0, stage, thread_index + i * kThreads);
    UNROLL for (ushort i = 0; i < kCopies; i++) S::store(shared[stage & 1], thread_index + i * kThreads, piece[i]);
  }
  for (; stage < end; stage++) {
    // One barrier is enough: it publishes this stage, and says that all have finished with the other buffer.
    threadgroup_barrier(mem_flags::mem_threadgroup);
    const bool more = stage + 1 < end;
    if (more) UNROLL for (ushort i = 0; i < kCopies; i++) piece[i] = S::load(a, args, m0, stage + 1, thread_index + i * kThreads);
    if (live) {
      const int b = stage * UNITS / 4, k0 = b * kBlockSlots;
      if (stage * UNITS % 4 == 0) {
        span.open(walk.codes + Codes::Span::words(k0), 4, lane);
        tile.load_scales(a_scales, args, k0 + tile.column(4), d);
      }
      for (ushort w = 0; w < UNITS; w++) {
        const ushort unit = stage * UNITS % 4 + w;
        scale.load(scales, zeros, walk.first_record, k0 + kLanes * fragment_column(lane) + kUnitSlots * unit, args.record_blocks, true);
        simdgroup_float8x8 weights[4][4];
        decode_unit<Codes>(span.unit(unit), scale, weights);
        UNROLL for (ushort m = 0; m < TILES; m++) {
          const Eight<T> x = shared[stage & 1][w][m][lane];
          multiply_unit<T>(x, d[m], weights, tile.sum[m]);
        }
      }
    }
    if (more) UNROLL for (ushort i = 0; i < kCopies; i++) S::store(shared[(stage + 1) & 1], thread_index + i * kThreads, piece[i]);
  }
  if (!live) return;
  for (int b = max(full_end, walk.begin); b < walk.end; b++) tile.add_block(walk, scale, scales, zeros, a, a_scales, args, b);
  tile.write(int(row_block) * kRowBlock, group.z, factors, bias, c, partials, args);
}

#define GEMM_DIRECT(name, Codes, a_name, T, ROWS)                                       \
  template [[host_name("gemm_" #name "_" #a_name "_m" #ROWS "_n32_direct")]] [[kernel]] \
  decltype(gemm_direct<Codes, T, ROWS / 8>) gemm_direct<Codes, T, ROWS / 8>;
#define GEMM_STAGED(name, Codes, a_name, T, ROWS)                                        \
  template [[host_name("gemm_" #name "_" #a_name "_m" #ROWS "_n128_staged")]] [[kernel]] \
  decltype(gemm_staged<Codes, T, ROWS / 8>) gemm_staged<Codes, T, ROWS / 8>;
#include "instances.h"
#define GEMM_TILES(name, Codes, a_name, T) MARLIN_GEMM_TILES(GEMM_DIRECT, GEMM_STAGED, name, Codes, a_name, T)
MARLIN_PRODUCTS(GEMM_TILES)
