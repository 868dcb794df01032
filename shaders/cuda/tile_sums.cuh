// The sums of a tile for Hopper, in registers: a warp's weights come from shared memory, are
// decoded, and are multiplied by wgmma or by mma.sync (hopper_gemm.cuh). Floats of 16 bits need no
// decoding, and wgmma reads them in shared memory.
#pragma once
#include "tile_shape.cuh"
#include "wgmma.cuh"

/// A lane's weights of a stage, of its half of a row block.
template <class Memory>
struct StageWeights {
  typedef typename Memory::Op Op;
  typedef typename Memory::Block Block;
  static constexpr int kChunks = Memory::Tile::kChunks;
  u32 memory;  // the address of the row block in the first stage
  u32 rows;    // row_of_halves
  int half, lane;
  uint4 q[kChunks][Op::kPieces];
  ChunkScales<Op, 1> s[kChunks];

  /// Reads chunk `kb` of a stage into place kb, unless wgmma reads it where it lies.
  __device__ void fetch(int slot, int kb) {
    if constexpr (Memory::kDirect) return;
    const u32 stage = memory + slot * Memory::kStage;
    const int g = lane / 4;
    UNROLL for (int i = 0; i < Op::kPieces; i++) {
      const u32 codes = stage + kb * Op::kChunkCodes;
      if constexpr (Op::kFloats)
        load_matrices(codes + (rows ^ 32 * i), q[kb][i].x, q[kb][i].y, q[kb][i].z, q[kb][i].w);
      else
        load_shared(codes + i * 1024 + half * 512 + lane * 16, q[kb][i]);
    }
    const int piece = Op::kGroupsOf128 ? kb / 2 : kb;
    const u32 scales = stage + Block::kScales + piece * Op::kScaleBytes;
    const u32 zeros = stage + Block::kZeros + piece * Op::kStagedZeroBytes;
    UNROLL for (int quad = 0; quad < Op::kQuads; quad++) {
      // Quads of one-byte scales of 16 slots are in pairs.
      const u32 from = Op::kE4m3 ? scales + 64 * (quad / 2) + 8 * g + 4 * (quad % 2)
                                 : scales + (8 * quad + g) * 4 * Op::kScaleElement;
      fetch_half<Op::kScaleElement>(from, s[kb].scales[quad]);
      if constexpr (Op::kStagedZeroBytes != 0)
        fetch_half<Op::kZeroElement>(zeros + (8 * quad + g) * 4 * Op::kZeroElement,
                                     s[kb].zeros[quad]);
    }
  }
  /// Place `kb` as operands of the half 0.
  template <bool WITHOUT_ZEROS>
  __device__ void decode(int kb, u32 (&a)[4][4]) const {
    Op::template decode<0, WITHOUT_ZEROS>(q[kb], s[kb], a);
  }

 private:
  /// Of four numbers of ELEMENT bytes at an address, the two of the lane's half.
  template <int ELEMENT, int WORDS>
  __device__ void fetch_half(u32 from, u32 (&to)[WORDS]) const {
    if constexpr (ELEMENT == 1) load_shared_half(from + 2 * half, to[0]);
    if constexpr (ELEMENT == 2) load_shared(from + 4 * half, to[0]);
    if constexpr (ELEMENT == 4) load_shared(from + 8 * half, to[0], to[1]);
  }
};

/// Operands B of mma.m16n8k16 of two times eight rows of a box, from `row` on.
__device__ inline void load_operands(u32 box, int row, int step, int lane, u32 (&first)[2],
                                     u32 (&second)[2]) {
  const int in_box = row + lane % 8 + lane / 16 * 8, piece = (2 * step + lane / 8 % 2) ^ (lane % 8);
  load_matrices(box + in_box * kBoxRowBytes + piece * 16, first[0], first[1], second[0], second[1]);
}
/// The same of the first eight rows, of two steps.
__device__ inline void load_operands_of_eight(u32 box, int step, int lane, u32 (&first)[2],
                                              u32 (&second)[2]) {
  const int piece = (2 * step + lane / 8) ^ (lane % 8);
  load_matrices(box + lane % 8 * kBoxRowBytes + piece * 16, first[0], first[1], second[0],
                second[1]);
}

