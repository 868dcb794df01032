// What the blocks of a ring kernel (ring.cuh) have to do, and where its results go.
#pragma once
#include "epilogue.cuh"
#include "routes.cuh"
#include "weight_copies.cuh"

constexpr int kRingRows = 8;

/// The jobs of a block, in turn. A job is a row block of W, or one of gate rows and the one of
/// their up rows, with the rows of A of an item; the jobs of an item follow each other. Without
/// routing there is one item, eight rows of A. (A division takes as long as forty other
/// instructions, and 16 warps do it before the first copy.) ROUTED: the rows are those of experts.
template <bool ROUTED>
struct RingWork {
  const Launch& launch;
  const ProductArgs& args;
  const int* const table;  // of routes, or null
  const int first_row;     // of A, without routing
  const int of_item;       // jobs of an item
  int begin, end;          // of the jobs
  int first_item;

  __device__ RingWork(const Launch& launch_, const int* table_, int first_row_)
      : launch(launch_),
        args(launch.arguments<ProductArgs>()),
        table(table_),
        first_row(first_row_),
        of_item(int(u32(args.n + kRowBlock - 1) / kRowBlock) / halves()) {
    // Neighboring jobs, so that a block has few items. The first blocks have one job more.
    const u32 jobs = u32(of_item) * u32(routed() ? table[0] : 1), share = jobs / gridDim.x;
    const u32 more = jobs - share * gridDim.x;
    begin = int(share * blockIdx.x + min(blockIdx.x, more));
    end = begin + int(share + (blockIdx.x < more ? 1 : 0));
    first_item = routed() ? int(u32(begin) / u32(of_item)) : 0;
  }
  /// Row blocks of a job.
  __device__ int halves() const { return pairs_halves(launch) ? 2 : 1; }
  static constexpr __device__ bool routed() { return ROUTED; }

  /// The item of a job, given that of an earlier one.
  __device__ int item(int job, int earlier) const {
    while (routed() && job >= (earlier + 1) * of_item) earlier++;
    return earlier;
  }
  /// The row block of half 0 or 1 of a job of an item.
  __device__ int row_block(int job, int item, int half) const {
    return job - item * of_item + half * of_item;
  }

  __device__ int expert(int item) const { return routed() ? of(item)[0] : 0; }
  /// The first place of an item's rows: without routing, a row of A.
  __device__ int place(int item) const { return routed() ? of(item)[1] : first_row; }
  __device__ int rows(int item) const {
    return routed() ? of(item)[2] : min(args.m - first_row, kRingRows);
  }
  /// The rows of all items of the block, or `most`.
  __device__ int all_rows(int most) const {
    int sum = 0;
    for (int i = first_item; i * of_item < end && sum < most; i++) sum += rows(i);
    return min(sum, most);
  }
  __device__ int row_of_a(int place) const {
    if (!routed() || args.rows_of_a == 0) return place;
    return token_of_row(routed_row(launch, table, place), args.rows_of_a);
  }
  __device__ long long weights_at(int item) const {
    return routed() ? of(item)[0] * args.expert_stride : 0;
  }

  /// Asks for what `write` reads of a row block, so that it does not wait.
  __device__ void prefetch_factors(int row_block, int item) const {
    const int n = row_block * kRowBlock + int(threadIdx.x) % kLanes;
    if (launch.constant(MARLIN_CONSTANT_ROW_FACTOR) == kRowFactorNone || n >= args.n) return;
    const unsigned char* const at = launch.buffer<const unsigned char>(MARLIN_BUFFER_ROWS) +
                                    weights_at(item) + n * static_cast<int>(sizeof(RowFactor));
    asm volatile("prefetch.global.L1 [%0];" ::"l"(at));
  }
  /// Writes the result of a lane of a row block, the last of a job. `gate` is the sum of the first
  /// half of a job that has two.
  __device__ void write(float gate, float sum, int place, int row_block, int item) const {
    const int n = row_block * kRowBlock + int(threadIdx.x) % kLanes, expert = this->expert(item);
    const int row = routed() ? routed_row(launch, table, place) : place;
    if (!combines_rows(launch)) {
      if (n < args.n) write_sum(sum, row, n, launch, expert);
      return;
    }
    float up = scale_and_bias(sum, min(n, args.n - 1), launch, expert);
    int column = n - args.n / 2;
    if (halves() == 2) {
      gate = scale_and_bias(gate, column, launch, expert);
    } else {  // a pair of lanes has a pair of rows
      gate = up;
      up = __shfl_down_sync(~0u, up, 1);
      column = n / 2;
      if (n % 2 != 0 || n >= args.n) return;
    }
    store(combine(gate, up, launch.constant(MARLIN_CONSTANT_EPILOGUE), args),
          row * args.ldc + column, launch);
  }

 private:
  __device__ const int* of(int item) const { return table + kRouteItem * (1 + item); }
};
