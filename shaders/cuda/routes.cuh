// The routes of a mixture of experts as kernels read them (../common/arguments.h): from the table
// that `route` has written or, where routed rows are few, from one that each block makes itself.
#pragma once
#include "epilogue.cuh"

/// Adds up `x` over the lanes of a warp up to this one.
template <class T>
__device__ inline T sum_to_lane(T x) {
  const int lane = int(threadIdx.x) % kLanes;
  UNROLL for (int distance = 1; distance < kLanes; distance *= 2) {
    const T before = __shfl_up_sync(~0u, x, distance);
    if (lane >= distance) x += before;
  }
  return x;
}

/// The numbers of a table of up to kFewRoutedRows routed rows and as many items, without scales.
constexpr int kFewRoutes = kRouteItem * (1 + kFewRoutedRows) + 2 * kFewRoutedRows;

/// Sorts few routed rows, each of which is a lane's, by expert, and cuts them into items of up to
/// `tile_rows`: an item begins at a lane that is the first of its expert, or a multiple of
/// `tile_rows` further. A warp calls it; other warps see the table after a barrier. The first block
/// writes what `finish` reads, too.
__device__ inline void find_few_routes(const Launch& launch, int tile_rows, int* table) {
  constexpr u32 kAll = ~0u;
  const ProductArgs& args = launch.arguments<ProductArgs>();
  const int lane = int(threadIdx.x) % kLanes, token = lane / args.top_k;
  const int slot = lane - token * args.top_k;
  int expert = -1;
  if (lane < args.m)
    expert = launch.buffer<const int>(MARLIN_BUFFER_ROUTED_IDS)[token * args.id_stride + slot];
  if (expert < 0 || expert >= args.experts) expert = -1;
  const u32 before = (1u << lane) - 1, same = __match_any_sync(kAll, expert);
  const int rank = __popc(same & before), in_item = rank % tile_rows;
  const bool begins = expert >= 0 && in_item == 0;
  const int rows = begins ? min(__popc(same) - rank, tile_rows) : 0;
  const int end = sum_to_lane(rows);  // of the places of the items up to the lane's
  int leader = lane;                  // the lane that begins the item
  u32 earlier = same & before;
  for (int i = 0; i < in_item; i++) {
    leader = 31 - __clz(int(earlier));
    earlier ^= 1u << leader;
  }
  __syncwarp();
  const u32 all_begins = __ballot_sync(kAll, begins);
  const int places = __shfl_sync(kAll, end, kLanes - 1);
  const int first = __shfl_sync(kAll, end - rows, leader);
  if (lane == 0) reinterpret_cast<int4*>(table)[0] = make_int4(__popc(all_begins), places, 0, 0);
  if (begins)
    reinterpret_cast<int4*>(table)[1 + __popc(all_begins & before)] =
        make_int4(expert, first, rows, 0);
  if (expert >= 0) table[route_sorted_at(args.items) + first + in_item] = lane;
  if (lane >= args.m) return;
  const long long at = route_experts_at(args.items, args.m) + lane;
  table[at] = expert;
  if (blockIdx.x + blockIdx.y + blockIdx.z != 0) return;
  int* const for_finish = launch.buffer<int>(MARLIN_BUFFER_ROUTES);
  for_finish[at] = expert;
  if (expert >= 0 && launch.constant(MARLIN_CONSTANT_ROUTING) == kRoutingSums)
    reinterpret_cast<float*>(for_finish)[route_scales_at(args.items, args.m) + lane] =
        read_float(launch.buffer<const void>(MARLIN_BUFFER_ROUTED_SCALES),
                   token * args.scale_stride + slot, launch.constant(MARLIN_CONSTANT_BIAS_TYPE));
}

/// The routed row at a place of a table of routes.
__device__ inline int routed_row(const Launch& launch, const int* table, int place) {
  return table[route_sorted_at(launch.arguments<ProductArgs>().items) + place];
}

/// The table of routes of a product of experts, for all threads of a block. `few` has room for one
/// in shared memory.
__device__ inline const int* find_routes(const Launch& launch, int tile_rows, int* few) {
  if (launch.arguments<ProductArgs>().experts == 0)
    return launch.buffer<const int>(MARLIN_BUFFER_ROUTES);
  if (threadIdx.x < kLanes) find_few_routes(launch, tile_rows, few);
  __syncthreads();
  return few;
}

/// Lets the routed rows of no expert be 0, where the product writes C itself. The first `threads`
/// threads of each block call it.
__device__ inline void clear_rows_of_no_expert(const Launch& launch, const int* table,
                                               int threads) {
  const ProductArgs& args = launch.arguments<ProductArgs>();
  if (args.items == 0 || launch.constant(MARLIN_CONSTANT_PARTIAL) != 0) return;
  const int* const experts = table + route_experts_at(args.items, args.m);
  const int columns = combines_rows(launch) ? args.n / 2 : args.n;
  for (int row = int(blockIdx.x); row < args.m; row += int(gridDim.x)) {
    if (experts[row] >= 0) continue;
    for (int column = int(threadIdx.x); column < columns; column += threads)
      store(0.0f, row * args.ldc + column, launch);
  }
}
