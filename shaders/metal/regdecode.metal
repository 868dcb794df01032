// C = f(A W^T) by simdgroup_matrix 8x8 with float32 sums. Each simdgroup has a tile of C^T: 32 rows
// of W by 8 TILES rows of A.
//   operand A (8 n x 8 k)   weights: device memory -> registers -> decode -> thread_elements();
//                           never in threadgroup memory
//   operand B (8 k x 8 m)   activations, as float
// A fragment holds the values of weights, so the scale of a group needs no sums of its own.
#include "product.h"

/// The threadgroup memory for activations. It is half of all, so that two threadgroups share
/// a core.
constant constexpr ushort kStageBytes = 16384;
/// The simdgroups of a threadgroup of direct kernels.
constant constexpr ushort kSharers = 4;

/// The fragments of tiles `first` and on of one unit.
template <typename Codes, ushort COUNT>
static inline void decode_tiles(typename Codes::Span::Unit unit, ushort first,
                                thread const GroupScales<Codes>& group,
                                thread simdgroup_float8x8 (&w)[4][COUNT]) {
  UNROLL for (ushort i = 0; i < COUNT; i++) {
    float2 value[4];
    decode_weights<Codes>(unit, first + i, group, value);
    UNROLL for (ushort t = 0; t < 4; t++) {
      w[t][i].thread_elements()[0] = value[t].x;
      w[t][i].thread_elements()[1] = value[t].y;
    }
  }
}

/// Multiplies four steps of eight rows of A: x.lo and x.hi are the lane's columns for its rows 2 j
/// and 2 j + 1 of the tile.
template <typename T, ushort COUNT>
static inline void multiply_tiles(thread const Eight<T>& x, float2 d,
                                  thread simdgroup_float8x8 (&w)[4][COUNT],
                                  thread simdgroup_float8x8* sum) {
  UNROLL for (ushort t = 0; t < 4; t++) {
    simdgroup_float8x8 b;
    b.thread_elements()[0] = Activation<T>::kQuantized ? float(x.lo[t]) * d.x : float(x.lo[t]);
    b.thread_elements()[1] = Activation<T>::kQuantized ? float(x.hi[t]) * d.y : float(x.hi[t]);
    UNROLL for (ushort i = 0; i < COUNT; i++)
        simdgroup_multiply_accumulate(sum[i], w[t][i], b, sum[i]);
  }
}

/// Whether a tile has no rows from its eight rows number m on, so that they need no products. Tiles
/// of experts are seldom full. Those of other products are, but for the last one, and the branches
/// are left out of their kernels.
static inline bool ends_before(thread const TileRows& rows, ushort m) {
  return routed && !rows.has(8 * m);
}

/// The tile of C^T of a simdgroup, and the data of A that a lane needs.
template <typename Codes, typename T, ushort TILES>
struct Tile {
  simdgroup_float8x8 sum[TILES][4];
  const TileRows rows;
  const ushort lane;
  int routed_row[TILES][2];  // of A

  Tile(thread const TileRows& of_tile, ushort in_simdgroup) : rows(of_tile), lane(in_simdgroup) {
    UNROLL for (ushort m = 0; m < TILES; m++) UNROLL for (ushort i = 0; i < 4; i++) sum[m][i] =
        make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
  }
  /// The row of the tile of element e of operand B and of C^T in tile m of 8 rows.
  int row(ushort m, ushort e) const { return 8 * m + 2 * fragment_column(lane) + e; }
  /// The same row of A. Those of experts take loads and divisions, once.
  int row_of_a(ushort m, ushort e) const {
    return routed ? routed_row[m][e] : rows.of_a(row(m, e));
  }
  void find_rows() {
    UNROLL for (ushort m = 0; routed && m < TILES; m++) UNROLL for (ushort e = 0; e < 2; e++)
        routed_row[m][e] = rows.of_a(row(m, e));
  }
  /// The lane's offset in a block for operand B: row r of B is element p = r % 2 of span j = r / 2.
  int column(ushort units) const {
    return kUnitSlots * units * (fragment_row(lane) / 2) + 4 * (fragment_row(lane) % 2);
  }

