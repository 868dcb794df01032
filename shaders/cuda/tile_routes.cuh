// What the tiles of a product of experts for Hopper need before they begin: the table of routes,
// and rows of A in its order, with their sums over groups. All of it happens in the product's
// launch:
//
//   few rows, small tiles   each block sorts for itself, and finds rows of A by index
//   otherwise               blocks draw numbers. The first one sorts into memory, for which the
//                           others wait; each other number is a piece of the rows of A, which the
//                           warps that multiply gather. Meanwhile the first weights arrive. The
//                           warp that brings A waits until all pieces are done.
//
// The block that sorts waits for none, and one that gathers waits for the one that sorts alone. So
// no block waits for one that has not started, whatever else the device runs.
#pragma once
#include "gather.cuh"
#include "tile_shape.cuh"

/// Counters in memory, which are 0 between launches.
struct RouteCounters {
  u32* const numbers;
  enum { kTaken, kSorted, kGathered, kLeft };

  __device__ explicit RouteCounters(const Launch& launch)
      : numbers(launch.buffer<u32>(MARLIN_BUFFER_FLAGS) + kRouteCounters) {}
  __device__ int take() const { return int(atomicAdd(numbers + kTaken, 1u)); }
  /// Counts what all threads wrote before a barrier that this thread has passed.
  __device__ void count(int which) const {
    asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(numbers + which) : "memory");
  }
  __device__ void wait_for(int which, int count) const {
    u32 there;
    do
      asm volatile("ld.acquire.gpu.global.u32 %0, [%1];"
                   : "=r"(there)
                   : "l"(numbers + which)
                   : "memory");
    while (there < u32(count));
  }
  /// Whoever has no more to ask of the counters leaves; the last of `all` makes them 0.
  __device__ void leave(int all) const {
    if (int(atomicAdd(numbers + kLeft, 1u)) + 1 < all) return;
    for (int i = kTaken; i <= kLeft; i++) numbers[i] = 0;
  }
};

/// Pieces of the rows of A that blocks gather.
template <class Memory>
struct TileGather {
  typedef typename Memory::Tile Tile;
  typedef typename Memory::Op Op;
  typedef typename GatheredElement<Op::kIsBf16>::Type T;
  static constexpr int kThreads = Tile::kTeams * Tile::kGroups * kGroupThreads;  // that multiply
  static constexpr int kMostRows = 64, kWarps = kThreads / kLanes;
  /// Teams have no registers for it later: blocks gather and wait before the first weights arrive.
  static constexpr bool kFirst = Tile::kTeams > 1;
  /// In shared memory, where results will be.
  struct Shared {
    PreparedRow found[kMostRows];
    int taken;
  };
  static_assert(sizeof(Shared) <= Tile::kGroups * Tile::kOut, "room");

  const Launch& launch;
  const ProductArgs& args;
  const RouteCounters counters;
  int rows, pieces;  // rows of a piece, a multiple of eight, which sums need

  __device__ explicit TileGather(const Launch& launch_)
      : launch(launch_), args(launch_.arguments<ProductArgs>()), counters(launch_) {
    const int share = (args.m + int(gridDim.x) - 1) / int(gridDim.x);
    rows = min((share + 7) / 8 * 8, kMostRows);
    pieces = args.gather_rows_of_a == 0 ? 0 : (args.m + rows - 1) / rows;
  }
  /// Those of all blocks that leave the counters: warps that multiply, and warps that wait().
  __device__ int leavers() const {
    return int(gridDim.x) * (pieces == 0 ? 1 : (Op::kAdditive && !kFirst ? 3 : 2));
  }
  /// Gathers pieces until none is left, the first one being `taken`. The threads that multiply call
  /// it.
  __device__ void gather_pieces(int taken, Shared& shared) const {
    while (taken <= pieces) {
      if (taken > 0) gather_piece(taken - 1, shared.found);
      if (threadIdx.x == 0) shared.taken = counters.take();
      meet();
      taken = shared.taken;
      meet();  // results come to the same memory
    }
    if (threadIdx.x == 0) counters.leave(leavers());
  }
  /// Waits until all pieces are there, for bulk copies. A warp that brings A or its sums calls it.
  __device__ void wait() const {
    counters.wait_for(RouteCounters::kGathered, pieces);
    asm volatile("fence.proxy.async;" ::: "memory");
    __syncwarp();
    if (threadIdx.x % kLanes == 0) counters.leave(leavers());
  }

