// C = f(A W^T) for many rows of A and weights of a form, on Hopper.
//
//   tile        128 rows of W, four row blocks, by ROWS rows of A
//   block       two warpgroups that multiply, or two teams of two, which take stages in turn, and
//               one that brings operands; one block a multiprocessor, which takes tiles in turn
//   cluster     two blocks, where rows are many: each has a tile of the same rows of A, and brings
//               half of A to both
//   stage       boxes of 64 slots of A, swizzled, and chunks of 64 slots of packed weights; a ring
//               of stages in shared memory
//   experts     blocks sort the routed rows, and gather those of A for tiles that do not find them
//               by index (tile_routes.cuh)
//   W           from shared memory to registers, a chunk ahead; decoded there, it is the register
//               operand of wgmma or of mma.sync. (wgmma reads floats of 16 bits where they lie.)
//   sums        in registers
//   K           whole tiles first. The rest is cut into equal parts, one a block (stream-K). The
//               block that has the first part of a tile adds the sums of the others.
#pragma once
#include "byte_sums.cuh"
#include "tile_activations.cuh"
#include "tile_output.cuh"
#include "tile_zeros.cuh"

/// A lane's copies of weights: the codes, the scales or the zeros of a row block. (What is cheap to
/// compute takes no register.)
template <class Memory>
struct LaneCopies {
  typedef typename Memory::Op Op;
  enum Kind { kCodes, kScales, kZeros };
  const int kind, row_block;  // of the tile

  __device__ explicit LaneCopies(int lane)
      : kind(lane / Memory::Tile::kRowBlocks), row_block(lane % Memory::Tile::kRowBlocks) {}
  __device__ bool has_any() const {
    return kind == kCodes || (kind == kScales && Op::kScaleBytes != 0) ||
           (kind == kZeros && Op::kStagedZeroBytes != 0);
  }
  /// The bytes of a piece.
  __device__ int bytes() const {
    if (kind == kCodes) return Op::kChunkCodes;
    return kind == kScales ? Op::kScaleBytes : Op::kStagedZeroBytes;
  }
  /// The place in the weights of a row block in a stage.
  __device__ int to() const {
    if (kind == kCodes) return 0;
    return kind == kScales ? Memory::Block::kScales : Memory::Block::kZeros;
  }
  /// The bytes from one row block to the next.
  __device__ long long pitch(const ProductArgs& args) const {
    if (kind == kCodes) return static_cast<long long>(args.slots / kMmaSlots) * Op::kChunkCodes;
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
  const Launch launch{parameters};
  const ProductArgs& args = launch.arguments<ProductArgs>();
  int early = args.expanded != 0 ? 0 : max(kEarlyBytes / Memory::kWeightBytes, 1);
  const int lane = threadIdx.x % 32;
  const LaneCopies<Memory> mine(lane);
  const u32 to_lane =
      memory.stages + Memory::kWeights + Memory::row_block_at(mine.row_block) + mine.to();
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
        arrive_expecting(full, count * (chunks * Op::kChunkCodes +
                                        groups * (Op::kScaleBytes + Op::kStagedZeroBytes)));
      __syncwarp();
      if (from != nullptr) {
        const bool codes = mine.kind == LaneCopies<Memory>::kCodes;
        const u32 to = to_lane + place.slot * Memory::kStage;
        if constexpr (Memory::kDirect)
          for (int kb = 0; kb < chunks; kb++)
            copy_pieces(from, Op::kChunkCodes, c + kb, 1, 1, to + kb * Memory::kDirectChunk, full);
        else
          copy_pieces(from, mine.bytes(), codes || !Op::kGroupsOf128 ? c : c / 2,
                      codes ? chunks : groups, codes ? 1 : quad_blocks_of<Op>(args), to, full);
      }
      place.advance();
    }
    if constexpr (Op::kAdditive) announce_zeros(memory, now, place);
  }
}

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

/// What adds up the products of a tile.
template <class Activation, class Memory>
struct SumsOf {
  typedef TileSums<typename Activation::Number, Memory> Type;
};
template <class Memory>
struct SumsOf<ActivationI8, Memory> {
  typedef ByteSums<Memory> Type;
};
template <class Memory>
struct SumsOf<ActivationE4m3, Memory> {
  typedef E4m3Sums<Memory> Type;
};