  /// Loads the scales of a block of INT8 activations; they are 1 for other activations.
  void load_scales(const device float* a_scales, constant ProductArgs& args, int slot,
                   thread float2 (&d)[TILES]) const {
    UNROLL for (ushort m = 0; m < TILES; m++) UNROLL for (ushort e = 0; e < 2; e++) d[m][e] =
        Activation<T>::kQuantized ? activation_scale(a_scales, args, row_of_a(m, e), slot) : 1.0f;
  }

  /// Adds one unit of the four tiles, `AT_ONCE` of them at a time.
  template <ushort AT_ONCE>
  void add_tiles(typename Codes::Span::Unit unit, thread const GroupScales<Codes>& scale,
                 thread const Eight<T>* x, thread const float2* d) {
    UNROLL for (ushort first = 0; first < 4; first += AT_ONCE) {
      simdgroup_float8x8 weights[4][AT_ONCE];
      decode_tiles<Codes>(unit, first, scale, weights);
      UNROLL for (ushort m = 0; m < TILES; m++) {
        if (ends_before(rows, m)) break;
        multiply_tiles(x[m], d[m], weights, sum[m] + first);
      }
    }
  }
  /// The branches of ends_before() keep what is decoded before them in registers, so that fewer
  /// tiles are decoded at once where there are any.
  void add_unit(typename Codes::Span::Unit unit, thread const GroupScales<Codes>& scale,
                thread const Eight<T>* x, thread const float2* d) {
    if (routed)
      add_tiles<2>(unit, scale, x, d);
    else
      add_tiles<4>(unit, scale, x, d);
  }

  /// Adds block b with activations directly from device memory.
  void add_block(thread const Walk<Codes>& walk, thread GroupScales<Codes>& scale,
                 const device T* a, const device float* a_scales, constant ProductArgs& args,
                 int b) {
    const int k0 = block_begin(args.slots, b);
    const ushort units = block_slots(args.slots, b) / kLanes;
    const int span_slot = k0 + kUnitSlots * units * fragment_column(lane), k = k0 + column(units);
    const bool check = needs_care(args, b);
    float2 d[TILES];
    load_scales(a_scales, args, k, d);
    typename Codes::Span span;
    span.open(walk.codes + Codes::Span::words(k0), units, lane);
    for (ushort w = 0; w < units; w++) {
      scale.load(span_slot + kUnitSlots * w);
      Eight<T> x[TILES];
      UNROLL for (ushort m = 0; m < TILES; m++) {
        if (ends_before(rows, m)) break;
        x[m].lo = load4(row_of(a, args, row_of_a(m, 0)), k + kUnitSlots * w, args.k, check);
        x[m].hi = load4(row_of(a, args, row_of_a(m, 1)), k + kUnitSlots * w, args.k, check);
      }
      add_unit(span.unit(w), scale, x, d);
    }
  }

  void write(int n0, uint split, const device RowFactor* factors, const device void* bias,
             device void* c, device float* partials, constant ProductArgs& args) const {
    UNROLL for (ushort m = 0; m < TILES; m++) UNROLL for (ushort e = 0; e < 2; e++)
        UNROLL for (ushort i = 0; i < 4; i++) {
      const int n = n0 + 8 * i + fragment_row(lane);
      if (rows.has(row(m, e)) && n < args.n)
        write_sum(sum[m][i].thread_elements()[e], rows.of_c(row(m, e)), n, split, factors, bias, c,
                  partials, args);
    }
  }
};

