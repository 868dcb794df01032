// C = f(A W^T) for many rows of A and weights of a form, on Hopper.
//
//   tile        128 rows of W, four row blocks, by ROWS rows of A
//   block       two warpgroups, one for the upper and one for the lower halves of the row blocks,
//               and a warp that brings A; one block a multiprocessor, which takes tiles in turn
//   W           from memory to registers, chunks of 64 slots ahead; decoded there, it is the
//               register operand of wgmma or of mma.sync
//   A           boxes of 64 slots in shared memory, swizzled, by the copy engine; a ring of them
//   sums        in registers
//   K           whole tiles first. The rest is cut into equal parts, one a block (stream-K). Blocks
//               that share a tile put their sums into a workspace, and the last to come adds them
//               in the order of K, so that a result does not depend on who that is.
#pragma once
#include "operand.cuh"
#include "tile_output.cuh"
#include "wgmma.cuh"

/// Brings the boxes of A. A warp calls it.
template <class Activation, class Tile>
__device__ inline void bring_activations(const CudaParameters& parameters, Work work, int row_tiles,
                                         const TileMemory<Tile>& memory) {
  const Launch launch{parameters};
  const ProductArgs& args = launch.arguments<ProductArgs>();
  const bool aligned = launch.constant(MARLIN_CONSTANT_ALIGNED) != 0;
  const u16* const a = launch.buffer<const u16>(MARLIN_BUFFER_A);
  const int lane = threadIdx.x % 32;
  if (aligned && lane != 0) return;
  if (aligned) prefetch_tensor_map(parameters.tensor_map);
  wait_for_previous();
  RingPlace<Tile::kSlots> place;
  for (Segment now; work.next(now);) {
    const int row = now.tile % row_tiles * Tile::kRows;
    for (int c = now.begin; c < now.stop; c += Tile::kBoxes) {
      const int boxes = min(Tile::kBoxes, now.stop - c);
      const u32 to = memory.boxes + place.slot * Tile::kSlot, full = memory.full + 8 * place.slot;
      wait_for_phase(memory.empty + 8 * place.slot, place.phase ^ 1);
      if (aligned) {
        // Rows past the last of A may hold anything: their results are not written.
        const int rows = min(Tile::kRows, args.m - row);
        const int pieces = (rows + Tile::kBoxRows - 1) / Tile::kBoxRows;
        arrive_expecting(full, boxes * pieces * Tile::kBoxRows * kBoxRowBytes);
        for (int i = 0; i < boxes; i++)
          for (int piece = 0; piece < pieces; piece++)
            copy_box(to + i * Tile::kBox + piece * Tile::kBoxRows * kBoxRowBytes,
                     parameters.tensor_map, kMmaSlots * (c + i), row + piece * Tile::kBoxRows,
                     full);
      } else {
        // The copy engine takes no such rows. A lane copies two columns of each.
#pragma unroll 1
        for (int box = 0; box < boxes; box++)
#pragma unroll 1
          for (int in_box = 0; in_box < Tile::kRows; in_box++) {
            const int k = kMmaSlots * (c + box) + 2 * lane, m = row + in_box;
            const u16* const from = a + m * args.lda;
            u32 both = 0;
            if (m < args.m)
              both = column_or_0(from, k, args.k) | u32(column_or_0(from, k + 1, args.k)) << 16;
            const u32 at = in_box * kBoxRowBytes + ((lane / 4) ^ (in_box % 8)) * 16 + lane % 4 * 4;
            asm volatile("st.shared.u32 [%0], %1;" ::"r"(to + box * Tile::kBox + at), "r"(both)
                         : "memory");
          }
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        __syncwarp();
        if (lane == 0) arrive(full);
      }
      place.advance();
    }
  }
}

/// A lane's weights of AHEAD chunks, of its half of a row block.
template <class Op, int AHEAD>
struct WeightQueue {
  const uint4* codes;  // of the row block
  const unsigned char *scales, *zeros;
  int quad_blocks, half;
  uint4 q[AHEAD];
  ChunkScales s[AHEAD];

