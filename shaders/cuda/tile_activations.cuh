// How a tile for Hopper (hopper_gemm.cuh) gets its rows of A: boxes of 64 slots of all rows, whose
// pieces of 16 bytes are swizzled, in a ring of stages in shared memory.
//
//   rows in order   the copy engine brings boxes; those of routed rows were gathered before
//   routed rows     in tiles of up to 32 rows: a lane copies pieces of every fourth row by index
//   rows that begin at no multiple of 16 bytes   a lane copies two columns of each row
#pragma once
#include "routes.cuh"
#include "tile_shape.cuh"
#include "tile_zeros.cuh"

/// Whether a warp brings the rows of A by index.
template <class Tile>
__device__ inline bool brings_by_index(const Launch& launch) {
  return Tile::kIndexes && launch.arguments<ProductArgs>().rows_of_a != 0 &&
         launch.constant(MARLIN_CONSTANT_ALIGNED) != 0;
}

/// Sorts the routed rows of a product of experts, if they have not been sorted. All threads of a
/// block call it.
template <class Tile>
__device__ inline void sort_tile_routes(const CudaParameters& parameters, unsigned char* dynamic) {
  const Launch launch{parameters};
  if (!sorts_routes<Tile>(launch)) return;
  wait_for_previous();
  constexpr int kThreads = int(tile_threads_of(Tile::kRows));
  const int* const experts = sort_routes<kThreads>(
      launch, Tile::kRows, reinterpret_cast<int*>(dynamic), dynamic + kOwnTableBytes);
  clear_rows_of_no_expert(launch, experts, int(threadIdx.x), kThreads);
  free_memory_of_routes();
}

/// Clears the rows of no expert, if a table that `route` has written names them. Some
/// threads of each block call it.
template <class Tile>
__device__ inline void clear_tile_rows(const CudaParameters& parameters, int thread, int threads) {
  const Launch launch{parameters};
  if (sorts_routes<Tile>(launch)) return;  // sort_routes has done it
  const ProductArgs& args = launch.arguments<ProductArgs>();
  wait_for_previous();
  const int* const table = launch.buffer<const int>(MARLIN_BUFFER_ROUTES);
  clear_rows_of_no_expert(launch, table + route_experts_at(args.items, args.m), thread, threads);
}

/// Brings rows by index. A warp calls it.
template <class Memory>
__device__ inline void bring_rows_by_index(const Launch& launch, const Memory& memory,
                                           Work<typename Memory::Tile>& work) {
  typedef typename Memory::Tile Tile;
  constexpr int kPieces = kBoxRowBytes / 16, kStep = kLanes / kPieces,
                kOfLane = Tile::kRows / kStep;
  static_assert(kStep == 4, "rows r and r + 8 have the same swizzle");
  const ProductArgs& args = launch.arguments<ProductArgs>();
  const int lane = int(threadIdx.x) % kLanes, piece = lane % kPieces, first_row = lane / kPieces;
  const unsigned char* const a = launch.buffer<const unsigned char>(MARLIN_BUFFER_A) + 16 * piece;
  RingPlace<Memory::kStages> place;
  for (Segment now; work.next(now);) {
    const int row = work.first_row(now.tile), rows = work.end_row(now.tile) - row;
    int of_a[kOfLane];
    UNROLL for (int i = 0; i < kOfLane; i++) of_a[i] =
        work.row_of_a(row + min(first_row + kStep * i, rows - 1));
    for (int c = now.begin; c < now.stop; c += Tile::kChunks) {
      const int boxes = min(Tile::kChunks, now.stop - c);
      wait_for_phase(memory.empty + 8 * place.slot, place.phase ^ 1);
      for (int box = 0; box < boxes; box++) {
        // What lies beyond the last column becomes 0.
        const int left = 2 * (args.k - kMmaSlots * (c + box)) - 16 * piece;
        const u32 bytes = u32(max(min(left, 16), 0));
        const u32 to = memory.stages + place.slot * Memory::kStage + box * Tile::kBox;
        UNROLL for (int i = 0; i < kOfLane; i++) {
          const int in_box = first_row + kStep * i;
          if (in_box >= rows) break;  // results of other rows are not written
          const u32 swizzled = u32(in_box * kBoxRowBytes + (piece ^ (in_box % kPieces)) * 16);
          copy_piece(to + swizzled, a + of_a[i] * args.lda * 2 + (c + box) * kBoxRowBytes, bytes);
        }
      }
      arrive_after_copies(memory.full + 8 * place.slot);
      place.advance();
    }
  }
}

