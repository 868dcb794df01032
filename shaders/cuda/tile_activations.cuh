// How a tile for Hopper (hopper_gemm.cuh) gets its rows of A: boxes of 64 slots of all rows, whose
// pieces of 16 bytes are swizzled, in a ring of stages in shared memory.
//
//   rows that follow each other   the copy engine brings boxes
//   routed rows of small tiles    a warp finds them by index, and a lane copies 16 bytes of each
//                                 (otherwise they were gathered)
//   rows that begin at no         a lane copies two columns of each
//   multiple of 16 bytes
#pragma once
#include "tile_routes.cuh"
#include "tile_zeros.cuh"

/// The rows of A of a tile.
template <class Tile>
struct ActivationRows {
  const Launch& launch;
  const ProductArgs& args;
  const int first, count;  // places

  __device__ ActivationRows(const Work<Tile>& work, int tile)
      : launch(work.launch),
        args(work.args),
        first(work.first_row(tile)),
        count(min(work.end_row(tile) - first, Tile::kRows)) {}
  /// The number in A of row `i`, which is one of them.
  __device__ int of_a(int i) const {
    if (Tile::kTable == 0 || args.items == 0 || args.rows_of_a == 0) return first + i;
    return token_of_row(routed_row_of_tile<Tile>(launch, first + i), args.rows_of_a);
  }
  __device__ const u16* row(int of_a) const {
    return launch.buffer<const u16>(MARLIN_BUFFER_A) + of_a * args.lda;
  }
};

/// The warps that bring A. Warps that share a stage have every copier_count-th row each.
template <class Memory>
struct Copiers {
  typedef typename Memory::Tile Tile;
  /// Routed rows that are found by index. Those of weights with additive zeros were gathered.
  static constexpr bool kScatter = Tile::kTable != 0 && !Memory::Op::kAdditive;
  static constexpr int kMost = kScatter ? 3 : 1, kMostRows = (Tile::kRows + kMost - 1) / kMost;
  static_assert(Tile::kTable == 0 || Tile::kChunks * kBoxRowBytes <= kLanes * 16, "a lane a piece");

  static __device__ bool scatter(const ProductArgs& args) {
    return kScatter && args.items != 0 && args.rows_of_a != 0;
  }
  static __device__ int count(const ProductArgs& args) { return scatter(args) ? kMost : 1; }
};

/// Brings a box of rows that begin anywhere, and 0 for rows past the last: every `step`-th from row
/// `begin` on. A lane copies two columns of each. A warp calls it.
template <class Tile>
__device__ inline void copy_unaligned_rows(const ActivationRows<Tile>& rows, int begin, int step,
                                           int column, u32 to) {
  const int lane = int(threadIdx.x) % kLanes, k = column + 2 * lane;
#pragma unroll 1
  for (int i = begin; i < Tile::kRows; i += step) {
    u32 both = 0;
    if (i < rows.count) {
      const u16* const from = rows.row(rows.of_a(i));
      both = column_or_0(from, k, rows.args.k) | u32(column_or_0(from, k + 1, rows.args.k)) << 16;
    }
    const u32 at = i * kBoxRowBytes + ((lane / 4) ^ (i % 8)) * 16 + lane % 4 * 4;
    asm volatile("st.shared.u32 [%0], %1;" ::"r"(to + at), "r"(both) : "memory");
  }
}

/// Starts to bring `boxes` boxes of rows that follow each other, from chunk `c` on. One lane calls
/// it.
template <class Tile>
__device__ inline void copy_boxes(const CudaParameters& parameters,
                                  const ActivationRows<Tile>& rows, int c, int boxes, u32 to,
                                  u32 full) {
  // Rows past the last of A may hold anything: their results are not written.
  const u32 rank = rank_in_cluster<Tile>();
  const int pieces = (rows.count + Tile::kBoxRows - 1) / Tile::kBoxRows;
  arrive_expecting(full, boxes * pieces * Tile::kBoxRows * kBoxRowBytes);
  const int mine = rows.first + int(rank) * Tile::kBoxRows;
  const u32 to_mine = to + rank * Tile::kBoxRows * kBoxRowBytes;
  for (int i = 0; i < boxes && int(rank) < pieces; i++) {
    const u32 box = to_mine + i * Tile::kBox;
    const int slot = kMmaSlots * (c + i * Tile::kBoxChunks);
    if (Tile::kCluster == 1)
      copy_box(box, parameters.tensor_map, slot, mine, full);
    else
      copy_box_to_pair(box, parameters.tensor_map, slot, mine, full);
  }
}