 private:
  /// Waits for the other threads that multiply.
  __device__ static void meet() { asm volatile("bar.sync 14, %0;" ::"n"(kThreads) : "memory"); }
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
  /// `found` tells all threads where rows begin.
  __device__ void gather_piece(int piece, PreparedRow* found) const {
    const int first = piece * rows, thread = int(threadIdx.x);
    if (thread < rows) found[thread] = PreparedRow(source(), first + thread);
    meet();
    const T* const a = launch.buffer<const T>(MARLIN_BUFFER_GATHER_FROM);
    T* const to = launch.buffer<T>(MARLIN_BUFFER_A) + first * args.lda;
    const bool aligned =
        (reinterpret_cast<u64>(a) | u64(args.gather_lda) * sizeof(T)) % sizeof(uint4) == 0;
    // Teams have no registers for many loads at once.
    if (Tile::kTeams == 1 && aligned && args.gather_k % kGatheredSlots == 0 &&
        launch.constant(MARLIN_CONSTANT_SLOT_TO_K) == 0)
      copy_rows(a, to, found);
    else
      copy_slots(a, to, found, aligned);
    if constexpr (Op::kAdditive) {
      meet();
      sum_groups(first);
    }
    // The copy engine reads what was written.
    asm volatile("fence.proxy.async;" ::: "memory");
    __threadfence();
    meet();
    if (thread == 0) counters.count(RouteCounters::kGathered);
  }
  /// Many loads of a thread are on their way at once.
  __device__ void copy_rows(const T* a, T* to, const PreparedRow* found) const {
    constexpr int kAtOnce = 8;
    const int of_row = args.slots / kGatheredSlots, all = rows * of_row;
#pragma unroll 1
    for (int begin = int(threadIdx.x); begin < all; begin += kAtOnce * kThreads) {
      uint4 x[kAtOnce];
      UNROLL for (int j = 0; j < kAtOnce; j++) {
        const int i = begin + j * kThreads, row = i / of_row;
        const int slot = (i - row * of_row) * kGatheredSlots;
        x[j] = make_uint4(0, 0, 0, 0);
        if (i < all && found[row].exists && slot < args.gather_k)
          x[j] = *reinterpret_cast<const uint4*>(a + (found[row].row * args.gather_lda + slot));
      }
      // Rows of slots follow each other. Those past the last routed row are never read.
      UNROLL for (int j = 0; j < kAtOnce; j++) {
        const int i = begin + j * kThreads;
        if (i < all && found[i / of_row].exists)
          *reinterpret_cast<uint4*>(to + static_cast<long long>(i) * kGatheredSlots) = x[j];
      }
    }
  }
  /// The same of rows that are not aligned, or whose columns are permuted.
  __device__ void copy_slots(const T* a, T* to, const PreparedRow* found, bool aligned) const {
    const int of_row = args.slots / kGatheredSlots;
#pragma unroll 1
    for (int i = int(threadIdx.x); i < rows * of_row; i += kThreads) {
      const int row = i / of_row, slot = (i - row * of_row) * kGatheredSlots;
      if (!found[row].exists) continue;
      alignas(16) T x[kGatheredSlots];
      load_slots(a + found[row].row * args.gather_lda, found[row], slot, args.gather_k, aligned, x);
      *reinterpret_cast<uint4*>(to + row * args.lda + slot) = *reinterpret_cast<const uint4*>(x);
    }
  }
  /// Adds up rows from `first` on, which have been gathered, over groups.
  __device__ void sum_groups(int first) const {
    const int end = launch.buffer<const int>(MARLIN_BUFFER_ROUTES)[1];
    const int slots = (((args.slots >> Op::kShift) + 7) / 8 * 8) << Op::kShift;
    const int warp = int(threadIdx.x) / kLanes, lane = int(threadIdx.x) % kLanes;
    const T* const a = launch.buffer<const T>(MARLIN_BUFFER_A);
    for (int m = first + warp; m < min(first + rows, (end + 7) / 8 * 8); m += kWarps)
      for (int slot = lane * kGatheredSlots; slot < slots; slot += kLanes * kGatheredSlots)
        sum_slots(m < end ? a + m * args.lda : nullptr, m, args.m, slot, args.slots, true,
                  Op::kShift, launch.buffer<float>(MARLIN_BUFFER_GROUP_SUMS));
  }
};