  __device__ void seek(const Launch& launch, int row_block, int lane) {
    const ProductArgs& args = launch.arguments<ProductArgs>();
    const long long quads = static_cast<long long>(row_block) * args.quads;
    constexpr int kQuad = Op::kGroupsOf128 ? Op::kScaleBytes : kRowBlock;
    codes = launch.buffer<const uint4>(MARLIN_BUFFER_CODES) +
            static_cast<long long>(row_block) * (args.slots / kMmaSlots) * 64 + half * 32 + lane;
    scales = launch.buffer<const unsigned char>(MARLIN_BUFFER_SCALES) + quads * kQuad;
    zeros = launch.buffer<const unsigned char>(MARLIN_BUFFER_ZEROS) + quads * kRowBlock;
    quad_blocks = args.quad_blocks;
  }
  /// Fills place i with chunk c.
  __device__ void fetch(int i, int c, int g) {
    q[i] = __ldcs(codes + c * 64);
    ChunkScales& to = s[i];
    if (Op::kE8m0) {
      UNROLL for (int u = 0; u < 2; u++) to.words[u] =
          *reinterpret_cast<const u16*>(scales + 64 * c + 32 * u + 4 * g + 2 * half);
    } else if (Op::kE4m3) {
      UNROLL for (int u = 0; u < 2; u++) {
        const uint2 two = *reinterpret_cast<const uint2*>(scales + 128 * c + 64 * u + 8 * g);
        to.words[2 * u] = two.x;
        to.words[2 * u + 1] = two.y;
      }
    } else if (i % 2 != 0) {
      to = s[i - 1];  // parts of K begin with an even chunk
    } else {
      const int quad = quad_blocks == 1 ? c / 2 : c / 2 / quad_blocks;
      to.words[0] =
          *reinterpret_cast<const u32*>(scales + quad * Op::kScaleBytes + 8 * g + 4 * half);
      if (Op::kZeroBytes != 0)
        to.zeros = *reinterpret_cast<const u16*>(zeros + quad * Op::kZeroBytes + 4 * g + 2 * half);
    }
  }
  /// Place i as operands of the half 0.
  template <bool WITHOUT_ZEROS>
  __device__ void decode(int i, u32 (&a)[4][4]) const {
    ChunkScales mine = s[i];
    if (Op::kE4m3) UNROLL for (int w = 0; w < 4; w++) mine.words[w] >>= 16 * half;
    Op::template decode<0, WITHOUT_ZEROS>(q[i], mine, a);
  }
};

/// Operands B of mma.m16n8k16 of two times eight rows of a box, from `row` on.
__device__ inline void load_operands(u32 box, int row, int step, int lane, u32 (&b)[2][2]) {
  const int in_box = row + lane % 8 + lane / 16 * 8, piece = (2 * step + lane / 8 % 2) ^ (lane % 8);
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(b[0][0]), "=r"(b[0][1]), "=r"(b[1][0]), "=r"(b[1][1])
               : "r"(box + in_box * kBoxRowBytes + piece * 16)
               : "memory");
}

/// The sums of a tile, a lane's part: elements 4 i + e of column 8 i + 2 j + e % 2 of the tile's
/// rows of A, and row g + 8 (e / 2) of its 16 rows of W.
///
/// Where weights do not carry their scales, mma.sync sums a group apart. wgmma has no registers for
/// it: the sums are kept in units of the scale of the group at hand, and multiplied by the ratio of
/// two scales where the next group begins.
template <class Codes, class Activation, class Form, class Tile>
struct TileSums {
  typedef typename Activation::Number Number;
  typedef Operand<Codes, Number, Form> Op;
  static constexpr bool kApart = !Op::kFolded && !Tile::kWgmma;
  static constexpr bool kInUnits = !Op::kFolded && Tile::kWgmma;
  /// Many sums leave few registers, and take their time.
  static constexpr int kAhead = Tile::kRows > 128 ? 2 : kMostAhead;

