// What the tiles of a product of experts for Hopper need before they begin: the table of routes,
// and rows of A in its order, with their sums over groups. All of it happens in the product's
// launch:
//
//   few rows, small tiles   each block sorts for itself, and finds rows of A by index
//   otherwise               blocks take pieces of the work from a counter: the first sorts into
//                           memory, and the others gather rows. Then blocks wait until all pieces
//                           are done.
//
// A block that has taken a piece waits for the block that sorts, which waits for none. So no block
// waits for one that has not started, whatever else the device runs.
#pragma once
#include "gather.cuh"
#include "tile_shape.cuh"

/// Counters in memory, which are 0 between launches.
struct RouteCounters {
  u32* const numbers;
  enum { kTaken, kSorted, kGathered, kLeft };

  __device__ explicit RouteCounters(const Launch& launch)
      : numbers(launch.buffer<u32>(MARLIN_BUFFER_FLAGS) + kRouteCounters) {}
  __device__ u32 take() const { return atomicAdd(numbers + kTaken, 1u); }
  /// Counts what all threads of the block wrote before a barrier of the block.
  __device__ void count(int which) const {
    asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(numbers + which) : "memory");
  }
  __device__ void wait_for(int which, u32 count) const {
    u32 there;
    do
      asm volatile("ld.acquire.gpu.global.u32 %0, [%1];"
                   : "=r"(there)
                   : "l"(numbers + which)
                   : "memory");
    while (there < count);
  }
  /// The last block that waits for nothing any more makes them 0.
  __device__ void leave() const {
    if (atomicAdd(numbers + kLeft, 1u) + 1 < gridDim.x) return;
    for (int i = kTaken; i <= kLeft; i++) numbers[i] = 0;
  }
};

/// Pieces of the rows of A that blocks gather.
template <class Op, int THREADS>
struct TileGather {
  typedef typename GatheredElement<Op::kIsBf16>::Type T;
  static constexpr int kMostRows = 64, kWarps = THREADS / kLanes;
  const Launch& launch;
  const ProductArgs& args;
  int rows, pieces;  // rows of a piece, a multiple of eight, which sums need

  __device__ explicit TileGather(const Launch& launch_)
      : launch(launch_), args(launch_.arguments<ProductArgs>()) {
    const int share = (args.m + int(gridDim.x) - 1) / int(gridDim.x);
    rows = min((share + 7) / 8 * 8, kMostRows);
    pieces = args.gather_rows_of_a == 0 ? 0 : (args.m + rows - 1) / rows;
  }
  __device__ RowSource source() const {
    const int* const slots = launch.constant(MARLIN_CONSTANT_SLOT_TO_K) == 0
                                 ? nullptr
                                 : launch.buffer<const int>(MARLIN_BUFFER_GATHER_SLOTS);
    return {launch.buffer<const int>(MARLIN_BUFFER_ROUTES),
            args.items,
            args.m,
            args.gather_rows_of_a,
            slots,
            args.expert_stride};
  }
  /// Gathers a piece. All threads of the block call it. `found` has room for kMostRows in shared
  /// memory, so that all threads know where rows begin.
  __device__ void gather(int piece, PreparedRow* found) const {
    const int first = piece * rows, thread = int(threadIdx.x);
    const RowSource from = source();
    if (thread < rows) found[thread] = PreparedRow(from, first + thread);
    __syncthreads();
    const T* const a = launch.buffer<const T>(MARLIN_BUFFER_GATHER_FROM);
    const bool aligned =
        (reinterpret_cast<u64>(a) | u64(args.gather_lda) * sizeof(T)) % sizeof(uint4) == 0;
    T* const to = launch.buffer<T>(MARLIN_BUFFER_A) + first * args.lda;
    const int of_row = args.slots / kGatheredSlots;
#pragma unroll 4
    for (int i = thread; i < rows * of_row; i += THREADS) {
      const int row = i / of_row, slot = (i - row * of_row) * kGatheredSlots;
      if (!found[row].exists) continue;
      alignas(16) T x[kGatheredSlots];
      load_slots(a + found[row].row * args.gather_lda, found[row], slot, args.gather_k, aligned, x);
      *reinterpret_cast<uint4*>(to + row * args.lda + slot) = *reinterpret_cast<const uint4*>(x);
    }
  }
  /// Adds up the rows of a piece, which has been gathered, over groups.
  __device__ void sum_groups(int piece) const {
    const int first = piece * rows, end = launch.buffer<const int>(MARLIN_BUFFER_ROUTES)[1];
    const int slots = (((args.slots >> Op::kShift) + 7) / 8 * 8) << Op::kShift;
    const int warp = int(threadIdx.x) / kLanes, lane = int(threadIdx.x) % kLanes;
    const T* const a = launch.buffer<const T>(MARLIN_BUFFER_A);
    for (int m = first + warp; m < min(first + rows, (end + 7) / 8 * 8); m += kWarps)
      for (int slot = lane * kGatheredSlots; slot < slots; slot += kLanes * kGatheredSlots)
        sum_slots(m < end ? a + m * args.lda : nullptr, m, args.m, slot, args.slots, true,
                  Op::kShift, launch.buffer<float>(MARLIN_BUFFER_GROUP_SUMS));
  }
};