/// Draws a number, and sorts the routed rows into the table in memory if it is the first. Returns
/// it when the table is there. All threads of each block call it; the stages' memory is used.
template <class Memory>
__device__ inline int share_routes(const Launch& launch) {
  struct Shared {
    u64 sums[tile_threads_of(Memory::Tile::kRows) / kLanes];
    int places[kMostExperts], taken, known[1];
  };
  constexpr int kRoom = Memory::kStages * Memory::kStage;
  constexpr int kMostKnown = (kRoom - int(sizeof(Shared))) / 4;
  static_assert(kMostKnown > 0, "room");
  Shared& shared = *reinterpret_cast<Shared*>(dynamic_memory());
  const ProductArgs& args = launch.arguments<ProductArgs>();
  const RouteCounters counters(launch);
  if (threadIdx.x == 0) shared.taken = counters.take();
  __syncthreads();
  const int taken = shared.taken;
  if (taken > 0) {
    if (threadIdx.x == 0) counters.wait_for(RouteCounters::kSorted, 1);
    __syncthreads();
    return taken;
  }
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
  int* const experts = routes.table + route_experts_at(routes.items, routes.rows);
  int* const known = args.m <= kMostKnown ? shared.known : experts;
  sort_into_memory(routes, shared.places, shared.sums, known);
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) counters.count(RouteCounters::kSorted);
  copy_route_scales(routes, known);
  return taken;
}

/// Finds the table of routes of a product of experts, and clears the rows of no expert. All threads
/// of the block call it. Returns the number that the block has drawn.
template <class Memory>
__device__ inline int find_tile_routes(const CudaParameters& parameters) {
  typedef typename Memory::Tile Tile;
  const Launch launch{parameters};
  const ProductArgs& args = launch.arguments<ProductArgs>();
  if (args.items == 0) return 0;
  wait_for_previous();
  const int* table = launch.buffer<const int>(MARLIN_BUFFER_ROUTES);
  const int* experts = table + route_experts_at(args.items, args.m);
  int drawn = 0;
  if (args.gather_experts != 0) {
    drawn = share_routes<Memory>(launch);
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
  free_memory_of_routes();
  return drawn;
}

/// Gathers rows of A together with other blocks. `drawn`: what find_tile_routes() has returned. The
/// threads that multiply call it.
template <class Memory>
__device__ inline void gather_tile_rows(const CudaParameters& parameters, int drawn) {
  const Launch launch{parameters};
  if (launch.arguments<ProductArgs>().gather_experts == 0) return;
  typedef TileGather<Memory> Gather;
  const Memory memory(dynamic_memory());
  Gather(launch).gather_pieces(drawn, *reinterpret_cast<typename Gather::Shared*>(memory.out));
}
/// Waits for all rows that are gathered. Warps whose copies read them call it.
template <class Memory>
__device__ inline void wait_for_gathered(const Launch& launch) {
  if (TileGather<Memory>::kFirst || launch.arguments<ProductArgs>().gather_rows_of_a == 0) return;
  TileGather<Memory>(launch).wait();
}
/// Gathers and waits, where that comes first. All threads of the block call it.
template <class Memory>
__device__ inline void gather_first(const CudaParameters& parameters, int drawn) {
  const Launch launch{parameters};
  typedef TileGather<Memory> Gather;
  if constexpr (Gather::kFirst) {
    const ProductArgs& args = launch.arguments<ProductArgs>();
    if (args.gather_experts == 0) return;
    if (threadIdx.x < Gather::kThreads) gather_tile_rows<Memory>(parameters, drawn);
    if (args.gather_rows_of_a != 0 && threadIdx.x < kLanes) Gather(launch).wait();
    free_memory_of_routes();
    asm volatile("fence.proxy.async;" ::: "memory");
  }
}