/// The sums of a tile, a lane's part: elements 4 i + e of column 8 i + 2 j + e % 2 of the tile's
/// rows of A, and row g + 8 (e / 2) of its 16 rows of W.
///
/// Where weights do not carry their scales, mma.sync sums a group apart. wgmma has no registers for
/// it: the sums are kept in units of the scale of the group at hand, and multiplied by the ratio of
/// two scales where the next group begins.
template <class Number, class Memory>
struct TileSums {
  typedef typename Memory::Tile Tile;
  typedef typename Memory::Op Op;
  static constexpr bool kApart = !Op::kFolded && !Tile::kWgmma && Op::kGroupsOf128;
  static constexpr bool kByGroup = !Op::kFolded && !Tile::kWgmma && !Op::kGroupsOf128;
  static constexpr bool kInUnits = !Op::kFolded && Tile::kWgmma;
  /// Where there are registers for it. Two scales of a chunk take more.
  static constexpr bool kFetchesEarly = Tile::kRows < (kInUnits && Op::kQuads > 1 ? 192 : 256);

  float total[Tile::kSums], part[kApart ? Tile::kSums : 1], unit[2];  // units of rows g, g + 8
  u32 a[2][4][4];
  u32 weights_at;  // bytes from a stage to the weights of the warpgroup, if wgmma reads them there
  StageWeights<Memory> weights;

  __device__ float (&sums_of_chunk())[Tile::kSums] {
    if constexpr (kApart)
      return part;
    else
      return total;
  }
  __device__ void clear() {
    UNROLL for (int i = 0; i < Tile::kSums; i++) total[i] = 0.0f;
    unit[0] = unit[1] = 1.0f;
  }
  __device__ void multiply_sums(float low, float high) {
    UNROLL for (int i = 0; i < Tile::kSums; i++) total[i] *= i % 4 < 2 ? low : high;
  }
  /// Makes the scales of a group, which begins with step `step` of chunk `kb`, the units. A scale
  /// of 0 changes none: its weights become 0.
  __device__ void change_units(int kb, int step) {
    float ratio[2];
    UNROLL for (int row = 0; row < 2; row++) {
      const float scale = Op::template scale<0>(weights.s[kb], step, row);
      ratio[row] = scale == 0.0f ? 1.0f : __fdividef(unit[row], scale);
      unit[row] = scale == 0.0f ? unit[row] : scale;
    }
    multiply_sums(ratio[0], ratio[1]);
  }

