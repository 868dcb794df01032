// The shape of a tile of C for Hopper, its shared memory, and how tiles are shared out.
#pragma once
#include "routes.cuh"
#include "weight_copies.cuh"

constexpr int kGroupThreads = 128, kGroupRows = 64;  // of a warpgroup
constexpr int kPart = 2;                             // chunks that blocks share at least
constexpr int kBoxRowBytes = 128;                    // of 64 slots, or of 128 bytes
constexpr int kHalvesRows = 16, kHalvesPitch = 48;   // 16-bit results of a warp, in shared memory
constexpr int kFloatsPitch = 4 * (kGroupRows + 4);   // bytes between rows of float32 results

/// Waits for the other threads of a warpgroup.
__device__ inline void wait_for_group(int group) {
  asm volatile("bar.sync %0, 128;" ::"r"(group + 1) : "memory");
}

/// ROWS rows of A by 128 rows of W. WGMMA says which instruction multiplies: wgmma, or mma.sync,
/// which takes less time for few rows. MOST_CHUNKS are those of the longest stage. With BYTES, A is
/// INT8.
template <int ROWS, bool WGMMA, int MOST_CHUNKS, bool BYTES = false>
struct TileShape {
  static constexpr int kRows = ROWS, kGroups = 2;  // warpgroups that multiply
  static constexpr bool kWgmma = WGMMA, kBytes = BYTES;
  static constexpr int kColumns = kGroups * kGroupRows, kRowBlocks = kColumns / kRowBlock;
  static constexpr int kSums = ROWS / 2;  // of a lane
  /// Teams of these warpgroups take the stages in turn; the first one adds the sums of both.
  static constexpr int kTeams = int(tile_teams_of(ROWS));
  static_assert(tile_threads_of(ROWS) == (kTeams * kGroups + 1) * kGroupThreads,
                "one more brings operands");

  /// Blocks of a cluster: they share rows of A, and so fetch half as many bytes.
  static constexpr int kCluster = int(tile_cluster_of(ROWS));
  /// Chunks of 64 slots of a stage: more need fewer waits, fewer leave room for enough stages.
  static constexpr int kChunks = ROWS <= (BYTES ? 128 : 64) || MOST_CHUNKS < 2 ? MOST_CHUNKS : 2;
  static constexpr int kBoxRows = int(box_rows_of(ROWS));
  static constexpr int kBox = ROWS * kBoxRowBytes;
  static constexpr int kBoxChunks = BYTES ? 2 : 1, kBoxes = kChunks / kBoxChunks;
  /// Bytes of a table of routes that the block makes itself, at the begin of its memory.
  static constexpr int kTable = WGMMA ? 0 : kOwnTableBytes;
  /// Rows of float32 results of a warpgroup that are in shared memory at once: all that there is
  /// room for beside the stages.
  static constexpr int kFloatsRows = ROWS >= 256 ? 8 : (ROWS < 32 ? ROWS : 32);
  static constexpr int kHalves = 4 * kHalvesRows * kHalvesPitch;
  static constexpr int kFloats = kFloatsRows * kFloatsPitch;
  static constexpr int kOut = kHalves > kFloats ? kHalves : kFloats;  // bytes, of a warpgroup
  /// Bytes of the sums of a warpgroup of the second team.
  static constexpr int kTeamSums = kTeams > 1 ? 4 * kSums* kGroupThreads : 0;
};

/// The block's place among those that make a tile.
template <class Tile>
__device__ inline u32 rank_in_cluster() {
  return Tile::kCluster == 1 ? 0 : cluster_rank();
}

/// The weights of a row block in a stage: chunks of codes, their scales and zeros.
template <class Op, int CHUNKS>
struct StageBlock {
  static constexpr int kGroups = Op::kGroupsOf128 ? CHUNKS / 2 : CHUNKS;  // of scales
  static constexpr int kScales = CHUNKS * Op::kChunkCodes;
  static constexpr int kZeros = kScales + kGroups * Op::kScaleBytes;
  static constexpr int kBytes = kZeros + kGroups * Op::kStagedZeroBytes;
};