  float total[Tile::kSums], part[kApart ? Tile::kSums : 1];
  float unit[2];  // of the rows g and g + 8
  u32 a[2][4][4];
  WeightQueue<Op, kAhead> weights;
  RingPlace<Tile::kSlots> place;

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
  /// Makes the scales of chunk `kb` the units. A scale of 0 changes none: its weights become 0.
  __device__ void change_units(int kb) {
    float ratio[2];
    UNROLL for (int row = 0; row < 2; row++) {
      const float scale = Op::template scale<0>(weights.s[kb], 0, row);
      ratio[row] = scale == 0.0f ? 1.0f : __fdividef(unit[row], scale);
      unit[row] = scale == 0.0f ? unit[row] : scale;
    }
    multiply_sums(ratio[0], ratio[1]);
  }

  /// Multiplies chunk `kb` of a stage by its box.
  __device__ void multiply(const TileMemory<Tile>& memory, int kb, bool first, int lane) {
    u32(&operand)[4][4] = a[kb % 2];
    weights.template decode<kInUnits>(kb, operand);
    if (Tile::kBoxes == 1) wait_for_phase(memory.full + 8 * place.slot, place.phase);
    const u32 box =
        memory.boxes + place.slot * Tile::kSlot + (Tile::kBoxes > 1 ? kb * Tile::kBox : 0);
    float(&to)[Tile::kSums] = sums_of_chunk();
    if constexpr (Tile::kWgmma) {
      if (kInUnits && kb % 2 == 0) {
        wgmma_wait<0>();
        change_units(kb);
      }
      wgmma_fence();
      UNROLL for (int step = 0; step < 4; step++) {
        const bool adds = step != 0 || kInUnits || !first;
        Wgmma<Tile::kRows>::add(Number(), to, operand[step], operand_b(box) + 2 * step, adds);
      }
      wgmma_commit();
    } else {
      if (kApart && kb % 2 == 0) UNROLL for (int i = 0; i < Tile::kSums; i++) to[i] = 0.0f;
      UNROLL for (int step = 0; step < 4; step++)
          UNROLL for (int i = 0; i < Tile::kRows / 16; i++) {
        u32 b[2][2];  // of 16 rows of A
        load_operands(box, 16 * i, step, lane, b);
        UNROLL for (int h = 0; h < 2; h++)
            Number::mma(reinterpret_cast<float(&)[4]>(to[8 * i + 4 * h]), operand[step], b[h]);
      }
    }
  }

  __device__ void scale(int kb) {
    const float low = Op::template scale<0>(weights.s[kb], 0, 0);
    const float high = Op::template scale<0>(weights.s[kb], 0, 1);
    UNROLL for (int i = 0; i < Tile::kSums; i++) total[i] =
        fmaf(part[i], i % 4 < 2 ? low : high, total[i]);
  }
};

