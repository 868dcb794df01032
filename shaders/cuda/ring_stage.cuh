// A stage of a warp's ring of weights (ring.cuh): its sizes, and the products of its chunks.
#pragma once
#include "hopper.cuh"
#include "sparse.cuh"

constexpr int kMostStages = 8;
constexpr int kMostStageChunks = 4;  // of 64 slots

/// The sizes of a stage: of an equal share of a warp's part, of up to four chunks, or of as many
/// as leave room for three stages. (Divisions by numbers that the compiler does not know would take
/// a tenth of a small product's time.)
template <class Op>
struct StageShape {
  static constexpr int kWantedStages = 3;
  static constexpr int kUnitChunks = Op::kGroupsOf128 ? 2 : 1;  // whose scales are one piece
  static constexpr int kUnitBytes =
      kUnitChunks * Op::kChunkCodes + Op::kScaleBytes + Op::kZeroBytes;
  static constexpr int kMost = kMostStageChunks / kUnitChunks;
  int units = 1, stages = 0, stages_of_part;

  /// For the longest part of a warp, in units, and as many bytes of each warp.
  __device__ StageShape(int longest, int room) {
    stages_of_part = longest;
    UNROLL for (int i = 2; i <= kMost; i++) if (room >= kWantedStages * i * kUnitBytes)
        stages_of_part = (longest + i - 1) / i;
    UNROLL for (int i = 1; i < kMost; i++) if (units * stages_of_part < longest) units++;
    UNROLL for (int i = 1; i <= kMost; i++) if (units == i) stages = room / (i * kUnitBytes);
    stages = min(stages, kMostStages);
  }
  __device__ int chunks() const { return units * kUnitChunks; }
  __device__ int bytes() const { return units * kUnitBytes; }
  __device__ int scales_at() const { return chunks() * Op::kChunkCodes; }
  __device__ int zeros_at() const { return scales_at() + units * Op::kScaleBytes; }
};

/// How codes are decoded: of INT4 quickly, but with additive zeros, which leave no register for it.
template <class Codes, class Form>
struct RingCodes {
  typedef Codes type;
};
template <class Form>
  requires(Form::kZero < kZeroF32)
struct RingCodes<U4, Form> {
  typedef QuickU4 type;
};

template <class Form>
struct RingCodes<Lut4, Form> {
  typedef LookedUpPairs<0> type;
};

/// The numbers of a quad, of ELEMENT bytes, that lane row g needs.
template <int ELEMENT, int WORDS>
__device__ inline void read_quad(const unsigned char* quad, int g, u32 (&to)[WORDS]) {
  if constexpr (ELEMENT == 1) {
    to[0] = *reinterpret_cast<const u32*>(quad + 4 * g);
  } else if constexpr (ELEMENT == 2) {
    const uint2 two = *reinterpret_cast<const uint2*>(quad + 8 * g);
    to[0] = two.x;
    to[1] = two.y;
  } else if constexpr (ELEMENT == 4) {
    const uint4 four = *reinterpret_cast<const uint4*>(quad + 16 * g);
    to[0] = four.x;
    to[1] = four.y;
    to[2] = four.z;
    to[3] = four.w;
  }
}

/// What a lane reads of the scales and zeros number `c` of a stage: of 64 slots, or of 128 if that
/// is the group.
template <class Op>
__device__ inline ChunkScales<Op, 2> read_scales(const unsigned char* stage,
                                                 const StageShape<Op>& shape, int c, int g) {
  ChunkScales<Op, 2> to{};
  const unsigned char* const scales = stage + shape.scales_at() + c * Op::kScaleBytes;
  const unsigned char* const zeros = stage + shape.zeros_at() + c * Op::kZeroBytes;
  if constexpr (Op::kE4m3) {
    UNROLL for (int u = 0; u < 2; u++) {  // quads in pairs
      const uint2 two = *reinterpret_cast<const uint2*>(scales + 64 * u + 8 * g);
      to.scales[2 * u][0] = two.x;
      to.scales[2 * u + 1][0] = two.y;
    }
  } else {
    constexpr int kScale = Op::kScaleElement, kZero = Op::kZeroElement;
    UNROLL for (int q = 0; q < Op::kQuads; q++) {
      read_quad<kScale>(scales + q * kRowBlock * kScale, g, to.scales[q]);
      read_quad<kZero>(zeros + q * kRowBlock * kZero, g, to.zeros[q]);
    }
  }
  return to;
}

