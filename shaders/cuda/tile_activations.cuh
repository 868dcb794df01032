// How a tile for Hopper (hopper_gemm.cuh) gets its rows of A, in a ring of stages in shared memory.
//
//   tiles of up to 32 rows   a bulk copy for each row and stage; routed rows are found by index
//   larger tiles             boxes of 64 slots of all rows, whose pieces of 16 bytes are swizzled,
//                            by the copy engine; routed rows were gathered before
//   rows that begin at no    a lane copies two columns of each row
//   multiple of 16 bytes
#pragma once
#include "routes.cuh"
#include "tile_shape.cuh"
#include "tile_zeros.cuh"

/// Lets copies follow what the threads have written to shared memory.
__device__ inline void order_copies() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/// Finds the table of routes of a product of experts: the one that `route` has written, or one that
/// the block makes. Clears the rows of no expert. All threads of the block call it.
template <class Memory>
__device__ inline void find_tile_routes(const CudaParameters& parameters) {
  typedef typename Memory::Tile Tile;
  const Launch launch{parameters};
  const ProductArgs& args = launch.arguments<ProductArgs>();
  if (args.items == 0) return;
  wait_for_previous();
  const int* table = launch.buffer<const int>(MARLIN_BUFFER_ROUTES);
  const int* experts = table + route_experts_at(args.items, args.m);
  if constexpr (Tile::kTable != 0) {
    constexpr int kThreads = tile_threads_of(Tile::kRows);
    if (args.experts != 0 && args.m > kFewRoutedRows) {
      // The stages are free.
      experts = sort_routes<kThreads>(launch, Tile::kRows, own_table(),
                                      dynamic_memory() + Tile::kTable);
    } else if (args.experts != 0) {
      if (threadIdx.x < kLanes) sort_few_routes(launch, Tile::kRows, own_table());
      experts = own_table() + route_experts_at(args.items, args.m);
      __syncthreads();
    }
  }
  clear_rows_of_no_expert(launch, experts, tile_threads_of(Tile::kRows));
  if (Tile::kTable != 0) free_memory_of_routes();
}

/// The rows of A of a tile.
template <class Tile>
struct ActivationRows {
  const Launch& launch;
  const ProductArgs& args;
  const int* table;
  const int first, count;  // places

  __device__ ActivationRows(const Work<Tile>& work, int tile)
      : launch(work.launch),
        args(work.args),
        table(work.table()),
        first(work.first_row(tile)),
        count(min(work.end_row(tile) - first, Tile::kRows)) {}
  /// Row `i`, which is one of them.
  __device__ const u16* row(int i) const {
    int of_a = first + i;
    if (Tile::kTable != 0 && args.items != 0 && args.rows_of_a != 0)
      of_a = routed_row(launch, table, of_a) / args.rows_of_a;
    return launch.buffer<const u16>(MARLIN_BUFFER_A) + of_a * args.lda;
  }
};

/// Brings a chunk of rows that copies do not take, and 0 for rows past the last. A lane copies two
/// columns of each. A warp calls it.
template <class Tile>
__device__ inline void copy_unaligned_rows(const ActivationRows<Tile>& rows, int column, u32 to) {
  const int lane = int(threadIdx.x) % kLanes, k = column + 2 * lane;
#pragma unroll 1
  for (int i = 0; i < Tile::kRows; i++) {
    u32 both = 0;
    if (i < rows.count) {
      const u16* const from = rows.row(i);
      both = column_or_0(from, k, rows.args.k) | u32(column_or_0(from, k + 1, rows.args.k)) << 16;
    }
    const int piece = Tile::kWgmma ? (lane / 4) ^ (i % 8) : lane / 4;
    const u32 at = i * Tile::kRowPitch + piece * 16 + lane % 4 * 4;
    asm volatile("st.shared.u32 [%0], %1;" ::"r"(to + at), "r"(both) : "memory");
  }
}

