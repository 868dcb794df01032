// How a tile for Hopper (hopper_gemm.cuh) gets its rows of A: boxes of 64 slots of all rows, whose
// pieces of 16 bytes are swizzled, in a ring of stages in shared memory.
//
//   rows that begin at multiples of 16 bytes   the copy engine brings boxes
//   others                                     a lane copies two columns of each row
//
// Routed rows were gathered before.
#pragma once
#include "routes.cuh"
#include "tile_shape.cuh"
#include "tile_zeros.cuh"

/// Clears the rows of no expert. The first `threads` threads of a block call it.
__device__ inline void clear_tile_rows(const CudaParameters& parameters, int threads) {
  const Launch launch{parameters};
  const ProductArgs& args = launch.arguments<ProductArgs>();
  const int* const table = launch.buffer<const int>(MARLIN_BUFFER_ROUTES);
  clear_rows_of_no_expert(launch, table + route_experts_at(args.items, args.m), threads);
}

/// Brings rows that the copy engine does not take: those of one box. A lane copies two columns of
/// each.
template <class Tile>
__device__ inline void copy_unaligned_rows(const Launch& launch, int row, int end, int column,
                                           u32 to) {
  const ProductArgs& args = launch.arguments<ProductArgs>();
  const u16* const a = launch.buffer<const u16>(MARLIN_BUFFER_A);
  const int lane = int(threadIdx.x) % kLanes, k = column + 2 * lane;
#pragma unroll 1
  for (int in_box = 0; in_box < Tile::kRows; in_box++) {
    u32 both = 0;
    if (row + in_box < end) {
      const u16* const from = a + (row + in_box) * args.lda;
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
          copy_unaligned_rows<Tile>(launch, row, work.end_row(now.tile), kMmaSlots * (c + box),
                                    to + box * Tile::kBox);
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        __syncwarp();
        if (lane == 0) arrive(full);
      }
      place.advance();
    }
    if constexpr (Memory::Op::kAdditive) pass_zeros(memory, now, place);
  }
}