/// Sorts the routed rows into the table in memory.
template <class Memory>
__device__ inline void sort_for_all(const Launch& launch, int* places, u64* sums) {
  const ProductArgs& args = launch.arguments<ProductArgs>();
  const bool adds = launch.constant(MARLIN_CONSTANT_ROUTING) == kRoutingSums;
  const RoutesToSort routes{launch.buffer<const int>(MARLIN_BUFFER_ROUTED_IDS),
                            launch.buffer<const void>(MARLIN_BUFFER_ROUTED_SCALES),
                            adds ? launch.constant(MARLIN_CONSTANT_BIAS_TYPE) : u32(kFloatNone),
                            launch.buffer<int>(MARLIN_BUFFER_ROUTES),
                            args.m,
                            args.top_k,
                            args.gather_experts,
                            Memory::Tile::kRows,
                            args.items,
                            args.id_stride,
                            args.scale_stride};
  sort_into_memory(routes, places, sums);
}

/// Sorts routed rows, and gathers rows of A, together with the other blocks. All threads of each
/// block call it, and may use its shared memory afterwards. The other block of a cluster may not.
template <class Memory>
__device__ inline void share_routes(const Launch& launch) {
  constexpr int kThreads = tile_threads_of(Memory::Tile::kRows);
  typedef TileGather<typename Memory::Op, kThreads> Gather;
  // In the stages' memory.
  struct Shared {
    u64 sums[kThreads / kLanes];
    PreparedRow found[Gather::kMostRows];
    int places[kMostExperts], taken;
  };
  static_assert(sizeof(Shared) <= Memory::kStages * Memory::kStage, "room");
  Shared& shared = *reinterpret_cast<Shared*>(dynamic_memory());
  const RouteCounters counters(launch);
  const Gather gather(launch);
  const bool first = threadIdx.x == 0;
  for (bool sorted = false;;) {
    if (first) shared.taken = int(counters.take());
    __syncthreads();
    const int taken = shared.taken;
    if (taken > gather.pieces) break;
    if (taken == 0) {
      sort_for_all<Memory>(launch, shared.places, shared.sums);
    } else {
      if (first && !sorted) counters.wait_for(RouteCounters::kSorted, 1);
      __syncthreads();
      gather.gather(taken - 1, shared.found);
      if constexpr (Memory::Op::kAdditive) {
        __syncthreads();
        gather.sum_groups(taken - 1);
      }
      // The copy engine reads what was written.
      asm volatile("fence.proxy.async;" ::: "memory");
    }
    sorted = true;
    __threadfence();
    __syncthreads();
    if (first) counters.count(taken == 0 ? RouteCounters::kSorted : RouteCounters::kGathered);
  }
  if (first) {
    counters.wait_for(RouteCounters::kSorted, 1);
    counters.wait_for(RouteCounters::kGathered, u32(gather.pieces));
    counters.leave();
  }
  __syncthreads();
  asm volatile("fence.proxy.async;" ::: "memory");
}

/// Finds the table of routes of a product of experts, and rows of A where they are gathered. Clears
/// the rows of no expert. All threads of the block call it.
template <class Memory>
__device__ inline void find_tile_routes(const CudaParameters& parameters) {
  typedef typename Memory::Tile Tile;
  const Launch launch{parameters};
  const ProductArgs& args = launch.arguments<ProductArgs>();
  if (args.items == 0) return;
  wait_for_previous();
  const int* table = launch.buffer<const int>(MARLIN_BUFFER_ROUTES);
  const int* experts = table + route_experts_at(args.items, args.m);
  if (args.gather_experts != 0) {
    share_routes<Memory>(launch);
  } else if constexpr (Tile::kTable != 0) {
    constexpr int kThreads = tile_threads_of(Tile::kRows);
    if (args.experts != 0 && args.m > kFewRoutedRows) {
      // The stages are free.
      experts =
          sort_routes<kThreads>(launch, Tile::kRows, own_table(), dynamic_memory() + Tile::kTable);
    } else if (args.experts != 0) {
      if (threadIdx.x < kLanes) sort_few_routes(launch, Tile::kRows, own_table());
      experts = own_table() + route_experts_at(args.items, args.m);
      __syncthreads();
    }
  }
  clear_rows_of_no_expert(launch, experts, tile_threads_of(Tile::kRows));
  if (Tile::kTable != 0) free_memory_of_routes();
}