/// Operands B of both steps of unit `u` of chunk `c` of a warp's part of A (copy_activations).
__device__ inline void read_activations(const unsigned char* x, int c, int u, u32 (&b)[4]) {
  const uint4 both_steps = *reinterpret_cast<const uint4*>(x + 128 * c + 64 * u);
  b[0] = both_steps.x;
  b[1] = both_steps.y;
  b[2] = both_steps.z;
  b[3] = both_steps.w;
}
/// Those of both units.
__device__ inline void read_activations(const unsigned char* x, int c, u32 (&b)[2][4]) {
  UNROLL for (int u = 0; u < 2; u++) read_activations(x, c, u, b[u]);
}
/// A lane's positions of the kept codes of a chunk of 2:4 weights, for both halves of the row
/// block.
__device__ inline uint2 positions_of_chunk(const unsigned char* codes, int lane) {
  return *reinterpret_cast<const uint2*>(codes + 16 * kLanes + 8 * lane);
}

/// Adds the products of a step of a unit, whose operands B of both steps are `b`, and A for
/// additive zeros.
template <class Op, class Number>
__device__ inline void multiply_step(float (&sum)[4], float (&sum_of_a)[4], const u32 (&a)[4],
                                     const u32 (&b)[4], int step) {
  const u32 of_step[2] = {b[2 * step], b[2 * step + 1]};
  Number::mma(sum, a, of_step);
  if constexpr (Op::kAdditive) {
    const u32 ones[4] = {Number::kOne, Number::kOne, Number::kOne, Number::kOne};
    Number::mma(sum_of_a, ones, of_step);
  }
}
/// Adds the sums of the group of step `step`, times its scale, and those of A times its zero.
template <class Op, int HALF, int HALVES>
__device__ inline void add_group(const float (&sum)[4], const float (&sum_of_a)[4],
                                 const ChunkScales<Op, HALVES>& scales, int step,
                                 float (&total)[4]) {
  UNROLL for (int i = 0; i < 4; i++) {
    total[i] = fmaf(sum[i], Op::template scale<HALF>(scales, step, i / 2), total[i]);
    if constexpr (Op::kAdditive)
      total[i] = fmaf(sum_of_a[i % 2], Op::template zero<HALF>(scales, step, i / 2), total[i]);
  }
}

/// A lane's weights of 64 slots and of one half of the row block: operands A of two units.
template <class Codes, class Number, class Form, bool SPARSE = Codes::kSparse>
struct HalfChunk {
  typedef Operand<Codes, Number, Form> Op;
  u32 a[4][4];

  /// Chunk `c` of a stage.
  template <int HALF>
  __device__ void read(const unsigned char* stage, int c, const ChunkScales<Op, 2>& scales,
                       int lane) {
    uint4 q[Op::kPieces];
    UNROLL for (int i = 0; i < Op::kPieces; i++) q[i] = *reinterpret_cast<const uint4*>(
        stage + c * Op::kChunkCodes + 1024 * i + 512 * HALF + 16 * lane);
    Op::template decode<HALF>(q, scales, a);
  }
  /// Adds the products of a unit, whose operands B of both steps are `b`, and A for additive zeros.
  __device__ void multiply(float (&sum)[4], float (&sum_of_a)[4], int unit,
                           const u32 (&b)[4]) const {
    UNROLL for (int step = 0; step < 2; step++)
        multiply_step<Op, Number>(sum, sum_of_a, a[2 * unit + step], b, step);
  }
};
/// Of 2:4 weights: kept codes of both halves, and then positions.
template <class Codes, class Number, class Form>
struct HalfChunk<Codes, Number, Form, true> {
  typedef Operand<Codes, Number, Form> Op;
  u32 a[2][4], positions;

  template <int HALF>
  __device__ void read(const unsigned char* stage, int c, const ChunkScales<Op, 2>& scales,
                       int lane) {
    const uint4 q = *reinterpret_cast<const uint4*>(stage + c * Op::kChunkCodes + 16 * lane);
    const u32 kept[2] = {HALF == 0 ? q.x : q.z, HALF == 0 ? q.y : q.w};
    const uint2 p = positions_of_chunk(stage + c * Op::kChunkCodes, lane);
    positions = HALF == 0 ? p.x : p.y;
    Op::template decode_kept<HALF>(kept, scales, a);
  }
  __device__ void multiply(float (&sum)[4], float (&)[4], int unit, const u32 (&b)[4]) const {
    mma_sparse<Number>(sum, a[unit], b, positions, unit);
  }
};