/// Starts to bring `boxes` boxes from chunk `c` on. One lane calls it.
template <class Tile>
__device__ inline void copy_boxes(const CudaParameters& parameters, const ActivationRows<Tile>& rows,
                                  int c, int boxes, u32 to, u32 full) {
  // Rows past the last of A may hold anything: their results are not written.
  const u32 rank = rank_in_cluster<Tile>();
  const int pieces = (rows.count + Tile::kBoxRows - 1) / Tile::kBoxRows;
  arrive_expecting(full, boxes * pieces * Tile::kBoxRows * kBoxRowBytes);
  const int mine = rows.first + int(rank) * Tile::kBoxRows;
  const u32 to_mine = to + rank * Tile::kBoxRows * kBoxRowBytes;
  for (int i = 0; i < boxes && int(rank) < pieces; i++)
    copy_box_to_pair(to_mine + i * Tile::kBox, parameters.tensor_map, kMmaSlots * (c + i), mine,
                     full);
}

/// Starts to bring `chunks` chunks of rows from chunk `c` on, a row by each lane, whose row is
/// `from`, or null. Slots behind the last column become 0. A warp calls it.
template <class Tile>
__device__ inline void copy_rows(const ActivationRows<Tile>& rows, const u16* from, int c, int chunks,
                                 u32 to, u32 full) {
  const int lane = int(threadIdx.x) % kLanes, begin = kMmaSlots * c;
  const int bytes = chunks * kBoxRowBytes;
  const int whole = min(max(rows.args.k - begin, 0) * 2 / 16 * 16, bytes);
  const u32 to_lane = to + lane * Tile::kRowPitch;
  if (whole < bytes) {
    if (from != nullptr) {
#pragma unroll 1
      for (int at = whole; at < bytes; at += 4) {
        const int k = begin + at / 2;
        const u32 both = column_or_0(from, k, rows.args.k) |
                         u32(column_or_0(from, k + 1, rows.args.k)) << 16;
        asm volatile("st.shared.u32 [%0], %1;" ::"r"(to_lane + at), "r"(both) : "memory");
      }
    }
    order_copies();
    __syncwarp();
  }
  if (lane == 0) arrive_expecting(full, rows.count * whole);
  __syncwarp();
  if (from != nullptr && whole != 0) copy_bulk(to_lane, from + begin, whole, full);
}

/// Brings A. A warp calls it.
template <class Memory>
__device__ inline void bring_activations(const CudaParameters& parameters, unsigned char* dynamic) {
  typedef typename Memory::Tile Tile;
  static_assert(Tile::kWgmma ? Tile::kCluster == 2 : Tile::kRows <= kLanes, "as copies go");
  const Memory memory(dynamic);
  const Launch launch{parameters};
  const bool aligned = launch.constant(MARLIN_CONSTANT_ALIGNED) != 0;
  const int lane = threadIdx.x % 32;
  if (Tile::kWgmma && aligned && lane != 0) return;
  if (Tile::kWgmma && aligned) prefetch_tensor_map(parameters.tensor_map);
  wait_for_previous();
  RingPlace<Memory::kStages> place;
  Work<Tile> work(launch);
  for (Segment now; work.next(now);) {
    const ActivationRows<Tile> rows(work, now.tile);
    const u16* const from = !Tile::kWgmma && lane < rows.count ? rows.row(lane) : nullptr;
    for (int c = now.begin; c < now.stop; c += Tile::kChunks) {
      const int chunks = min(Tile::kChunks, now.stop - c);
      const u32 to = memory.stages + place.slot * Memory::kStage;
      const u32 full = memory.full + 8 * place.slot;
      wait_for_phase(memory.empty + 8 * place.slot, place.phase ^ 1);
      if (!aligned) {
#pragma unroll 1
        for (int i = 0; i < chunks; i++)
          copy_unaligned_rows(rows, kMmaSlots * (c + i), to + i * Tile::kChunkPitch);
        order_copies();
        __syncwarp();
        if (lane == 0) arrive(full);
      } else if constexpr (Tile::kWgmma) {
        copy_boxes(parameters, rows, c, chunks, to, full);
      } else {
        copy_rows(rows, from, c, chunks, to, full);
      }
      place.advance();
    }
    if constexpr (Memory::Op::kAdditive) pass_zeros(memory, now, place);
  }
}