/// The dynamic shared memory of a block, whose begin has the table of routes that the block makes.
/// (An address that is a constant takes no register.)
__device__ inline unsigned char* dynamic_memory() {
  extern __shared__ __align__(128) unsigned char dynamic[];
  return dynamic;
}
__device__ inline int* own_table() { return reinterpret_cast<int*>(dynamic_memory()); }

/// Shared memory of a block: a table of routes, stages of boxes of A and of weights, barriers,
/// results.
template <class Tile_, class Op_>
struct TileMemory {
  typedef Tile_ Tile;
  typedef Op_ Op;
  typedef StageBlock<Op, Tile::kChunks> Block;
  /// wgmma reads the weights in shared memory. There, a chunk of the two row blocks of a warpgroup
  /// is a matrix of 64 rows; otherwise the chunks of a row block follow each other.
  static constexpr bool kDirect = Op::kFloats && Tile::kWgmma;
  static constexpr int kDirectChunk = 2 * Op::kChunkCodes;
  static constexpr int kAlignment = 1024;  // of boxes
  static constexpr int kWeights = Tile::kBoxes * Tile::kBox;
  static constexpr int kWeightBytes = Tile::kRowBlocks * Block::kBytes;
  static constexpr int kStage =
      (kWeights + kWeightBytes + kAlignment - 1) / kAlignment * kAlignment;
  static constexpr int kBarriers = 256, kMostStages = 8;
  static constexpr int kTables = Tile::kTable + Op::kTableBytes;  // of routes, and of codes
  static constexpr int kRoom = kTileSharedBytes - kTables - kAlignment - kBarriers -
                               Tile::kGroups * (Tile::kOut + Tile::kTeamSums);
  static constexpr int kStages = kRoom / kStage < kMostStages ? kRoom / kStage : kMostStages;
  static_assert(kStages >= 3, "a ring");

  u32 stages, full, empty;  // addresses
  unsigned char *out, *team_sums;

  /// The place of a row block in the weights of a stage.
  __device__ static int row_block_at(int i) {
    if (!kDirect) return i * Block::kBytes;
    return i / 2 * Tile::kChunks * kDirectChunk + i % 2 * Op::kChunkCodes;
  }

  __device__ explicit TileMemory(unsigned char* begin) {
    const u32 address = shared_address(begin);
    stages = (address + kTables + kAlignment - 1) / kAlignment * kAlignment;
    full = stages + kStages * kStage;
    empty = full + 8 * kStages;
    out = begin + (full - address) + kBarriers;
    team_sums = out + Tile::kGroups * Tile::kOut;
  }
  /// One thread calls it. A stage is full when the weights are there and A, which so many warps
  /// bring, and empty when all warps have read it, those of the cluster's other block, too.
  __device__ void init(int copiers) const {
    for (int i = 0; i < kStages; i++) {
      init_barrier(full + 8 * i, copiers + 1);
      init_barrier(empty + 8 * i, Tile::kGroups * kGroupThreads / 32 * Tile::kCluster);
    }
    publish_barriers();
  }
};

/// A place in a ring, and the phase of its barrier.
template <int SLOTS>
struct RingPlace {
  int slot = 0;
  u32 phase = 0;
  __device__ void advance() {
    if (++slot < SLOTS) return;
    slot = 0;
    phase ^= 1;
  }
};

/// Number `i` of the table of routes (../common/arguments.h): of the block's own, if it has made
/// one.
template <class Tile>
__device__ inline int route_number(const Launch& launch, long long i) {
  if constexpr (Tile::kTable != 0)
    if (launch.arguments<ProductArgs>().experts != 0) {
      // (nvcc 13 reads one address for both tables from global memory.)
      u32 number;
      load_shared(shared_address(own_table()) + u32(i) * 4, number);
      return int(number);
    }
  return launch.buffer<const int>(MARLIN_BUFFER_ROUTES)[i];
}
/// The routed row at a place.
template <class Tile>
__device__ inline int routed_row_of_tile(const Launch& launch, int place) {
  return route_number<Tile>(launch, route_sorted_at(launch.arguments<ProductArgs>().items) + place);
}

