// The routes of a mixture of experts as kernels read them (../common/arguments.h): from the table
// that `route` has written or, where routed rows are few enough, from one that each block makes
// itself. All blocks then make the same table: rows of an expert keep their order.
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

/// Adds up `x` over the threads before this one. `shared` is read by one call only.
__device__ inline u64 sum_before(u64 x, u64* shared, u64& total) {
  const int lane = int(threadIdx.x) % kLanes, warp = int(threadIdx.x) / kLanes;
  const u64 sum = sum_to_lane(x);
  if (lane == kLanes - 1) shared[warp] = sum;
  __syncthreads();
  u64 of_warps_before = 0;
  total = 0;
  for (int w = 0; w < int(blockDim.x) / kLanes; w++) {
    if (w < warp) of_warps_before += shared[w];
    total += shared[w];
  }
  return of_warps_before + sum - x;
}

/// Cuts sorted rows into items of up to `tile_rows`. All threads of a block call it. `rows_of(e)`
/// is the number of rows of expert e, and `place_rows(e, place)` gets the first of their places.
/// `shared` has a number for each warp.
template <class RowsOf, class PlaceRows>
__device__ inline void make_items(int* table, int experts, int tile_rows, u64* shared,
                                  const RowsOf& rows_of, const PlaceRows& place_rows) {
  // A thread takes some neighboring experts. The items are counted in the upper half of a sum, the
  // rows in the lower one.
  const int thread = int(threadIdx.x), threads = int(blockDim.x);
  const int share = (experts + threads - 1) / threads;
  const int begin = min(thread * share, experts), end = min(begin + share, experts);
  const auto tiles_of = [&](int count) { return (count + tile_rows - 1) / tile_rows; };
  u64 own = 0, all;
  for (int e = begin; e < end; e++) {
    const int count = rows_of(e);
    own += u64(tiles_of(count)) << 32 | u32(count);
  }
  const u64 before = sum_before(own, shared, all);
  int place = int(u32(before)), item = int(before >> 32);
  if (thread == 0)
    reinterpret_cast<int4*>(table)[0] = make_int4(int(all >> 32), int(u32(all)), 0, 0);
  for (int e = begin; e < end; e++) {
    const int count = rows_of(e);
    for (int done = 0; done < count; done += tile_rows, item++)
      reinterpret_cast<int4*>(table)[1 + item] =
          make_int4(e, place + done, min(count - done, tile_rows), 0);
    place_rows(e, place);
    place += count;
  }
}

/// row / of_token. A division takes as long as forty other instructions, and most numbers of
/// experts of a token are powers of 2.
__device__ inline int token_of_row(int row, int of_token) {
  if ((of_token & (of_token - 1)) == 0) return row >> (31 - __clz(of_token));
  return row / of_token;
}

/// The expert of a routed row, as the caller's ids have it, or -1.
__device__ inline int named_expert(const Launch& launch, int row) {
  const ProductArgs& args = launch.arguments<ProductArgs>();
  const int token = token_of_row(row, args.top_k);
  const int* const ids = launch.buffer<const int>(MARLIN_BUFFER_ROUTED_IDS);
  // From the second-level cache: the first may have what was there before the last kernel's end.
  const int id = __ldcg(ids + (token * args.id_stride + (row - token * args.top_k)));
  return id >= 0 && id < args.experts ? id : -1;
}

__device__ inline bool is_first_block() { return blockIdx.x + blockIdx.y + blockIdx.z == 0; }

/// Writes what `finish` reads of a routed row. One block does for each row.
__device__ inline void tell_finish(const Launch& launch, int row, int expert) {
  const ProductArgs& args = launch.arguments<ProductArgs>();
  int* const table = launch.buffer<int>(MARLIN_BUFFER_ROUTES);
  table[route_experts_at(args.items, args.m) + row] = expert;
  if (expert < 0 || launch.constant(MARLIN_CONSTANT_ROUTING) != kRoutingSums) return;
  const int token = token_of_row(row, args.top_k);
  reinterpret_cast<float*>(table)[route_scales_at(args.items, args.m) + row] =
      read_float(launch.buffer<const void>(MARLIN_BUFFER_ROUTED_SCALES),
                 token * args.scale_stride + (row - token * args.top_k),
                 launch.constant(MARLIN_CONSTANT_BIAS_TYPE));
}

