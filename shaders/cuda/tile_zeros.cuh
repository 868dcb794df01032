// Additive zeros of a tile for Hopper: a small product of its own behind that of the codes,
//
//   C[m][n] += sum over groups g of zero[n][g] * sum of A[m][k] over the k of g
//
// whose second factor `group_sums` (helpers.cu) has left in memory. (In the loop over the chunks of
// K, sums of A would take registers that tiles do not have.) Both factors pass through the ring of
// stages behind the chunks of a segment of K.
#pragma once
#include "tile_routes.cuh"

/// Adds a product of 16 x 8 by 8 x 8 TF32 numbers, float32 whose last 13 bits do not count.
__device__ inline void mma_tf32(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/// The stages of a segment that have zeros and sums of A, of up to kEights times eight groups each.
template <class Memory>
struct ZeroStages {
  typedef typename Memory::Tile Tile;
  typedef typename Memory::Op Op;
  /// Bytes of the sums of eight rows of A and eight groups. Routed rows may begin between eights.
  static constexpr int kSums = 512, kSumsOfEight = (Tile::kRows / 8 + 1) * kSums;
  static constexpr int kZeros = 8 * kRowBlock * Op::kZeroElement;  // bytes of a row block
  static constexpr int kMostSums = Memory::kWeights / kSumsOfEight;
  static constexpr int kMostZeros = Memory::kWeightBytes / (Tile::kRowBlocks * kZeros);
  static constexpr int kEights = kMostSums < kMostZeros ? kMostSums : kMostZeros;
  static_assert(kEights > 0 && kEights <= 8, "a stage has room, and a warp a lane for each");

  int begin, stop;  // groups
  __device__ explicit ZeroStages(const Segment& now)
      : begin(now.begin * Op::kQuads), stop(now.stop * Op::kQuads) {
    static_assert(!Op::kGroupsOf128, "parts of K begin where groups do");
  }
  __device__ int first() const { return begin / 8; }
  __device__ int end() const { return (stop + 7) / 8; }
  __device__ int count() const { return (end() - first() + kEights - 1) / kEights; }
};

// Three warps pass these stages, each of them all: the phases of a barrier are known by their
// parity, so that no warp may be two behind. The warp that brings A waits until a stage is empty,
// and arrives. The warp that brings weights waits, and tells the warp that fills it. (One warp that
// brings weights and zeros has no registers for it.)

/// What the warp that brings A does. One lane arrives.
template <class Memory>
__device__ inline void pass_zeros(const Memory& memory, const Segment& now,
                                  RingPlace<Memory::kStages>& place) {
#pragma unroll 1
  for (int left = ZeroStages<Memory>(now).count(); left > 0; left--) {
    wait_for_phase(memory.empty + 8 * place.slot, place.phase ^ 1);
    if (threadIdx.x % 32 == 0) arrive(memory.full + 8 * place.slot);
    place.advance();
  }
}
/// The warps that bring weights and zeros meet.
__device__ inline void meet_for_zeros() {
  __syncwarp();
  asm volatile("bar.sync 15, 64;" ::: "memory");
}
/// What the warp that brings weights does.
template <class Memory>
__device__ inline void announce_zeros(const Memory& memory, const Segment& now,
                                      RingPlace<Memory::kStages>& place) {
#pragma unroll 1
  for (int left = ZeroStages<Memory>(now).count(); left > 0; left--) {
    wait_for_phase(memory.empty + 8 * place.slot, place.phase ^ 1);
    meet_for_zeros();
    place.advance();
  }
}

/// Brings the zeros and the sums of a segment. A warp calls it: eight lanes copy sums, the others
/// zeros, each those of a row block. (What is cheap to compute takes no register.)
template <class Memory>
__device__ inline void bring_zeros_of(const Memory& memory, const Work<typename Memory::Tile>& work,
                                      const Segment& now, int& slot) {
  typedef ZeroStages<Memory> Stages;
  typedef typename Memory::Tile Tile;
  typedef typename Memory::Op Op;
  const Stages stages(now);
  const ProductArgs& args = work.args;
  const int first = work.first_row_block(now.tile, rank_in_cluster<Tile>());
  const int row_blocks = (args.n + kRowBlock - 1) / kRowBlock;
  const int count = max(min(Tile::kRowBlocks, row_blocks - first), 0);
  const int lane = threadIdx.x % 32, block = lane - 8;
  const int row = work.first_row(now.tile), row_eight = row / 8;
  const int end_row = min(work.end_row(now.tile), row + Tile::kRows);
  const int sum_bytes = ((end_row + 7) / 8 - row_eight) * Stages::kSums;
  const long long sum_pitch = static_cast<long long>((args.m + 7) / 8) * Stages::kSums;
  const unsigned char* from = work.launch.template buffer<const unsigned char>(
      block < 0 ? MARLIN_BUFFER_GROUP_SUMS : MARLIN_BUFFER_ZEROS);
  if (block < 0)
    from += (stages.first() + lane) * sum_pitch + row_eight * static_cast<long long>(Stages::kSums);
  else if (block < count)
    from += work.weights_at(now.tile) + work.row_block(first, block) * zero_pitch<Op>(args) +
            stages.first() * static_cast<long long>(Stages::kZeros);
  for (int eight = stages.first(); eight < stages.end(); eight += Stages::kEights) {
    const u32 to = memory.stages + slot * Memory::kStage, full = memory.full + 8 * slot;
    const int eights = min(Stages::kEights, stages.end() - eight);
    const int zero_bytes = min(8 * eights, args.quads - 8 * eight) * (Stages::kZeros / 8);
    meet_for_zeros();
    if (lane == 0) arrive_expecting(full, eights * sum_bytes + count * zero_bytes);
    __syncwarp();
    if (lane < eights) copy_bulk(to + lane * Stages::kSumsOfEight, from, sum_bytes, full);
    if (block >= 0 && block < count)
      copy_bulk(to + Memory::kWeights + block * (Stages::kEights * Stages::kZeros), from,
                zero_bytes, full);
    from += Stages::kEights * (block < 0 ? sum_pitch : static_cast<long long>(Stages::kZeros));
    slot = (slot + 1) % Memory::kStages;
  }
}

/// Brings zeros and sums behind the chunks of each segment. A warp calls it.
template <class Memory>
__device__ inline void bring_zeros(const CudaParameters& parameters, unsigned char* dynamic) {
  const Memory memory(dynamic);
  const Launch launch{parameters};
  int slot = 0;
  wait_for_previous();  // which has written the sums
  wait_for_gathered<Memory>(launch);
  Work<typename Memory::Tile> work(launch);
  for (Segment now; work.next(now);) {
    constexpr int kChunks = Memory::Tile::kChunks;
    slot = (slot + (now.stop - now.begin + kChunks - 1) / kChunks) % Memory::kStages;
    bring_zeros_of(memory, work, now, slot);
  }
}

/// Zeros of eight groups and 16 rows of W as operands A: lane 4 g + j has those of the groups 2 j
/// and 2 j + 1. Float16 is TF32. Of float32, the first two TF32 numbers that add up to it are
/// taken: what is missing is less than rounding to float32 may change.
template <class Op>
struct ZeroOperand {
  static constexpr bool kFloat32 = Op::kZeroType == kScaleF32;
  static_assert(kFloat32 || Op::kZeroType == kScaleF16, "forms that exist");
  static constexpr int kPieces = kFloat32 ? 2 : 1;
  u32 a[kPieces][4];

  /// Loads those that exist from the lane's place in the quad of its first group.
  __device__ void load(u32 from, bool first, bool second) {
    UNROLL for (int i = 0; i < 2; i++) {
      const u32 quad = from + i * kRowBlock * Op::kZeroElement;
      u32 bits[2] = {0, 0};
      if (i == 0 ? first : second) {
        if constexpr (kFloat32)
          load_shared(quad, bits[0], bits[1]);
        else
          load_shared(quad, bits[0]);
      }
      UNROLL for (int row = 0; row < 2; row++) {
        if constexpr (kFloat32) {
          const Tf32Pair pair(__uint_as_float(bits[row]));
          a[0][2 * i + row] = __float_as_uint(pair.high);
          a[1][2 * i + row] = __float_as_uint(pair.low);
        } else {
          a[0][2 * i + row] = __float_as_uint(f16_to_float(u16(bits[0] >> (16 * row))));
        }
      }
    }
  }
};

/// Adds the products of a stage, whose first group is 8 `eight`, to the sums of a warp.
template <class Memory>
__device__ inline void add_zeros(const Memory& memory, const Work<typename Memory::Tile>& work,
                                 const Segment& now, int slot, int eight,
                                 float (&sums)[Memory::Tile::kSums]) {
  typedef ZeroStages<Memory> Stages;
  typedef typename Memory::Tile Tile;
  typedef typename Memory::Op Op;
  const Stages stages(now);
  // The compiler would keep in registers what follows from these, before this place and after it.
  u32 thread;
  int tile = now.tile;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread), "+r"(tile));
  const int warp = thread / 32, lane = thread % 32, g = lane / 4, pair = 2 * (lane % 4);
  const int row = work.first_row(tile) % 8 + g;
  const int rows = work.end_row(tile) - work.first_row(tile);
  constexpr int kRowsAtOnce = Tile::kRows < 32 ? 16 : 32;  // as far as registers go
  u32 sum = memory.stages + slot * Memory::kStage + row * 64 + lane % 4 * 16;
  u32 zero = memory.stages + slot * Memory::kStage + Memory::kWeights +
             warp / 2 % Tile::kRowBlocks * (Stages::kEights * Stages::kZeros) +
             (4 * (8 * pair + g) + warp % 2 * 2) * Op::kZeroElement;
  const int end = min(eight + Stages::kEights, stages.end());