/// A threadgroup takes a row block of W. Its simdgroups share K and add their sums at the end, and
/// there is no barrier before. This is for few rows of A, where most reads are weights.
template <typename Codes, typename T, ushort TILES>
kernel void regdecode_direct(PRODUCT_PARAMETERS(T)) {
  threadgroup float2 shared[kSharers][TILES * 4][kLanes];
  const TileRows rows(routes, args, group.y, TILES * 8);
  if (rows.empty) return;
  const ushort sharer = simdgroup;
  const long row_block = group.x;
  const Walk<Codes> walk(of_expert(codes, rows), args, row_block, group.z);
  Tile<Codes, T, TILES> tile(rows, lane);
  GroupScales<Codes> scale(of_expert(scales, rows), of_expert(zeros, rows), args, row_block, lane);
  tile.find_rows();
  for (int b = walk.begin + sharer; b < walk.end; b += kSharers)
    tile.add_block(walk, scale, a, a_scales, args, b);
  UNROLL for (ushort m = 0; m < TILES; m++) UNROLL for (ushort i = 0; i < 4; i++)
      shared[sharer][4 * m + i][lane] =
          float2(tile.sum[m][i].thread_elements()[0], tile.sum[m][i].thread_elements()[1]);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (ushort f = sharer; f < TILES * 4; f += kSharers) {
    float2 sum = shared[0][f][lane];  // in a fixed order
    UNROLL for (ushort s = 1; s < kSharers; s++) sum += shared[s][f][lane];
    const int n = int(row_block) * kRowBlock + 8 * (f % 4) + fragment_row(lane);
    UNROLL for (ushort e = 0; e < 2; e++) if (rows.has(tile.row(f / 4, e)) && n < args.n) write_sum(
        sum[e], rows.of_c(tile.row(f / 4, e)), n, group.z, factors, bias, c, partials, args);
  }
}

/// Activations in threadgroup memory, in the order of fragments. A stage is kUnits units of a
/// 128-slot block: 64 bytes of every row and span (INT8: 32 bytes, which is all), so that it takes
/// whole cache lines. From every eight rows, a thread copies one piece of four columns (float32) or
/// eight. A row has 16 pieces, and neighboring threads read neighboring pieces.
template <typename T, ushort TILES>
struct Stage {
  static constexpr constant ushort kUnits = sizeof(T) == 4 ? 2 : 4, kOfBlock = 4 / kUnits,
                                   kQuads = kUnits / 2;
  typedef vec<T, 4> Quad;
  typedef typename Activation<T>::Words Words;
  typedef Quad Buffer[kUnits][TILES][kLanes]
                     [2];  // [..][0] is the lane's row 2 j of the tile, [..][1] row 2 j + 1
  static_assert(2 * sizeof(Buffer) <= kStageBytes, "one is filled while the other is read");

  ushort row, span, first_quad;  // the thread's in a tile; and in its part of the span
  int row_of_a[TILES];
  Words piece[TILES][kQuads];

  Stage(ushort thread_index, thread const TileRows& rows)
      : row(thread_index / 16), span(thread_index / 4 % 4), first_quad(thread_index % 4 * kQuads) {
    UNROLL for (ushort m = 0; m < TILES; m++) row_of_a[m] = rows.of_a(8 * m + row);
  }

  void load(const device T* a, constant ProductArgs& args, thread const TileRows& rows, int stage) {
    const int block = stage / kOfBlock;
    const int k = block * kBlockSlots + kLanes * span + kUnitSlots * kUnits * (stage % kOfBlock) +
                  4 * first_quad;
    UNROLL for (ushort m = 0; m < TILES; m++) {
      if (ends_before(rows, m)) break;
      const device T* from = row_of(a, args, row_of_a[m]);
      if (kQuads == 1) {
        piece[m][0] = as_type<Words>(load4(from, k, args.k, needs_care(args, block)));
      } else {
        const Eight<T> x = load8(from, k, args.k, needs_care(args, block));
        piece[m][0] = as_type<Words>(x.lo);
        piece[m][kQuads - 1] = as_type<Words>(x.hi);
      }
    }
  }
  /// In operand B, rows 2 span and 2 span + 1 hold the quads of a unit; the row of A is a column.
  void store(threadgroup Buffer& to, thread const TileRows& rows) const {
    UNROLL for (ushort q = 0; q < kQuads; q++) {
      const ushort quad = first_quad + q;
      UNROLL for (ushort m = 0; m < TILES; m++) {
        if (ends_before(rows, m)) break;
        const ushort lane = lane_at(2 * span + quad % 2, row / 2);
        to[quad / 2][m][lane][row % 2] = as_type<Quad>(piece[m][q]);
      }
    }
  }
};

