// The shape of a tile of C for Hopper, its shared memory, and how tiles are shared out.
#pragma once
#include "hopper.cuh"

constexpr int kGroupThreads = 128, kGroupRows = 64;  // of a warpgroup
constexpr int kMostAhead = 4;                        // chunks of weights
constexpr int kPart = 2;                             // chunks that blocks share at least
constexpr int kBoxRowBytes = 128;                    // of 64 slots
constexpr int kResults = 16;                         // rows of results in shared memory
constexpr int kOutPitch = 4 * (kGroupRows + 4);      // bytes between them: no bank conflicts
constexpr int kHalvesPitch = 2 * (kGroupRows + 8);   // of 16-bit numbers

/// Waits for the other threads of a warpgroup.
__device__ inline void wait_for_group(int group) {
  asm volatile("bar.sync %0, 128;" ::"r"(group + 1) : "memory");
}

/// ROWS rows of A by 128 rows of W. WGMMA says which instruction multiplies: wgmma, or mma.sync,
/// which takes less time for few rows.
template <int ROWS, bool WGMMA>
struct TileShape {
  static constexpr int kRows = ROWS, kGroups = 2;  // warpgroups that multiply
  static constexpr bool kWgmma = WGMMA;
  static constexpr int kColumns = kGroups * kGroupRows, kRowBlocks = kColumns / kRowBlock;
  static constexpr int kSums = ROWS / 2;  // of a lane

  static constexpr int kBoxes = ROWS <= 64 ? kMostAhead : 1;  // of a slot of the ring
  static constexpr int kBoxRows = int(box_rows_of(ROWS));
  static constexpr int kBox = ROWS * kBoxRowBytes, kSlot = kBoxes * kBox;
  static constexpr int kOut = kResults * kOutPitch;
  static constexpr int kBarriers = 512, kAlignment = 1024, kMostSlots = 16;
  static constexpr int kRoom = (kTileSharedBytes - kAlignment - kBarriers - kGroups * kOut) / kSlot;
  static constexpr int kSlots = kRoom < kMostSlots ? kRoom : kMostSlots;
  static_assert(kSlots >= 3, "a ring");
};

/// Where a block finds what in shared memory.
template <class Tile>
struct TileMemory {
  u32 boxes, full, empty;  // addresses
  unsigned char* out;

  __device__ explicit TileMemory(unsigned char* memory) {
    const u32 address = shared_address(memory);
    boxes = (address + Tile::kAlignment - 1) / Tile::kAlignment * Tile::kAlignment;
    full = boxes + Tile::kSlots * Tile::kSlot;
    empty = full + 8 * Tile::kSlots;
    out = memory + (full + Tile::kBarriers - address);
  }
  __device__ u32 flag() const { return full + 16 * Tile::kSlots; }
  /// One thread calls it.
  __device__ void init() const {
    for (int i = 0; i < Tile::kSlots; i++) {
      init_barrier(full + 8 * i, 1);
      init_barrier(empty + 8 * i, Tile::kGroups * kGroupThreads / 32);
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

/// Chunks of 64 slots of a tile. Tiles that follow each other have the same weights.
struct Segment {
  int tile, begin, stop;
};

/// The tiles of a block, in order, or parts of K of them.
struct Work {
  int chunks, parts;  // of a tile
  int whole, units;   // tiles that are not shared, parts of those that are
  int next_whole, at, end;

  __device__ Work(int tiles, int chunks_) : chunks(chunks_) {
    const int blocks = gridDim.x;
    parts = (chunks + kPart - 1) / kPart;
    const int waves = tiles / blocks - (tiles % blocks == 0 || tiles < blocks ? 0 : 1);
    whole = waves * blocks;
    units = (tiles - whole) * parts;
    next_whole = blockIdx.x;
    at = start(blockIdx.x);
    end = start(blockIdx.x + 1);
  }
  /// The first part of block i.
  __device__ int start(int i) const {
    return int(static_cast<long long>(units) * i / int(gridDim.x));
  }
  __device__ bool next(Segment& to) {
    if (next_whole < whole) {
      to = Segment{next_whole, 0, chunks};
      next_whole += int(gridDim.x);
      return true;
    }
    if (at >= end) return false;
    const int shared = at / parts, first = at - shared * parts;
    const int last = min(parts, first + (end - at));
    to = Segment{whole + shared, first * kPart, min(last * kPart, chunks)};
    at += last - first;
    return true;
  }
  __device__ bool is_part(const Segment& s) const { return s.begin > 0 || s.stop < chunks; }
  /// Blocks first ... last share a tile.
  __device__ void sharers(int tile, int& first, int& last) const {
    const int from = (tile - whole) * parts;
    first = last = int(blockIdx.x);
    while (first > 0 && start(first) > from) first--;
    while (last + 1 < int(gridDim.x) && start(last + 1) < from + parts) last++;
  }
  /// The place of a block's sums of a tile: a block has two, of a tile that another block has
  /// begun, and of one that it begins.
  __device__ int place_of(int tile, int block) const {
    return 2 * block + (start(block) > (tile - whole) * parts ? 0 : 1);
  }
};