/// Brings A of routed rows, which are found by index: every kMost-th row of a tile from row
/// `copier` on. A lane has 16 bytes of each. A warp calls it.
template <class Memory>
__device__ inline void bring_scattered_rows(const Launch& launch, const Memory& memory,
                                            int copier) {
  typedef typename Memory::Tile Tile;
  typedef Copiers<Memory> Warps;
  const bool aligned = launch.constant(MARLIN_CONSTANT_ALIGNED) != 0;
  const int lane = threadIdx.x % 32, piece = lane % 8;
  RingPlace<Memory::kStages> place;
  Work<Tile> work(launch);
  for (Segment now; work.next(now);) {
    const ActivationRows<Tile> rows(work, now.tile);
    const u16* from[Warps::kMostRows];
    UNROLL for (int j = 0; j < Warps::kMostRows; j++) {
      const int i = copier + j * Warps::kMost;
      from[j] = i < rows.count ? rows.row(rows.of_a(i)) + 8 * lane : nullptr;
    }
    for (int c = now.begin; c < now.stop; c += Tile::kChunks) {
      const int boxes = min(Tile::kChunks, now.stop - c);
      const u32 to = memory.stages + place.slot * Memory::kStage,
                full = memory.full + 8 * place.slot;
      wait_for_phase(memory.empty + 8 * place.slot, place.phase ^ 1);
      const int bytes = min(max(work.args.k - kMmaSlots * c - 8 * lane, 0) * 2, 16);
      if (!aligned) {
#pragma unroll 1
        for (int box = 0; box < boxes; box++)
          copy_unaligned_rows(rows, copier, Warps::kMost, kMmaSlots * (c + box),
                              to + box * Tile::kBox);
      } else if (lane < 8 * boxes) {
        UNROLL for (int j = 0; j < Warps::kMostRows; j++) {
          const int i = copier + j * Warps::kMost;
          if (from[j] != nullptr)
            copy_piece(to + lane / 8 * Tile::kBox + i * kBoxRowBytes + (piece ^ (i % 8)) * 16,
                       from[j] + kMmaSlots * c, bytes);
        }
      }
      await_pieces(full);
      __syncwarp();
      if (lane == 0) arrive(full);
      place.advance();
    }
  }
}

/// Brings A of rows that follow each other. A warp calls it.
template <class Memory>
__device__ inline void bring_rows(const CudaParameters& parameters, const Launch& launch,
                                  const Memory& memory) {
  typedef typename Memory::Tile Tile;
  const bool aligned = launch.constant(MARLIN_CONSTANT_ALIGNED) != 0;
  const int lane = threadIdx.x % 32;
  if (aligned) prefetch_tensor_map(parameters.tensor_map);
  wait_for_previous();
  wait_for_gathered<Memory>(launch);
  if (aligned && lane != 0) return;
  RingPlace<Memory::kStages> place;
  Work<Tile> work(launch);
  for (Segment now; work.next(now);) {
    const ActivationRows<Tile> rows(work, now.tile);
    for (int c = now.begin; c < now.stop; c += Tile::kChunks) {
      const int chunks = min(Tile::kChunks, now.stop - c);
      const int boxes = (chunks + Tile::kBoxChunks - 1) / Tile::kBoxChunks;
      const u32 to = memory.stages + place.slot * Memory::kStage;
      const u32 full = memory.full + 8 * place.slot;
      wait_for_phase(memory.empty + 8 * place.slot, place.phase ^ 1);
      if (Tile::kBytes || aligned) {
        copy_boxes(parameters, rows, c, boxes, to, full);
      } else {
#pragma unroll 1
        for (int box = 0; box < boxes; box++)
          copy_unaligned_rows(rows, 0, 1, kMmaSlots * (c + box), to + box * Tile::kBox);
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        __syncwarp();
        if (lane == 0) arrive(full);
      }
      place.advance();
    }
    if constexpr (Memory::Op::kAdditive) pass_zeros(memory, now, place);
  }
}

/// Brings A. The warps of Copiers call it.
template <class Memory>
__device__ inline void bring_activations(const CudaParameters& parameters, unsigned char* dynamic,
                                         int copier) {
  typedef Copiers<Memory> Warps;
  const Memory memory(dynamic);
  const Launch launch{parameters};
  if constexpr (Warps::kScatter)
    if (Warps::scatter(launch.arguments<ProductArgs>()))
      return bring_scattered_rows(launch, memory, copier);
  if (copier == 0) bring_rows(parameters, launch, memory);
}