/// A threadgroup takes 32 rows of W for each simdgroup. All share the activations there.
template <typename Codes, typename T, ushort TILES, ushort SIMDGROUPS>
kernel void regdecode_threadgroup(PRODUCT_PARAMETERS(T)) {
  typedef Stage<T, TILES> S;
  threadgroup typename S::Buffer shared[2];
  const long row_block = long(group.x) * SIMDGROUPS + simdgroup;
  const bool live =
      row_block * kRowBlock < args.n;  // a simdgroup past N still copies, and meets every barrier
  const TileRows rows(routes, args, group.y, TILES * 8);
  if (rows.empty) return;
  const Walk<Codes> walk(of_expert(codes, rows), args, row_block, group.z);
  Tile<Codes, T, TILES> tile(rows, lane);
  GroupScales<Codes> scale(of_expert(scales, rows), of_expert(zeros, rows), args, row_block, lane);
  typename Codes::Span span;
  float2 d[TILES];
  S pieces(simdgroup * kLanes + lane, rows);
  const int full_end = min(walk.end, args.slots / kBlockSlots), end = full_end * S::kOfBlock;
  int stage = walk.begin * S::kOfBlock;
  // Planes, sparse codes and float32 activations leave no registers for pieces while fragments are
  // multiplied.
  constexpr bool kAhead = sizeof(T) < 4 && (is_same_v<typename Codes::Span, NibbleSpan> ||
                                            is_same_v<typename Codes::Span, ByteSpan>);
  if (Activation<T>::kQuantized) tile.find_rows();
  if (kAhead && stage < end) pieces.load(a, args, rows, stage);
  for (; stage < end; stage++) {
    // The barrier of the stage before says that all threads have finished with this one.
    threadgroup typename S::Buffer& buffer = shared[stage % 2];
    if (!kAhead) pieces.load(a, args, rows, stage);
    pieces.store(buffer, rows);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (kAhead && stage + 1 < end) pieces.load(a, args, rows, stage + 1);
    if (!live) continue;
    const int k0 = stage / S::kOfBlock * kBlockSlots;
    const ushort first = stage % S::kOfBlock * S::kUnits;
    if (first == 0) {
      span.open(walk.codes + Codes::Span::words(k0), 4, lane);
      tile.load_scales(a_scales, args, k0 + tile.column(4), d);
    }
    for (ushort w = 0; w < S::kUnits; w++) {
      scale.load(k0 + kLanes * fragment_column(lane) + kUnitSlots * (first + w));
      Eight<T> x[TILES];
      UNROLL for (ushort m = 0; m < TILES; m++) {
        if (ends_before(rows, m)) break;
        x[m] = Eight<T>{buffer[w][m][lane][0], buffer[w][m][lane][1]};
      }
      tile.add_unit(span.unit(first + w), scale, x, d);
    }
  }
  if (!live) return;
  if (!Activation<T>::kQuantized) tile.find_rows();
  for (int b = max(full_end, walk.begin); b < walk.end; b++)
    tile.add_block(walk, scale, a, a_scales, args, b);
  tile.write(int(row_block) * kRowBlock, group.z, factors, bias, c, partials, args);
}

#define REGDECODE_DIRECT(name, Codes, a_name, T, ROWS, COLUMNS)                               \
  template [[host_name("regdecode_" #name "_" #a_name "_m" #ROWS "_n" #COLUMNS                \
                       "_direct")]] [[kernel]] decltype(regdecode_direct<Codes, T, ROWS / 8>) \
      regdecode_direct<Codes, T, ROWS / 8>;
#define REGDECODE_THREADGROUP(name, Codes, a_name, T, ROWS, COLUMNS)                    \
  template [[host_name(                                                                 \
      "regdecode_" #name "_" #a_name "_m" #ROWS "_n" #COLUMNS                           \
      "_threadgroup")]] [[kernel]] decltype(regdecode_threadgroup<Codes, T, ROWS / 8,   \
                                                                  COLUMNS / kRowBlock>) \
      regdecode_threadgroup<Codes, T, ROWS / 8, COLUMNS / kRowBlock>;
#include "instances.h"
#define REGDECODE_TILES(name, Codes, a_name, T) \
  MARLIN_REGDECODE_TILES(REGDECODE_DIRECT, REGDECODE_THREADGROUP, name, Codes, a_name, T)
MARLIN_PRODUCTS(REGDECODE_TILES)
