// C = f(A W^T) for many rows of A and weights of a form, on Hopper.
//
//   tile        128 rows of W, four row blocks, by ROWS rows of A
//   block       two warpgroups that multiply, or two teams of two, which take stages in turn, and
//               one that brings operands; one block a multiprocessor, which takes tiles in turn
//   cluster     two blocks, where rows are many: each has a tile of the same rows of A, and brings
//               half of A to both
//   stage       boxes of 64 slots of A, swizzled, by the copy engine or, of
//               routed rows in tiles of up to 32, by a warp that copies them by index, and chunks
//               of 64 slots of packed weights; a ring of stages in shared memory
//   W           from shared memory to registers, a chunk ahead; decoded there, it is the register
//               operand of wgmma or of mma.sync
//   sums        in registers
//   K           whole tiles first. The rest is cut into equal parts, one a block (stream-K). The
//               block that has the first part of a tile adds the sums of the others.
#pragma once
#include "tile_activations.cuh"
#include "tile_output.cuh"
#include "wgmma.cuh"

/// A lane's copies of weights: the codes, the scales or the zeros of a row block. (What is cheap to
/// compute takes no register.)
template <class Memory>
struct LaneCopies {
  typedef typename Memory::Op Op;
  enum Kind { kCodes, kScales, kZeros };
  const int kind, row_block;  // of the tile

  __device__ explicit LaneCopies(int lane)
      : kind(lane / Memory::Tile::kRowBlocks), row_block(lane % Memory::Tile::kRowBlocks) {}
  __device__ bool has_any() const { return kind <= (Op::kZeroBytes != 0 ? kZeros : kScales); }
  /// The bytes of a piece.
  __device__ int bytes() const {
    if (kind == kCodes) return kChunkCodes;
    return kind == kScales ? Op::kScaleBytes : Op::kZeroBytes;
  }
  /// The place in the weights of a row block in a stage.
  __device__ int to() const {
    if (kind == kCodes) return 0;
    return kind == kScales ? Memory::Block::kScales : Memory::Block::kZeros;
  }
  /// The bytes from one row block to the next.
  __device__ long long pitch(const ProductArgs& args) const {
    if (kind == kCodes) return static_cast<long long>(args.slots / kMmaSlots) * kChunkCodes;
    return kind == kScales ? scale_pitch<Op>(args) : zero_pitch<Op>(args);
  }
};

/// Brings weights. A warp calls it.
template <class Memory>
__device__ inline void bring_weights(const CudaParameters& parameters, unsigned char* dynamic) {
  typedef typename Memory::Tile Tile;
  const Memory memory(dynamic);
  const u32 rank = rank_in_cluster<Tile>();
  typedef typename Memory::Op Op;
  typedef typename Memory::Block Block;
  static_assert(MARLIN_BUFFER_SCALES == MARLIN_BUFFER_CODES + 1 &&
                    MARLIN_BUFFER_ZEROS == MARLIN_BUFFER_CODES + 2,
                "in the order of Kind");
  // Many copies on their way would hold up the end of the kernel before, and A.
  constexpr int kEarlyBytes = 64 << 10;
  int early = max(kEarlyBytes / Memory::kWeightBytes, 1);
  const Launch launch{parameters};
  const ProductArgs& args = launch.arguments<ProductArgs>();
  const int lane = threadIdx.x % 32;
  const LaneCopies<Memory> mine(lane);
  const u32 to_lane = memory.stages + Memory::kWeights + mine.row_block * Block::kBytes + mine.to();
  RingPlace<Memory::kStages> place;
  Work<Tile> work(launch);
  for (Segment now; work.next(now);) {
    const int row_blocks = (args.n + kRowBlock - 1) / kRowBlock;
    const int first = work.first_row_block(now.tile, rank);
    const int count = max(min(Tile::kRowBlocks, row_blocks - first), 0);
    const unsigned char* from = nullptr;
    if (mine.has_any() && mine.row_block < count)
      from = launch.buffer<const unsigned char>(MARLIN_BUFFER_CODES + mine.kind) +
             work.weights_at(now.tile) + work.row_block(first, mine.row_block) * mine.pitch(args);
    for (int c = now.begin; c < now.stop; c += Tile::kChunks) {
      const int chunks = min(Tile::kChunks, now.stop - c);
      const int groups = Op::kGroupsOf128 ? (chunks + 1) / 2 : chunks;
      const u32 full = memory.full + 8 * place.slot;
      if (early-- == 0) wait_for_previous();
      wait_for_phase(memory.empty + 8 * place.slot, place.phase ^ 1);
      if (lane == 0)
        arrive_expecting(
            full, count * (chunks * kChunkCodes + groups * (Op::kScaleBytes + Op::kZeroBytes)));
      __syncwarp();
      if (from != nullptr) {
        const bool codes = mine.kind == LaneCopies<Memory>::kCodes;
        copy_pieces(from, mine.bytes(), codes || !Op::kGroupsOf128 ? c : c / 2,
                    codes ? chunks : groups, codes ? 1 : quad_blocks_of<Op>(args),
                    to_lane + place.slot * Memory::kStage, full);
      }
      place.advance();
    }
  }
}