/// Chunks of 64 slots of a tile. Tiles that follow each other have the same weights.
struct Segment {
  int tile, begin, stop;
};

/// The tiles of a block, in order, or parts of K of them. A cluster of blocks has them in common,
/// and counts as one. (What is cheap to compute takes no register.)
template <class Tile>
struct Work {
  const Launch& launch;
  const ProductArgs& args;
  int row_tiles;     // tiles of rows of A: with routing, the items
  int whole, units;  // tiles that are not shared, parts of those that are
  int next_whole, at, end;

  __device__ explicit Work(const Launch& launch_)
      : launch(launch_), args(launch.arguments<ProductArgs>()) {
    constexpr int kColumns = Tile::kCluster * Tile::kColumns;
    row_tiles = (args.m + Tile::kRows - 1) / Tile::kRows;
    if (routed()) {
      wait_for_previous();
      row_tiles = route_number<Tile>(launch, 0);
    }
    const int tiles = row_tiles * ((args.n + kColumns - 1) / kColumns);
    const int waves = tiles / blocks() - (tiles % blocks() == 0 || tiles < blocks() ? 0 : 1);
    whole = waves * blocks();
    units = (tiles - whole) * parts();
    next_whole = me();
    at = start(me());
    end = start(me() + 1);
  }
  /// Chunks of 64 slots of a tile, and parts of so many chunks.
  __device__ int chunks() const { return args.slots / kMmaSlots; }
  __device__ int parts() const { return (chunks() + kPart - 1) / kPart; }
  __device__ int blocks() const { return int(gridDim.x) / Tile::kCluster; }
  /// A higher number was started earlier.
  __device__ int me() const { return int(gridDim.x - 1 - blockIdx.x) / Tile::kCluster; }
  __device__ bool routed() const { return args.items != 0; }
  /// Of the item of a tile: an expert, the first of its rows, or their number.
  enum Item { kExpert, kFirstRow, kRows };
  __device__ int item(int tile, Item which) const {
    return route_number<Tile>(launch, kRouteItem * (1 + tile % row_tiles) + which);
  }
  /// The first part of block i.
  __device__ int start(int i) const { return int(static_cast<long long>(units) * i / blocks()); }
  __device__ bool next(Segment& to) {
    if (next_whole < whole) {
      to = Segment{next_whole, 0, chunks()};
      next_whole += blocks();
      return true;
    }
    if (at >= end) return false;
    const int shared = at / parts(), first = at - shared * parts();
    const int last = min(parts(), first + (end - at));
    to = Segment{whole + shared, first * kPart, min(last * kPart, chunks())};
    at += last - first;
    return true;
  }
  __device__ bool is_part(const Segment& s) const { return s.begin > 0 || s.stop < chunks(); }
  /// The last of the blocks that share the tile whose first part this block has.
  __device__ int last_sharer(int tile) const {
    const int end_of_tile = (tile - whole + 1) * parts();
    int last = me();
    while (last + 1 < blocks() && start(last + 1) < end_of_tile) last++;
    return last;
  }
  /// The first row of A of a tile, the end of its rows, and the first row block of a block's part
  /// of it.
  __device__ int first_row(int tile) const {
    return routed() ? item(tile, kFirstRow) : tile % row_tiles * Tile::kRows;
  }
  __device__ int end_row(int tile) const {
    return routed() ? item(tile, kFirstRow) + item(tile, kRows) : args.m;
  }
  __device__ int first_row_block(int tile, u32 rank) const {
    return (tile / row_tiles * Tile::kCluster + int(rank)) * Tile::kRowBlocks;
  }
  /// Row block `i` of the part of a tile that begins at row block `first`. If gate rows and up rows
  /// are apart, each warpgroup has a row block of both.
  __device__ int row_block(int first, int i) const {
    if (!pairs_halves(launch)) return first + i;
    return (first + i) / 2 + i % 2 * (args.n / (2 * kRowBlock));
  }
  __device__ int expert(int tile) const { return routed() ? item(tile, kExpert) : 0; }
  /// The bytes from the first expert's weights to those of the tile.
  __device__ long long weights_at(int tile) const { return expert(tile) * args.expert_stride; }
};