/// Adds the products of a stage of `chunks` chunks to the sums of both halves of the row block.
template <class Codes, class Number, class Form>
__device__ inline void add_stage(const unsigned char* stage,
                                 const StageShape<Operand<Codes, Number, Form>>& shape,
                                 const unsigned char* x, int chunks, int lane,
                                 float (&total)[2][4]) {
  typedef Operand<Codes, Number, Form> Op;
  const int g = lane / 4;
  float part[2][4];
  ChunkScales<Op, 2> scales{};
  // Additive zeros take registers, and so do short groups: fewer chunks are under way.
  constexpr bool kOf64 = !Op::kFolded && !Op::kGroupsOf128 && Op::kGroupSteps == 4;
  constexpr bool kFew = kOf64 || (Codes::kSparse && !Op::kGroupsOf128);
  constexpr int kUnrolled = Op::kAdditive ? 1 : (kFew ? 2 : kMostStageChunks);
#pragma unroll kUnrolled
  for (int c = 0; c < kMostStageChunks; c++) {
    if (c > 0 && c >= chunks) break;
    const bool begins = !Op::kGroupsOf128 || c % 2 == 0;
    if (begins) scales = read_scales<Op>(stage, shape, Op::kGroupsOf128 ? c / 2 : c, g);
    if (begins) UNROLL for (int i = 0; i < 4; i++) part[0][i] = part[1][i] = 0.0f;
    u32 b[2][4];
    read_activations(x, c, b);
    const auto half = [&](auto number) {
      constexpr int kHalf = decltype(number)::value;
      HalfChunk<Codes, Number, Form> weights;
      weights.template read<kHalf>(stage, c, scales, lane);
      [[maybe_unused]] float sum_of_a[4] = {};  // the same in all rows of W
      if constexpr (Op::kFolded) {
        UNROLL for (int u = 0; u < 2; u++) weights.multiply(total[kHalf], sum_of_a, u, b[u]);
      } else if constexpr (Op::kGroupsOf128) {
        UNROLL for (int u = 0; u < 2; u++) weights.multiply(part[kHalf], sum_of_a, u, b[u]);
      } else {
        constexpr int kGroupUnits = Op::kGroupSteps / 2;
        UNROLL for (int first = 0; first < 2; first += kGroupUnits) {
          float sum[4] = {};
          UNROLL for (int i = 0; i < 4; i++) sum_of_a[i] = 0.0f;
          UNROLL for (int u = first; u < first + kGroupUnits; u++)
              weights.multiply(sum, sum_of_a, u, b[u]);
          add_group<Op, kHalf>(sum, sum_of_a, scales, 2 * first, total[kHalf]);
        }
      }
    };
    half(Constant<0>());
    half(Constant<1>());
    if constexpr (!Op::kFolded && Op::kGroupsOf128) {
      if (c % 2 == 0 && c + 1 < chunks) continue;
      UNROLL for (int i = 0; i < 4; i++) {
        total[0][i] = fmaf(part[0][i], Op::template scale<0>(scales, 0, i / 2), total[0][i]);
        total[1][i] = fmaf(part[1][i], Op::template scale<1>(scales, 0, i / 2), total[1][i]);
      }
    }
  }
}

/// The same of weights that are floats of 16 bits, a unit at a time.
template <class Op, class Number>
__device__ inline void add_stage_of_halves(const unsigned char* stage, const unsigned char* x,
                                           int chunks, int lane, float (&total)[2][4]) {
  u32 chunk = shared_address(stage), row = row_of_halves(0, lane);
#pragma unroll 1
  for (int unit = 0; unit < 2 * chunks; unit++) {
    u32 b[4];
    read_activations(x, 0, 0, b);
    UNROLL for (int half = 0; half < 2; half++) UNROLL for (int step = 0; step < 2; step++) {
      u32 a[4];
      load_matrices(chunk + (row ^ 32 * step) + half * (Op::kChunkCodes / 2), a[0], a[1], a[2],
                    a[3]);
      [[maybe_unused]] float sum_of_a[4] = {};
      multiply_step<Op, Number>(total[half], sum_of_a, a, b, step);
    }
    row ^= 64;  // the next unit of the chunk
    if (unit % 2 != 0) chunk += Op::kChunkCodes;
    x += 64;
  }
}