/// Brings rows that the copy engine does not take: those of one box. A lane copies two columns of
/// each.
template <class Tile>
__device__ inline void copy_unaligned_rows(const Launch& launch, const Work<Tile>& work, int row,
                                           int end, int column, u32 to) {
  const ProductArgs& args = launch.arguments<ProductArgs>();
  const u16* const a = launch.buffer<const u16>(MARLIN_BUFFER_A);
  const int lane = int(threadIdx.x) % kLanes, k = column + 2 * lane;
#pragma unroll 1
  for (int in_box = 0; in_box < Tile::kRows; in_box++) {
    u32 both = 0;
    if (row + in_box < end) {
      const u16* const from = a + work.row_of_a(row + in_box) * args.lda;
      both = column_or_0(from, k, args.k) | u32(column_or_0(from, k + 1, args.k)) << 16;
    }
    const u32 at = in_box * kBoxRowBytes + ((lane / 4) ^ (in_box % 8)) * 16 + lane % 4 * 4;
    asm volatile("st.shared.u32 [%0], %1;" ::"r"(to + at), "r"(both) : "memory");
  }
}

/// Brings the boxes of A. A warp calls it.
template <class Memory>
__device__ inline void bring_activations(const CudaParameters& parameters, unsigned char* dynamic) {
  typedef typename Memory::Tile Tile;
  const Memory memory(dynamic);
  const u32 rank = rank_in_cluster<Tile>();
  const Launch launch{parameters};
  const bool aligned = launch.constant(MARLIN_CONSTANT_ALIGNED) != 0;
  const int lane = threadIdx.x % 32;
  if constexpr (Tile::kIndexes) {
    if (brings_by_index<Tile>(launch)) {
      wait_for_previous();
      Work<Tile> work(launch);
      bring_rows_by_index(launch, memory, work);
      return;
    }
  }
  if (aligned && lane != 0) return;
  if (aligned) prefetch_tensor_map(parameters.tensor_map);
  wait_for_previous();
  RingPlace<Memory::kStages> place;
  Work<Tile> work(launch);
  for (Segment now; work.next(now);) {
    const int row = work.first_row(now.tile);
    for (int c = now.begin; c < now.stop; c += Tile::kChunks) {
      const int boxes = min(Tile::kChunks, now.stop - c);
      const u32 to = memory.stages + place.slot * Memory::kStage;
      const u32 full = memory.full + 8 * place.slot;
      wait_for_phase(memory.empty + 8 * place.slot, place.phase ^ 1);
      if (aligned) {
        // Rows past the last of A may hold anything: their results are not written.
        const int rows = min(Tile::kRows, work.end_row(now.tile) - row);
        const int pieces = (rows + Tile::kBoxRows - 1) / Tile::kBoxRows;
        arrive_expecting(full, boxes * pieces * Tile::kBoxRows * kBoxRowBytes);
        const int mine = row + int(rank) * Tile::kBoxRows;
        const u32 to_mine = to + rank * Tile::kBoxRows * kBoxRowBytes;
        for (int i = 0; i < boxes && int(rank) < pieces; i++) {
          const u32 box = to_mine + i * Tile::kBox;
          if (Tile::kCluster == 1)
            copy_box(box, parameters.tensor_map, kMmaSlots * (c + i), mine, full);
          else
            copy_box_to_pair(box, parameters.tensor_map, kMmaSlots * (c + i), mine, full);
        }
      } else {
#pragma unroll 1
        for (int box = 0; box < boxes; box++)
          copy_unaligned_rows<Tile>(launch, work, row, work.end_row(now.tile),
                                    kMmaSlots * (c + box), to + box * Tile::kBox);
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        __syncwarp();
        if (lane == 0) arrive(full);
      }
      place.advance();
    }
    if constexpr (Memory::Op::kAdditive) pass_zeros(memory, now, place);
  }
}
