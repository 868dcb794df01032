// Sorts the routed rows of a mixture of experts by expert and cuts them into items
// (../common/arguments.h), which product kernels take. One threadgroup, whose threads each take a
// part of the rows of one expert or, if there are more experts than threads, all rows of some. No
// order depends on time, and no atomic operation is needed.
#include "epilogue.h"

/// Adds up `x` over the threads before this one; `total` becomes the sum of all threads.
static inline int sum_before(int x, threadgroup int* shared, ushort lane, ushort simdgroup,
                             ushort simdgroups, thread int& total) {
  const int before = simd_prefix_exclusive_sum(x);
  threadgroup_barrier(mem_flags::mem_threadgroup);  // the last sums were read
  if (lane == kLanes - 1) shared[simdgroup] = before + x;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  int of_simdgroups_before = 0;
  total = 0;
  for (ushort s = 0; s < simdgroups; s++) {
    if (s < simdgroup) of_simdgroups_before += shared[s];
    total += shared[s];
  }
  return of_simdgroups_before + before;
}

/// The rows of expert e, whose rows begin at places[e].
static inline int row_count(const threadgroup int* places, int e, int experts, int all) {
  return (e + 1 < experts ? places[e + 1] : all) - places[e];
}

kernel void route(const device int* ids [[buffer(MARLIN_BUFFER_IDS)]],
                  const device void* id_scales
                  [[buffer(MARLIN_BUFFER_ID_SCALES), function_constant(has_bias)]],
                  device int* table [[buffer(MARLIN_BUFFER_ROUTES)]],
                  constant RouteArgs& args [[buffer(MARLIN_BUFFER_ROUTE_ARGS)]],
                  ushort thread_index [[thread_index_in_threadgroup]],
                  ushort threads [[threads_per_threadgroup]],
                  ushort lane [[thread_index_in_simdgroup]],
                  ushort simdgroup [[simdgroup_index_in_threadgroup]]) {
  threadgroup int places[kMostExperts], shared[kLanes];
  const int rows = args.tokens * args.top_k;
  device int* const sorted = table + route_sorted_at(args.items);
  device int* const experts = table + route_experts_at(args.items, rows);
  device float* const scales = (device float*)(table + route_scales_at(args.items, rows));
  for (int row = thread_index; row < rows; row += threads) {
    const int token = row / args.top_k, s = row % args.top_k;
    const int id = ids[token * args.id_stride + s];
    const bool exists = id >= 0 && id < args.experts;
    experts[row] = exists ? id : -1;
    if (exists && has_bias)
      scales[row] = read_float(id_scales, token * args.scale_stride + s, bias_type);
  }
  threadgroup_barrier(mem_flags::mem_device);

  const int share = (args.experts + threads - 1) / threads;  // experts of a thread
  const int parts = share > 1 ? 1 : threads / args.experts, part = thread_index % parts;
  const int begin = min(thread_index / parts * share, args.experts);
  const int end = min(begin + share, args.experts);
  int own = 0, all, all_items;
  for (int e = begin; e < end; e++) {
    int count = 0;
    for (int row = part; row < rows; row += parts) count += experts[row] == e ? 1 : 0;
    if (parts == 1) places[e] = count;
    own += count;
  }
  const ushort simdgroups = threads / kLanes;
  int place = sum_before(own, shared, lane, simdgroup, simdgroups, all);
  for (int e = begin, at = place; part == 0 && e < end; e++) {  // where an expert's rows begin
    const int count = parts == 1 ? places[e] : 0;
    places[e] = at;
    at += count;
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  int items = 0;
  for (int e = begin; part == 0 && e < end; e++)
    items += (row_count(places, e, args.experts, all) + args.tile_rows - 1) / args.tile_rows;
  int item = sum_before(items, shared, lane, simdgroup, simdgroups, all_items);
  if (thread_index == 0) *(device int4*)table = int4(all_items, all, 0, 0);
  for (int e = begin; part == 0 && e < end; e++) {
    const int count = row_count(places, e, args.experts, all);
    for (int done = 0; done < count; done += args.tile_rows, item++) {
      ((device int4*)table)[1 + item] =
          int4(e, places[e] + done, min(count - done, args.tile_rows), 0);
    }
  }
  for (int e = begin; e < end; e++)
    for (int row = part; row < rows; row += parts)
      if (experts[row] == e) sorted[place++] = row;
}