/// The two float32 numbers of each group of a unit that a lane needs for one half of the row block.
template <int QUADS, int WORDS, int ALL>
__device__ inline void read_floats(const unsigned char* quads, u32 (&to)[ALL][WORDS]) {
  UNROLL for (int q = 0; q < QUADS; q++) {
    const uint2 two = *reinterpret_cast<const uint2*>(quads + q * kRowBlock * 4);
    to[q][0] = two.x;
    to[q][1] = two.y;
  }
}

/// Adds the products of a stage of weights with float32 scales of short groups. Registers have room
/// for the weights and scales of one unit and one half of the row block at a time: they are read as
/// the first unit of a chunk.
template <class Codes, class Number, class Form, bool ROUTED>
__device__ inline void add_stage_of_floats(const unsigned char* stage,
                                           const StageShape<Operand<Codes, Number, Form>>& shape,
                                           const unsigned char* x, int chunks, int lane,
                                           float (&total)[2][4]) {
  typedef Operand<Codes, Number, Form> Op;
  static_assert(!Op::kGroupsOf128 && Op::kQuads > 1, "forms that exist");
  constexpr int kQuadsOfUnit = Op::kQuads / 2;
  constexpr int kUnrolled = ROUTED || (Op::kAdditive && Op::kPieces == 2) ? 1 : 2;
  const unsigned char* const codes = stage + 16 * lane;
  const unsigned char* quads = stage + shape.scales_at() + lane / 4 * 16;
  const int zeros = shape.zeros_at() - shape.scales_at();
#pragma unroll kUnrolled
  for (int unit = 0; unit < 2 * chunks; unit++) {
    const auto half = [&](auto number) {
      constexpr int kHalf = decltype(number)::value;
      ChunkScales<Op, 1> scales{};
      read_floats<kQuadsOfUnit>(quads + 8 * kHalf, scales.scales);
      if constexpr (Op::kAdditive)
        read_floats<kQuadsOfUnit>(quads + zeros + 8 * kHalf, scales.zeros);
      uint4 q[Op::kPieces]{};
      if constexpr (Op::kPieces == 2) {
        q[0] = *reinterpret_cast<const uint4*>(codes + 1024 * unit + 512 * kHalf);
      } else {
        const unsigned char* const of_half = codes + 1024 * (unit / 2) + 512 * kHalf;
        const uint2 two = *reinterpret_cast<const uint2*>(of_half + 8 * (unit % 2));
        q[0] = make_uint4(two.x, two.y, 0, 0);
      }
      u32 a[4][4], b[4];
      Op::template decode_unit<kHalf>(q, scales, 0, a);
      // Read for each half, because they would take registers while weights are decoded.
      if (ROUTED) asm volatile("" ::: "memory");
      read_activations(x, 0, 0, b);
      UNROLL for (int first = 0; first < 2; first += Op::kGroupSteps) {
        float sum[4] = {};
        [[maybe_unused]] float sum_of_a[4] = {};
        UNROLL for (int step = first; step < first + Op::kGroupSteps; step++)
            multiply_step<Op, Number>(sum, sum_of_a, a[step], b, step);
        add_group<Op, kHalf>(sum, sum_of_a, scales, first, total[kHalf]);
      }
    };
    half(Constant<0>());
    half(Constant<1>());
    quads += kQuadsOfUnit * kRowBlock * 4;
    x += 64;
  }
}

/// Adds 0 times the slots of a stage of 2:4 weights that are not kept (add_dropped_slots).
template <class Op, class Number>
__device__ inline void add_dropped_slots_of_stage(const unsigned char* stage,
                                                  const unsigned char* x, int chunks, int lane,
                                                  float (&total)[2][4]) {
#pragma unroll 1
  for (int c = 0; c < chunks; c++) {
    u32 b[2][4];
    read_activations(x, c, b);
    const uint2 positions = positions_of_chunk(stage + c * Op::kChunkCodes, lane);
    add_dropped_slots<Number>(total[0], b, positions.x);
    add_dropped_slots<Number>(total[1], b, positions.y);
  }
}