/// The products of the warpgroups that multiply.
template <class Activation, class Memory>
__device__ inline void multiply_tiles(const CudaParameters& parameters, unsigned char* dynamic) {
  typedef typename Memory::Tile Tile;
  const Memory memory(dynamic);
  const u32 rank = rank_in_cluster<Tile>();
  typedef typename SumsOf<Activation, Memory>::Type Sums;
  const Launch launch{parameters};
  const ProductArgs& args = launch.arguments<ProductArgs>();
  const int number = __shfl_sync(0xFFFFFFFFu, threadIdx.x / kGroupThreads, 0);
  const int team = Tile::kTeams == 1 ? 0 : number / Tile::kGroups;
  const int group = Tile::kTeams == 1 ? number : number % Tile::kGroups;
  const int warp = threadIdx.x % kGroupThreads / 32, lane = threadIdx.x % 32;
  Sums sums;
  sums.weights.memory =
      memory.stages + Memory::kWeights + Memory::row_block_at(2 * group + warp / 2);
  sums.weights_at = Memory::kWeights + Memory::row_block_at(2 * group);
  sums.weights.half = warp % 2;
  sums.weights.rows = row_of_halves(warp % 2, lane);
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
    // Of INT8 activations: the numbers of the warp's row block, a quad for each eight rows.
    const auto of_row_block = [&](const auto* quads) {
      const int block = work.row_block(work.first_row_block(now.tile, rank), 2 * group + warp / 2);
      return quads + min(block, (args.n - 1) / kRowBlock) * (kRowBlock / 4);
    };
    if constexpr (Tile::kBytes)
      if constexpr (Memory::Op::kHasZeros)
        sums.read_zeros(of_row_block(launch.buffer<const u32>(MARLIN_BUFFER_ZEROS)));
    int last = -1;  // the stage whose boxes wgmma may still read
    bool first = true;
    const auto stage = [&](auto is_whole, auto eights, int chunks) {
      constexpr bool kWhole = decltype(is_whole)::value != 0;
      wait_for_phase(memory.full + 8 * place.slot, place.phase);
      sums.weights.fetch(place.slot, 0);
      // The same in all lanes, which the compiler cannot know of `place`: descriptors stay in
      // uniform registers.
      const u32 boxes = __shfl_sync(0xFFFFFFFFu, memory.stages + place.slot * Memory::kStage, 0);
      UNROLL for (int kb = 0; kb < Tile::kChunks; kb++) {
        if (!kWhole && kb >= chunks) break;
        const bool more = kb + 1 < Tile::kChunks && (kWhole || kb + 1 < chunks);
        if (Sums::kFetchesEarly && more) sums.weights.fetch(place.slot, kb + 1);
        if constexpr (Tile::kWgmma) {
          sums.multiply_by_wgmma(boxes, kb, first && kb == 0);
          if (!Sums::kFetchesEarly && more) sums.weights.fetch(place.slot, kb + 1);
          wgmma_wait<1>();
          if (kb == 0 && last >= 0) give_back(last);
        } else {
          sums.template multiply_by_mma<decltype(eights)::value>(boxes + kb * Tile::kBox, kb, lane);
          if constexpr (Sums::kApart)
            if (kb % 2 != 0 || (!kWhole && kb + 1 == chunks))
              sums.template scale<decltype(eights)::value>(kb);
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
    const auto stage_of_team = [&](auto is_whole, auto eights, int chunks) {
      if (teams.takes_turn())
        stage(is_whole, eights, chunks);
      else
        place.advance();
    };
    const auto all_stages = [&](auto eights) {
      int c = now.begin;
      for (; c + Tile::kChunks <= now.stop; c += Tile::kChunks)
        stage_of_team(Constant<1>(), eights, Tile::kChunks);
      if (c < now.stop) stage_of_team(Constant<0>(), eights, now.stop - c);
      if constexpr (!Tile::kWgmma) sums.template join_chains<decltype(eights)::value>();
    };
    // Tiles of mma.sync leave out products of rows that are not there: those of one half of the
    // tile, or of all but eight rows. (Teams have no registers for it.)
    constexpr int kEights = Tile::kRows / 8;
    if constexpr (!Tile::kWgmma && Tile::kTeams == 1) {
      const int rows = work.end_row(now.tile) - work.first_row(now.tile);
      if (rows <= 8)
        all_stages(Constant<1>());
      else if (rows <= kEights / 2 * 8)
        all_stages(Constant<kEights / 2>());
      else
        all_stages(Constant<kEights>());
    } else {
      all_stages(Constant<kEights>());
    }
    if (Tile::kWgmma) {
      wgmma_wait<0>();
      if (last >= 0) give_back(last);
    }
    if constexpr (Tile::kBytes) {
      const int row = work.first_row(now.tile);
      const float* const scales = launch.buffer<const float>(MARLIN_BUFFER_A_SCALES) + row;
      if constexpr (Memory::Op::kScaleBytes != 0)
        sums.scale(scales, args.m - row);
      else
        sums.scale(of_row_block(launch.buffer<const uint2>(MARLIN_BUFFER_SCALES)), scales,
                   args.m - row);
    } else if constexpr (Sums::kInUnits) {
      sums.multiply_sums(sums.unit[0], sums.unit[1]);
    }
    if constexpr (Memory::Op::kAdditive) {
      typedef ZeroStages<Memory> Stages;
      const Stages stages(now);
#pragma unroll 1
      for (int eight = stages.first(); eight < stages.end(); eight += Stages::kEights) {
        if (teams.takes_turn()) {
          wait_for_phase(memory.full + 8 * place.slot, place.phase);
          add_zeros(memory, work, now, place.slot, eight, sums.total);
          __syncwarp();
          give_back(place.slot);
        }
        place.advance();
      }
    }
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

/// How codes are decoded: those of a codebook by a table, which lies behind that of routes.
template <class Codes, bool WGMMA>
struct TileCodes {
  typedef Codes type;
};
template <bool WGMMA>
struct TileCodes<Lut4, WGMMA> {
  typedef LookedUpPairs<WGMMA ? 0 : int(kOwnTableBytes)> type;
};

/// A block's tiles.
template <class Codes, class Op, class Activation, int ROWS, bool WGMMA>
__device__ inline void make_tiles(const CudaParameters& parameters) {
  unsigned char* const dynamic = dynamic_memory();
  // Four chunks of INT8 with float32 scales of 16 slots, or of floats, leave no room for three
  // stages, and neither do two chunks of floats beside many rows of A.
  constexpr bool kIsLong =
      (WGMMA && Op::kPieces * (Op::kScaleBytes + Op::kStagedZeroBytes) >= 1024) || Op::kFloats;
  constexpr bool kBytes = Activation::kQuantized;
  constexpr int kMostChunks = Op::kFloats && ROWS > 128 ? 1 : (kIsLong ? 2 : 4);
  typedef TileShape<ROWS, WGMMA, kMostChunks, kBytes> Tile;
  typedef TileMemory<Tile, Op> Memory;
  constexpr int kMultipliers = Tile::kTeams * Tile::kGroups * kGroupThreads;
  // Registers of a thread that multiplies, and of one that brings operands. The sums of tiles of
  // wgmma take most of them.
  constexpr bool kIsWide = Op::kScaleElement == 4;
  constexpr int kRegisters = Tile::kTeams > 1 ? 104 : (WGMMA ? (kIsWide ? 224 : 232) : 208);
  constexpr int kOfProducers = Tile::kTeams > 1 ? 64 : (WGMMA ? (kIsWide ? 56 : 40) : 88);
  typedef Copiers<Memory> ActivationWarps;
  const Launch launch{parameters};
  if (threadIdx.x == 0)
    Memory(dynamic).init(ActivationWarps::count(launch.arguments<ProductArgs>()));
  let_next_start();
  const int drawn = find_tile_routes<Memory>(parameters);
  gather_first<Memory>(parameters, drawn);
  if constexpr (Op::kTableBytes != 0)
    Codes::template make_table<typename Activation::Number>(
        launch.buffer<const float>(MARLIN_BUFFER_ZEROS));
  // Copies of the other block come to memory that routes have used.
  if (Tile::kCluster == 1)
    __syncthreads();
  else
    wait_for_cluster();
  if (threadIdx.x >= kMultipliers) {
    // What a warpgroup gives back, the others take.
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kOfProducers));
    const int warp = (threadIdx.x - kMultipliers) / 32;
    if (warp == 0)
      bring_weights<Memory>(parameters, dynamic);
    else if (warp <= ActivationWarps::kMost)
      bring_activations<Memory>(parameters, dynamic, warp - 1);
    if constexpr (Op::kAdditive)
      if (warp == 2) bring_zeros<Memory>(parameters, dynamic);
    __syncwarp();
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
    wait_for_previous();
    if constexpr (Tile::kTeams == 1) gather_tile_rows<Memory>(parameters, drawn);
    multiply_tiles<Activation, Memory>(parameters, dynamic);
  }
  if (Tile::kCluster > 1) wait_for_cluster();  // the other block's copies come here, too
}

/// A form that has no such tiles gets no product here.
template <class Codes, class Activation, class Form, int ROWS, bool WGMMA, bool ROUNDS>
__device__ inline void hopper_gemm(const CudaParameters& parameters) {
  typedef typename TileCodes<Codes, WGMMA>::type Own;
  typedef Operand<Own, typename Activation::Number, Form, ROUNDS> Op;
  constexpr bool kIsWide = Op::kScaleElement == 4;
  constexpr bool kHasRoom = ROUNDS ? has_rounding_tile_of(ROWS, Codes::kWords, kIsWide,
                                                          Form::kZero != kZeroNone, Op::kShift)
                                   : has_tile_of(ROWS, Codes::kWords, kIsWide, Op::kShift);
  if constexpr (kHasRoom && (!WGMMA || Op::kHasWgmma))
    make_tiles<Own, Op, Activation, ROWS, WGMMA>(parameters);
}

/// The same of activations of a byte.
template <class Codes, class Activation, class Form, int ROWS>
__device__ inline void hopper_bytes(const CudaParameters& parameters) {
  if constexpr (!Codes::kIntegers || has_byte_tile_of(ROWS, Codes::kWords))
    make_tiles<Codes, ByteOperand<Codes, Form>, Activation, ROWS, true>(parameters);
}