/// The products of the warpgroups that multiply.
template <class Codes, class Activation, class Form, class Tile>
__device__ inline void multiply_tiles(const CudaParameters& parameters, Work work, int row_tiles,
                                      const TileMemory<Tile>& memory) {
  typedef TileSums<Codes, Activation, Form, Tile> Sums;
  constexpr int kAhead = Sums::kAhead;
  const Launch launch{parameters};
  const ProductArgs& args = launch.arguments<ProductArgs>();
  const int group = __shfl_sync(0xFFFFFFFFu, threadIdx.x / kGroupThreads, 0);
  const int warp = threadIdx.x % kGroupThreads / 32, lane = threadIdx.x % 32, g = lane / 4;
  const int row_blocks = (args.n + kRowBlock - 1) / kRowBlock;
  Sums sums;
  sums.weights.half = group;
  const auto fetch_first = [&](const Segment& of) {
    const int block = of.tile / row_tiles * Tile::kRowBlocks + warp;
    sums.weights.seek(launch, min(block, row_blocks - 1), lane);
    UNROLL for (int i = 0; i < kAhead; i++) if (of.begin + i < of.stop)
        sums.weights.fetch(i, of.begin + i, g);
  };
  const auto give_back = [&](int slot) {
    if (!Tile::kWgmma) __syncwarp();
    if (lane == 0) arrive(memory.empty + 8 * slot);
  };

  Segment now{}, next{};
  bool more = work.next(now);
  if (more) fetch_first(now);
  wait_for_previous();
  for (; more; now = next) {
    sums.clear();
    int last_slot = -1;  // whose boxes may still be read
    const auto stage = [&](auto is_whole, int c, int chunks) {
      constexpr bool kWhole = decltype(is_whole)::value != 0;
      if (Tile::kBoxes > 1) wait_for_phase(memory.full + 8 * sums.place.slot, sums.place.phase);
      UNROLL for (int kb = 0; kb < kAhead; kb++) {
        if (!kWhole && kb >= chunks) break;
        sums.multiply(memory, kb, c == now.begin && kb == 0, lane);
        if (Sums::kApart && (kb % 2 != 0 || (!kWhole && kb + 1 == chunks))) sums.scale(kb);
        if (Tile::kWgmma) wgmma_wait<1>();
        if (kWhole && c + kAhead + kb < now.stop) sums.weights.fetch(kb, c + kAhead + kb, g);
        if (Tile::kBoxes == 1 || kb == 0) {
          // All but the newest group are done, or all.
          if (last_slot >= 0) give_back(last_slot);
          last_slot = -1;
        }
        if (Tile::kBoxes == 1) {
          last_slot = sums.place.slot;
          sums.place.advance();
        }
      }
      if (Tile::kBoxes > 1) {
        last_slot = sums.place.slot;
        sums.place.advance();
      }
    };
    int c = now.begin;
    for (; c + kAhead <= now.stop; c += kAhead) stage(Constant<1>(), c, kAhead);
    if (c < now.stop) stage(Constant<0>(), c, now.stop - c);
    if (Tile::kWgmma) wgmma_wait<0>();
    if (last_slot >= 0) give_back(last_slot);
    if (Sums::kInUnits) sums.multiply_sums(sums.unit[0], sums.unit[1]);

    more = work.next(next);
    if (more) fetch_first(next);  // while the results are written
    if (work.is_part(now) &&
        !join_sums<Tile>(launch, work, now.tile, group, memory.flag(), sums.total))
      continue;
    const TileOutput<Tile> output{launch,
                                  args,
                                  group,
                                  warp,
                                  lane,
                                  now.tile % row_tiles * Tile::kRows,
                                  now.tile / row_tiles * Tile::kRowBlocks};
    output.write(sums.total, Sums::Op::kFactor, memory.out + group * Tile::kOut);
  }
}

template <class Codes, class Activation, class Form, class Tile>
__device__ inline void hopper_gemm(const CudaParameters& parameters) {
  extern __shared__ __align__(128) unsigned char dynamic[];
  typedef Operand<Codes, typename Activation::Number, Form> Op;
  // Sums of groups of 32 would take more instructions than wgmma saves: no such product gets here.
  if constexpr (!Op::kFolded && !Op::kGroupsOf128) return;
  const Launch launch{parameters};
  const ProductArgs& args = launch.arguments<ProductArgs>();
  const TileMemory<Tile> memory(dynamic);
  const int row_tiles = (args.m + Tile::kRows - 1) / Tile::kRows;
  const int column_tiles = (args.n + Tile::kColumns - 1) / Tile::kColumns;
  const Work work(row_tiles * column_tiles, args.slots / kMmaSlots);
  if (threadIdx.x == 0) memory.init();
  let_next_start();
  __syncthreads();
  if (threadIdx.x >= Tile::kGroups * kGroupThreads) {
    // What a warpgroup gives back, the others take.
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(40));
    if (threadIdx.x / 32 == Tile::kGroups * 4)
      bring_activations<Activation, Tile>(parameters, work, row_tiles, memory);
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(232));
    multiply_tiles<Codes, Activation, Form, Tile>(parameters, work, row_tiles, memory);
  }
}