  /// Starts to multiply chunk `kb` of the stage that begins with `boxes` by a box.
  __device__ void multiply_by_wgmma(u32 boxes, int kb, bool first) {
    if constexpr (Memory::kDirect)
      multiply_in_memory(boxes, kb, first);
    else
      multiply_decoded(boxes + kb * Tile::kBox, kb, first);
  }
  /// The same of floats, which wgmma reads in shared memory.
  __device__ void multiply_in_memory(u32 boxes, int kb, bool first) {
    const u64 w = wgmma_operand(boxes + weights_at + kb * Memory::kDirectChunk);
    const u64 box = wgmma_operand(boxes + kb * Tile::kBox);
    wgmma_fence();
    UNROLL for (int step = 0; step < 4; step++)
        Wgmma<Tile::kRows>::add(Number(), total, w + 2 * step, box + 2 * step, step != 0 || !first);
    wgmma_commit();
  }
  __device__ void multiply_decoded(u32 box, int kb, bool first) {
    constexpr int kStepsAtOnce = kInUnits ? Op::kGroupSteps : 4;
    u32(&operand)[4][4] = a[kb % 2];
    weights.template decode<kInUnits>(kb, operand);
    UNROLL for (int begin = 0; begin < 4; begin += kStepsAtOnce) {
      if (kInUnits && (kb % 2 == 0 || !Op::kGroupsOf128)) {
        wgmma_wait<0>();
        change_units(kb, begin);
      }
      wgmma_fence();
      UNROLL for (int step = begin; step < begin + kStepsAtOnce; step++) {
        const bool adds = step != 0 || kInUnits || !first;
        Wgmma<Tile::kRows>::add(Number(), total, operand[step], wgmma_operand(box) + 2 * step,
                                adds);
      }
      wgmma_commit();
    }
  }
  /// Sums that products of the first EIGHTS times eight rows of A are added to in turn, since a
  /// product waits for the one before it: those of rows that are not there are free.
  template <int EIGHTS>
  static constexpr int kChains = kByGroup ? 1 : Tile::kRows / 8 / EIGHTS;
  /// The same by mma.sync, with the first EIGHTS times eight rows of A.
  template <int EIGHTS>
  __device__ void multiply_by_mma(u32 box, int kb, int lane) {
    u32 b[4][EIGHTS][2];  // on their way while weights are decoded
    if constexpr (EIGHTS == 1) {
      UNROLL for (int step = 0; step < 4; step += 2)
          load_operands_of_eight(box, step, lane, b[step][0], b[step + 1][0]);
    } else {
      UNROLL for (int step = 0; step < 4; step++) UNROLL for (int i = 0; i < EIGHTS; i += 2)
          load_operands(box, 8 * i, step, lane, b[step][i], b[step][i + 1]);
    }
    weights.template decode<false>(kb, a[0]);
    if constexpr (kByGroup) {
      UNROLL for (int step = 0; step < 4; step += Op::kGroupSteps) add_group(kb, step, b);
    } else {
      constexpr int kInTurn = kChains<EIGHTS>;
      float(&to)[Tile::kSums] = sums_of_chunk();
      UNROLL for (int step = 0; step < 4; step++) UNROLL for (int i = 0; i < EIGHTS; i++)
          multiply_step(reinterpret_cast<float(&)[4]>(to[4 * (i + step % kInTurn * EIGHTS)]),
                        a[0][step], b[step][i], kApart && kb % 2 == 0 && step < kInTurn);
    }
  }
  /// Adds a product to sums, or begins them.
  __device__ static void multiply_step(float (&sum)[4], const u32 (&weights)[4],
                                       const u32 (&rows)[2], bool begins) {
    if (begins)
      Number::mma_product(sum, weights, rows);
    else
      Number::mma(sum, weights, rows);
  }
  /// Adds the products of the group that begins with step `first` of chunk `kb`.
  template <int EIGHTS>
  __device__ void add_group(int kb, int first, const u32 (&b)[4][EIGHTS][2]) {
    float scales[2];
    UNROLL for (int row = 0; row < 2; row++) scales[row] =
        Op::template scale<0>(weights.s[kb], first, row);
    UNROLL for (int i = 0; i < EIGHTS; i++) {
      float sum[4];
      UNROLL for (int step = first; step < first + Op::kGroupSteps; step++)
          multiply_step(sum, a[0][step], b[step][i], step == first);
      UNROLL for (int e = 0; e < 4; e++) total[4 * i + e] =
          fmaf(sum[e], scales[e / 2], total[4 * i + e]);
    }
  }
  /// Adds the sums of a group that ends with chunk `kb`, of the first EIGHTS times eight rows.
  template <int EIGHTS>
  __device__ void scale(int kb) {
    const float low = Op::template scale<0>(weights.s[kb], 0, 0);
    const float high = Op::template scale<0>(weights.s[kb], 0, 1);
    UNROLL for (int i = 0; i < 4 * EIGHTS; i++) {
      float sum = part[i];
      UNROLL for (int chain = 1; chain < kChains<EIGHTS>; chain++) sum +=
          part[i + 4 * EIGHTS * chain];
      total[i] = fmaf(sum, i % 4 < 2 ? low : high, total[i]);
    }
  }
  /// Adds up what products were added to in turn.
  template <int EIGHTS>
  __device__ void join_chains() {
    if constexpr (!kApart)
      UNROLL for (int i = 0; i < 4 * EIGHTS; i++)
          UNROLL for (int chain = 1; chain < kChains<EIGHTS>; chain++) total[i] +=
          total[i + 4 * EIGHTS * chain];
  }
};