/// A lane's weights of a stage, of its half of a row block.
template <class Memory>
struct StageWeights {
  typedef typename Memory::Op Op;
  typedef typename Memory::Block Block;
  static constexpr int kChunks = Memory::Tile::kChunks;
  u32 memory;  // the address of the row block in the first stage
  int half, lane;
  uint4 q[kChunks];
  ChunkScales<Op, 1> s[kChunks];

  /// Reads chunk `kb` of a stage into place kb.
  __device__ void fetch(int slot, int kb) {
    const u32 stage = memory + slot * Memory::kStage;
    const int g = lane / 4;
    load_shared(stage + kb * kChunkCodes + half * 512 + lane * 16, q[kb]);
    const int piece = Op::kGroupsOf128 ? kb / 2 : kb;
    const u32 scales = stage + Block::kScales + piece * Op::kScaleBytes;
    const u32 zeros = stage + Block::kZeros + piece * Op::kZeroBytes;
    UNROLL for (int quad = 0; quad < Op::kQuads; quad++) {
      // Quads of one-byte scales of 16 slots are in pairs.
      const u32 from = Op::kE4m3 ? scales + 64 * (quad / 2) + 8 * g + 4 * (quad % 2)
                                 : scales + (8 * quad + g) * 4 * Op::kScaleElement;
      fetch_half<Op::kScaleElement>(from, s[kb].scales[quad]);
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
template <class Number, class Memory>
struct TileSums {
  typedef typename Memory::Tile Tile;
  typedef typename Memory::Op Op;
  static constexpr bool kApart = !Op::kFolded && !Tile::kWgmma && Op::kGroupsOf128;
  static constexpr bool kByGroup = !Op::kFolded && !Tile::kWgmma && !Op::kGroupsOf128;
  static constexpr bool kInUnits = !Op::kFolded && Tile::kWgmma;
  /// Where there are registers for it. Two scales of a chunk take more; so do sums of short groups.
  static constexpr bool kFetchesEarly = Tile::kRows < (kInUnits && Op::kQuads > 1 ? 192 : 256);

  float total[Tile::kSums], part[kApart ? Tile::kSums : 1], unit[2];  // units of rows g, g + 8
  u32 a[2][4][4];
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
  /// Makes the scales of a group, which begins with unit `u` of chunk `kb`, the units. A scale of 0
  /// changes none: its weights become 0.
  __device__ void change_units(int kb, int u) {
    float ratio[2];
    UNROLL for (int row = 0; row < 2; row++) {
      const float scale = Op::template scale<0>(weights.s[kb], u, row);
      ratio[row] = scale == 0.0f ? 1.0f : __fdividef(unit[row], scale);
      unit[row] = scale == 0.0f ? unit[row] : scale;
    }
    multiply_sums(ratio[0], ratio[1]);
  }

  /// Starts to multiply chunk `kb` of a stage by a box.
  __device__ void multiply_by_wgmma(u32 box, int kb, bool first) {
    constexpr int kUnitsAtOnce = kInUnits ? Op::kGroupUnits : 2;
    u32(&operand)[4][4] = a[kb % 2];
    weights.template decode<kInUnits>(kb, operand);
    UNROLL for (int u = 0; u < 2; u += kUnitsAtOnce) {
      if (kInUnits && (kb % 2 == 0 || !Op::kGroupsOf128)) {
        wgmma_wait<0>();
        change_units(kb, u);
      }
      wgmma_fence();
      UNROLL for (int step = 2 * u; step < 2 * (u + kUnitsAtOnce); step++) {
        const bool adds = step != 0 || kInUnits || !first;
        Wgmma<Tile::kRows>::add(Number(), total, operand[step], operand_b(box) + 2 * step, adds);
      }
      wgmma_commit();
    }
  }
  __device__ void multiply_by_mma(u32 box, int kb, int lane) {
    constexpr int kPairs = Tile::kRows / 16;
    u32 b[4][kPairs][2][2];  // on their way while weights are decoded
    UNROLL for (int step = 0; step < 4; step++) UNROLL for (int i = 0; i < kPairs; i++)
        load_operands(box, 16 * i, step, lane, b[step][i]);
    weights.template decode<false>(kb, a[0]);
    if constexpr (kByGroup) {
      UNROLL for (int u = 0; u < 2; u += Op::kGroupUnits) add_group(kb, u, b);
    } else {
      float(&to)[Tile::kSums] = sums_of_chunk();
      if (kApart && kb % 2 == 0) UNROLL for (int i = 0; i < Tile::kSums; i++) to[i] = 0.0f;
      UNROLL for (int step = 0; step < 4; step++) UNROLL for (int i = 0; i < 2 * kPairs; i++)
          Number::mma(reinterpret_cast<float(&)[4]>(to[4 * i]), a[0][step], b[step][i / 2][i % 2]);
    }
  }
  /// Adds the products of the group that begins with unit `u` of chunk `kb`.
  template <int PAIRS>
  __device__ void add_group(int kb, int u, const u32 (&b)[4][PAIRS][2][2]) {
    float scales[2];
    UNROLL for (int row = 0; row < 2; row++) scales[row] =
        Op::template scale<0>(weights.s[kb], u, row);
    UNROLL for (int i = 0; i < 2 * PAIRS; i++) {
      float sum[4] = {};
      UNROLL for (int step = 2 * u; step < 2 * (u + Op::kGroupUnits); step++)
          Number::mma(sum, a[0][step], b[step][i / 2][i % 2]);
      UNROLL for (int e = 0; e < 4; e++) total[4 * i + e] =
          fmaf(sum[e], scales[e / 2], total[4 * i + e]);
    }
  }
  __device__ void scale(int kb) {
    const float low = Op::template scale<0>(weights.s[kb], 0, 0);
    const float high = Op::template scale<0>(weights.s[kb], 0, 1);
    UNROLL for (int i = 0; i < Tile::kSums; i++) total[i] =
        fmaf(part[i], i % 4 < 2 ? low : high, total[i]);
  }
};

/// Teams of warpgroups that take the stages of K in turn (tile_teams_of). With one team, nothing is
/// left of this.
template <class Tile>
class Teams {
 public:
  __device__ Teams(unsigned char* sums, int team, int group) : team_(team), group_(group) {
    if constexpr (Tile::kTeams > 1)
      sums_ =
          reinterpret_cast<float4*>(sums + group * Tile::kTeamSums) + threadIdx.x % kGroupThreads;
  }
  /// Whether the next stage is this team's.
  __device__ bool takes_turn() {
    if constexpr (Tile::kTeams == 1) return true;
    turn_ ^= 1;
    return turn_ != team_;
  }
  /// Adds the sums of the second team to those of the first. True for the first.
  __device__ bool join(float (&sums)[Tile::kSums]) {
    if constexpr (Tile::kTeams == 1) return true;
    if (team_ != 0) {
      if (waits_) meet(kRead);
      waits_ = true;
      UNROLL for (int i = 0; i < Tile::kSums / 4; i++) sums_[i * kGroupThreads] =
          make_float4(sums[4 * i], sums[4 * i + 1], sums[4 * i + 2], sums[4 * i + 3]);
      tell(kWritten);
      return false;
    }
    meet(kWritten);
    UNROLL for (int i = 0; i < Tile::kSums / 4; i++) {
      const float4 v = sums_[i * kGroupThreads];
      sums[4 * i] += v.x;
      sums[4 * i + 1] += v.y;
      sums[4 * i + 2] += v.z;
      sums[4 * i + 3] += v.w;
    }
    tell(kRead);
    return true;
  }

 private:
  // Barriers of two warpgroups, beside those of wait_for_group. The team that tells does not wait.
  enum { kWritten = 1 + Tile::kGroups, kRead = kWritten + Tile::kGroups };
  __device__ void meet(int barrier) const {
    asm volatile("bar.sync %0, 256;" ::"r"(barrier + group_) : "memory");
  }
  __device__ void tell(int barrier) const {
    asm volatile("bar.arrive %0, 256;" ::"r"(barrier + group_) : "memory");
  }
  const int team_, group_;
  int turn_ = 0;
  bool waits_ = false;
  float4* sums_ = nullptr;
};

/// The products of the warpgroups that multiply.
template <class Activation, class Memory>
__device__ inline void multiply_tiles(const CudaParameters& parameters, unsigned char* dynamic) {
  typedef typename Memory::Tile Tile;
  const Memory memory(dynamic);
  const u32 rank = rank_in_cluster<Tile>();
  typedef TileSums<typename Activation::Number, Memory> Sums;
  const Launch launch{parameters};
  const ProductArgs& args = launch.arguments<ProductArgs>();
  const int number = __shfl_sync(0xFFFFFFFFu, threadIdx.x / kGroupThreads, 0);
  const int team = Tile::kTeams == 1 ? 0 : number / Tile::kGroups;
  const int group = Tile::kTeams == 1 ? number : number % Tile::kGroups;
  const int warp = threadIdx.x % kGroupThreads / 32, lane = threadIdx.x % 32;
  Sums sums;
  sums.weights.memory =
      memory.stages + Memory::kWeights + (2 * group + warp / 2) * Memory::Block::kBytes;
  sums.weights.half = warp % 2;
  sums.weights.lane = lane;
  RingPlace<Memory::kStages> place;
  // Copies into a stage wait for all blocks of the cluster.
  const auto give_back = [&](int slot) {
    if (lane >= Tile::kCluster) return;
    if (Tile::kCluster == 1)
      arrive(memory.empty + 8 * slot);
    else
      arrive_at(memory.empty + 8 * slot, lane);
  };

  Teams<Tile> teams(memory.team_sums, team, group);
  Work<Tile> work(launch);
  for (Segment now; work.next(now);) {
    sums.clear();
    int last = -1;  // the stage whose boxes wgmma may still read
    bool first = true;
    const auto stage = [&](auto is_whole, int chunks) {
      constexpr bool kWhole = decltype(is_whole)::value != 0;
      wait_for_phase(memory.full + 8 * place.slot, place.phase);
      sums.weights.fetch(place.slot, 0);
      // The same in all lanes, which the compiler cannot know of `place`: descriptors stay in
      // uniform registers.
      const u32 boxes = __shfl_sync(0xFFFFFFFFu, memory.stages + place.slot * Memory::kStage, 0);
      UNROLL for (int kb = 0; kb < Tile::kChunks; kb++) {
        if (!kWhole && kb >= chunks) break;
        const u32 box = boxes + kb * Tile::kBox;
        const bool more = kb + 1 < Tile::kChunks && (kWhole || kb + 1 < chunks);
        if (Sums::kFetchesEarly && more) sums.weights.fetch(place.slot, kb + 1);
        if constexpr (Tile::kWgmma) {
          sums.multiply_by_wgmma(box, kb, first && kb == 0);
          if (!Sums::kFetchesEarly && more) sums.weights.fetch(place.slot, kb + 1);
          wgmma_wait<1>();
          if (kb == 0 && last >= 0) give_back(last);
        } else {
          sums.multiply_by_mma(box, kb, lane);
          if (Sums::kApart && (kb % 2 != 0 || (!kWhole && kb + 1 == chunks))) sums.scale(kb);
        }
      }
      last = place.slot;
      if (!Tile::kWgmma) {
        __syncwarp();
        give_back(last);
      }
      place.advance();
      first = false;
    };
    // Parts of stages are code of their own: with an exit from the loop of chunks in the loop of
    // stages, the compiler lets each wgmma wait for the last.
    const auto stage_of_team = [&](auto is_whole, int chunks) {
      if (teams.takes_turn())
        stage(is_whole, chunks);
      else
        place.advance();
    };
    int c = now.begin;
    for (; c + Tile::kChunks <= now.stop; c += Tile::kChunks)
      stage_of_team(Constant<1>(), Tile::kChunks);
    if (c < now.stop) stage_of_team(Constant<0>(), now.stop - c);
    if (Tile::kWgmma) {
      wgmma_wait<0>();
      if (last >= 0) give_back(last);
    }
    if (Sums::kInUnits) sums.multiply_sums(sums.unit[0], sums.unit[1]);
    if (!teams.join(sums.total)) continue;
    if (work.is_part(now) && !join_sums<Tile>(launch, work, now, rank, group, sums.total)) continue;
    const TileOutput<Tile> output{launch,
                                  args,
                                  group,
                                  warp,
                                  lane,
                                  work.first_row(now.tile),
                                  work.end_row(now.tile),
                                  work.first_row_block(now.tile, rank),
                                  work.expert(now.tile)};
    output.write(sums.total, Memory::Op::kFactor, memory.out + group * Tile::kOut);
  }
}

/// A block's tiles.
template <class Op, class Activation, int ROWS, bool WGMMA>
__device__ inline void make_tiles(const CudaParameters& parameters) {
  extern __shared__ __align__(128) unsigned char dynamic[];
  // Scales of 16 slots need more registers.
  typedef TileShape<ROWS, WGMMA, Op::kE4m3 ? 4 : 8> Tile;
  typedef TileMemory<Tile, Op> Memory;
  constexpr int kMultipliers = Tile::kTeams * Tile::kGroups * kGroupThreads;
  // Of a thread; those of a block are as many as the launch gives. Rows by index take more.
  constexpr int kRegisters = Tile::kTeams > 1 ? 104 : (Tile::kIndexes ? 216 : 232);
  constexpr int kOfProducers = Tile::kTeams > 1 ? 64 : (Tile::kIndexes ? 72 : 40);
  if (threadIdx.x == 0) Memory(dynamic).init(brings_by_index<Tile>(Launch{parameters}) ? 32 : 1);
  let_next_start();
  if (Tile::kCluster == 1)
    __syncthreads();
  else
    wait_for_cluster();
  sort_tile_routes<Tile>(parameters, dynamic);
  if (threadIdx.x >= kMultipliers) {
    // What a warpgroup gives back, the others take.
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kOfProducers));
    const int warp = (threadIdx.x - kMultipliers) / 32;
    if (warp == 0) bring_activations<Memory>(parameters, dynamic);
    if (warp == 1) bring_weights<Memory>(parameters, dynamic);
    if (warp == 2 && Tile::kIndexes) clear_tile_rows<Tile>(parameters, threadIdx.x % 32, 32);
    __syncwarp();
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
    wait_for_previous();
    // (Tiles of few rows have no registers for it here.)
    if (!Tile::kIndexes) clear_tile_rows<Tile>(parameters, threadIdx.x, kMultipliers);
    multiply_tiles<Activation, Memory>(parameters, dynamic);
  }
  if (Tile::kCluster > 1) wait_for_cluster();  // the other block's copies come here, too
}

/// A form that has no such tiles gets no product here.
template <class Codes, class Activation, class Form, int ROWS, bool WGMMA>
__device__ inline void hopper_gemm(const CudaParameters& parameters) {
  typedef Operand<Codes, typename Activation::Number, Form> Op;
  if constexpr (WGMMA ? Op::kHasWgmma : !Op::kAdditive)
    make_tiles<Op, Activation, ROWS, WGMMA>(parameters);
}