/// Lets the routed rows of no expert be 0, where the product writes C itself. The first `threads`
/// threads of each block call it; `experts` has those of all routed rows.
__device__ inline void clear_rows_of_no_expert(const Launch& launch, const int* experts,
                                               int threads) {
  const ProductArgs& args = launch.arguments<ProductArgs>();
  if (args.items == 0 || launch.constant(MARLIN_CONSTANT_PARTIAL) != 0) return;
  const int columns = combines_rows(launch) ? args.n / 2 : args.n;
  for (int row = int(blockIdx.x); row < args.m; row += int(gridDim.x)) {
    if (experts[row] >= 0) continue;
    for (int column = int(threadIdx.x); column < columns; column += threads)
      store(0.0f, row * args.ldc + column, launch);
  }
}

/// The numbers of a table of up to kFewRoutedRows routed rows and as many items, without scales.
constexpr int kFewRoutes = kRouteItem * (1 + kFewRoutedRows) + 2 * kFewRoutedRows;

/// Sorts few routed rows, each of which is a lane's, by expert, and cuts them into items of up to
/// `tile_rows`: an item begins at a lane that is the first of its expert, or a multiple of
/// `tile_rows` further. A warp calls it; other warps see the table after a barrier. `tells`:
/// whether the first block tells finish.
__device__ inline void sort_few_routes(const Launch& launch, int tile_rows, int* table,
                                       bool tells = true) {
  constexpr u32 kAll = ~0u;
  const ProductArgs& args = launch.arguments<ProductArgs>();
  const int lane = int(threadIdx.x) % kLanes;
  const int expert = lane < args.m ? named_expert(launch, lane) : -1;
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
  table[route_experts_at(args.items, args.m) + lane] = expert;
  if (tells && is_first_block()) tell_finish(launch, lane, expert);
}

/// Whether the ids still name the experts by which sort_few_routes(), which did not tell finish,
/// has sorted; then finish is told. All threads of the block call it.
__device__ inline bool confirm_few_routes(const Launch& launch, const int* table) {
  const ProductArgs& args = launch.arguments<ProductArgs>();
  const int row = int(threadIdx.x);
  bool same = true;
  if (row < args.m) {
    const int expert = named_expert(launch, row);
    same = expert == table[route_experts_at(args.items, args.m) + row];
    if (same && is_first_block()) tell_finish(launch, row, expert);
  }
  return __syncthreads_and(same) != 0;
}