#pragma unroll 1
  for (; eight < end; eight++) {
    const int group = 8 * eight + pair;
    const bool first = group >= stages.begin && group < stages.stop;
    ZeroOperand<Op> z;
    z.load(zero, first, first && group + 1 < stages.stop);
    UNROLL for (int begin = 0; begin < Tile::kRows; begin += kRowsAtOnce) {
      if (begin > 0 && begin >= rows) break;
      uint4 s[kRowsAtOnce / 8];
      UNROLL for (int i = 0; i < kRowsAtOnce / 8; i++) {
        s[i] = make_uint4(0, 0, 0, 0);
        if (first) load_shared(sum + (begin / 8 + i) * Stages::kSums, s[i]);
      }
      // Products that wait for none of the others follow each other.
      UNROLL for (int piece = 2 * z.kPieces - 1; piece >= 0; piece--)
          UNROLL for (int i = 0; i < kRowsAtOnce / 8; i++) {
        float(&to)[4] = reinterpret_cast<float(&)[4]>(sums[begin / 2 + 4 * i]);
        mma_tf32(to, z.a[piece / 2], piece % 2 != 0 ? s[i].z : s[i].x,
                 piece % 2 != 0 ? s[i].w : s[i].y);
      }
    }
    sum += Stages::kSumsOfEight;
    zero += Stages::kZeros;
  }
}