/// Sorts routed rows by expert, and cuts them into items of up to `tile_rows`. All THREADS threads
/// of a block call it. `table` has own_table_bytes; `memory` has room for the experts of all rows,
/// a count for each warp and expert, and a number for each warp. Returns the experts of all rows,
/// which lie in `memory`; the table is complete, and `memory` free, after free_memory_of_routes().
///
/// A warp counts the rows of each expert among neighboring rows. A row's place is that of its
/// expert, plus the rows of earlier warps, plus the rows before it in its own warp.
template <int THREADS>
__device__ inline const int* sort_routes(const Launch& launch, int tile_rows, int* table,
                                         unsigned char* memory) {
  constexpr int kWarps = THREADS / kLanes;
  const ProductArgs& args = launch.arguments<ProductArgs>();
  const int thread = int(threadIdx.x), lane = thread % kLanes, warp = thread / kLanes;
  u64* const sums = reinterpret_cast<u64*>(memory);
  int* const counts = reinterpret_cast<int*>(sums + kWarps);
  int* const experts = counts + kWarps * args.experts;
  for (int i = thread; i < kWarps * args.experts; i += THREADS) counts[i] = 0;
#pragma unroll 4
  for (int row = thread; row < args.m; row += THREADS) {
    const int expert = named_expert(launch, row);
    experts[row] = expert;
    if (row % int(gridDim.x) == int(blockIdx.x) && blockIdx.z == 0)
      tell_finish(launch, row, expert);
  }
  __syncthreads();

  const int share = (args.m + THREADS - 1) / THREADS * kLanes;
  const int first = warp * share, end = min(first + share, args.m);
  int* const mine = counts + warp * args.experts;
  // Calls `use` with each row and what its expert's count is at that row, and counts on.
  const auto for_each_row = [&](const auto& use) {
    for (int begin = first; begin < end; begin += kLanes) {
      const int row = begin + lane, expert = row < end ? experts[row] : -1;
      const u32 same = __match_any_sync(~0u, expert);
      const u32 before = same & ((1u << lane) - 1);
      const int earlier = expert >= 0 ? mine[expert] : 0;
      if (expert >= 0) use(row, earlier + __popc(before));
      __syncwarp();
      if (expert >= 0 && before == 0) mine[expert] = earlier + __popc(same);
      __syncwarp();
    }
  };
  for_each_row([](int, int) {});
  __syncthreads();
  make_items(
      table, args.experts, tile_rows, sums,
      [&](int e) {
        int sum = 0;
        UNROLL for (int w = 0; w < kWarps; w++) sum += counts[w * args.experts + e];
        return sum;
      },
      [&](int e, int place) {
        UNROLL for (int w = 0; w < kWarps; w++) {
          int& count = counts[w * args.experts + e];
          const int rows = count;
          count = place;
          place += rows;
        }
      });
  __syncthreads();
  int* const sorted = table + route_sorted_at(args.items);
  for_each_row([&](int row, int place) { sorted[place] = row; });
  return experts;
}
/// All threads of the block call it. Bulk copies may use the memory afterwards.
__device__ inline void free_memory_of_routes() {
  __syncthreads();
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/// The routed row at a place of a table of routes.
__device__ inline int routed_row(const Launch& launch, const int* table, int place) {
  return table[route_sorted_at(launch.arguments<ProductArgs>().items) + place];
}

/// The table of routes of a product of experts, for all threads of a block. `few` has room for one
/// of kFewRoutedRows in shared memory; `tells` is that of sort_few_routes().
__device__ inline const int* find_few_routes(const Launch& launch, int tile_rows, int* few,
                                             bool tells = true) {
  if (launch.arguments<ProductArgs>().experts == 0)
    return launch.buffer<const int>(MARLIN_BUFFER_ROUTES);
  if (threadIdx.x < kLanes) sort_few_routes(launch, tile_rows, few, tells);
  __syncthreads();
  return few;
}

/// What sort_into_memory() is told.
struct RoutesToSort {
  const int* ids;
  const void* scales;
  u32 scale_type;  // kFloatNone: there are none
  int* table;      // in memory
  int rows, top_k, experts, tile_rows, items;
  long long id_stride, scale_stride;  // in elements
};

/// Sorts routed rows by expert and cuts them into items, in a table in memory. All threads of one
/// block call it. In shared memory `places` has a number for each expert, and `sums` one for each
/// warp; `known` has one for each row, and may be the table's experts. The order of the rows of an
/// expert depends on time; the sums of a row do not depend on its place.
__device__ inline void sort_into_memory(const RoutesToSort& args, int* places, u64* sums,
                                        int* known) {
  const int thread = int(threadIdx.x), threads = int(blockDim.x);
  int* const sorted = args.table + route_sorted_at(args.items);
  int* const experts = args.table + route_experts_at(args.items, args.rows);
  for (int e = thread; e < args.experts; e += threads) places[e] = 0;
  __syncthreads();
#pragma unroll 4
  for (int row = thread; row < args.rows; row += threads) {
    const int token = token_of_row(row, args.top_k), s = row - token * args.top_k;
    const int id = __ldcg(args.ids + (token * args.id_stride + s));
    const bool exists = id >= 0 && id < args.experts;
    known[row] = exists ? id : -1;
    if (known != experts) experts[row] = exists ? id : -1;
    if (exists) atomicAdd(&places[id], 1);
  }
  __syncthreads();

  make_items(
      args.table, args.experts, args.tile_rows, sums, [&](int e) { return places[e]; },
      [&](int e, int place) { places[e] = place; });
  __syncthreads();
#pragma unroll 4
  for (int row = thread; row < args.rows; row += threads)
    if (known[row] >= 0) sorted[atomicAdd(&places[known[row]], 1)] = row;
}

/// Copies the scales of sorted rows, which `finish` reads. The same threads call it.
__device__ inline void copy_route_scales(const RoutesToSort& args, const int* known) {
  if (args.scale_type == kFloatNone) return;
  float* const scales =
      reinterpret_cast<float*>(args.table + route_scales_at(args.items, args.rows));
#pragma unroll 4
  for (int row = int(threadIdx.x); row < args.rows; row += int(blockDim.x)) {
    if (known[row] < 0) continue;
    const int token = token_of_row(row, args.top_k), s = row - token * args.top_k;
    scales[row] = read_float(args.scales, token * args.scale_stride + s, args.scale_type);
  }
}
