// C = f(A W^T) for many rows of A. A block of eight warps makes a tile of 128 columns by 32 or 64
// rows: four warps side by side, each 32 rows of W, twice, each half of the rows of A. Two
// buffers of shared memory hold the activations of 64 slots each: one is filled by asynchronous
// copies while the other is read.
#pragma once
#include "product.cuh"

constexpr int kGemmWarps = 8, kStageUnits = 2, kStageSlots = 32 * kStageUnits;

/// A staged row has eight numbers more than its slots: of 16-bit numbers, four banks lie between
/// neighboring rows, so that a warp that reads 4 bytes a lane meets every bank once. INT8 needs 16
/// bytes between, so that copies of 4 bytes stay aligned.
template <class Activation, int ROWS>
struct StagedActivations {
  typedef typename Activation::Stored Stored;
  typedef typename Activation::Raw Raw;
  static constexpr int kStride = kStageSlots + (sizeof(Stored) == 1 ? 16 : 8);
  static constexpr int kQuads = ROWS * (kStageSlots / 4) / (kGemmWarps * kWarp);
  Stored x[2][ROWS][kStride];

  /// Four columns of a row.
  __device__ Raw& raw(int buffer, int row, int column) {
    return *reinterpret_cast<Raw*>(&x[buffer][row][column]);
  }
  /// A lane's part of a step, whose first column this is.
  __device__ Raw step(int buffer, int row, int column) const {
    return load_step<Activation>(&x[buffer][row][column]);
  }
};

template <class Raw>
__device__ inline void copy_async(Raw& to, const void* from) {
  asm volatile(
      "cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(u32(__cvta_generic_to_shared(&to))),
      "l"(from), "n"(sizeof(Raw))
      : "memory");
}
__device__ inline void end_group() { asm volatile("cp.async.commit_group;" ::: "memory"); }
/// Waits until all groups but the last are there.
__device__ inline void wait_for_all_but_last() {
  asm volatile("cp.async.wait_group 1;" ::: "memory");
}

/// The rows of a tile of `tile_rows` from `first` on, 16 TILES of them.
template <class Codes, class Activation, int TILES, class Form>
__device__ inline void gemm(const CudaParameters& parameters, int tile_rows, int first) {
  typedef typename Activation::Stored Stored;
  typedef Sums<Codes, Activation, TILES, Form> S;
  typedef StagedActivations<Activation, 16 * TILES> Staged;
  __shared__ alignas(16) Staged staged;
  const Launch launch{parameters};
  const ProductArgs& args = launch.arguments<ProductArgs>();
  let_next_start();
  wait_for_previous();
  const TileRows tile(launch, launch.buffer<const int>(MARLIN_BUFFER_ROUTES), tile_rows, first);
  if (tile.empty) return;
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp, g = lane / 4, j = lane % 4;
  const long long row_block = static_cast<long long>(blockIdx.x) * 4 + warp % 4;
  const bool live = row_block * kRowBlock < args.n;  // else it stages and meets every barrier
  const int in_tile = warp / 4 * 8 * TILES;
  const int begin = block_begin(args.slots, int(blockIdx.z) * args.split_blocks) / 32;
  const int end_block = min((int(blockIdx.z) + 1) * args.split_blocks, block_count(args.slots));
  const int end = block_begin(args.slots, end_block) / 32;
  const bool aligned = launch.constant(MARLIN_CONSTANT_ALIGNED) != 0;
  const uint4* const codes =
      reinterpret_cast<const uint4*>(weights_of(launch, MARLIN_BUFFER_CODES, tile)) +
      row_block * loads_of<Codes>(args.slots);
  const Stored* const a = launch.buffer<const Stored>(MARLIN_BUFFER_A);
  const float* const a_scales = launch.buffer<const float>(MARLIN_BUFFER_A_SCALES);

  S sums(launch, tile, live ? row_block : 0, lane);
  const auto stage = [&](int buffer, int unit) {
    const int K = min(args.k, 32 * end);
    const bool whole = aligned && 32 * (unit + kStageUnits) <= K;
    UNROLL for (int q = 0; unit < end && q < Staged::kQuads; q++) {
      const int at = q * kGemmWarps * kWarp + int(threadIdx.x);
      const int in_stage = at / (kStageSlots / 4), column = at % (kStageSlots / 4) * 4;
      const Stored* const row = a + tile.of_a(in_stage) * args.lda;
      typename Activation::Raw& to = staged.raw(buffer, in_stage, column);
      if (whole)
        copy_async(to, row + 32 * unit + column);
      else
        to = load_columns<Activation>(row, 32 * unit + column, K);
    }
    end_group();
  };
  stage(0, begin);
  int buffer = 0;
  for (int unit = begin; unit < end; unit += kStageUnits, buffer ^= 1) {
    Chunk<Codes, kStageUnits> chunk;
    const int units = min(end - unit, kStageUnits);
    if (live) sums.load(chunk, codes, unit, units, lane);
    stage(buffer ^ 1, unit + kStageUnits);
    wait_for_all_but_last();
    __syncthreads();
    UNROLL for (int w = 0; w < kStageUnits; w++) {
      if (w >= units || !live) break;
      const auto operands = [&](int step, typename S::Operand& b) {
        const int column = 32 * w + 16 * step + 2 * j;
        UNROLL for (int t = 0; t < TILES; t++)
            Activation::take(staged.step(buffer, in_tile + 8 * t + g, column), b[t]);
      };
      const auto scale_of = [&](int t, int e) {
        const long long row = tile.of_a(in_tile + 8 * t + 2 * j + e);
        return a_scales[row * (args.slots / kActivationBlock) + unit + w];
      };
      sums.add(chunk, unit + w, w, w + 1 == units, operands, scale_of);
    }
    __syncthreads();
  }
  if (!live) return;
  UNROLL for (int t = 0; t < TILES; t++) UNROLL for (int h = 0; h < 2; h++)
      UNROLL for (int i = 0; i < 4; i++) {
    const int m = in_tile + 8 * t + 2 * j + i % 2;
    const int n = int(row_block) * kRowBlock + 16 * h + 8 * (i / 2) + g;
    if (tile.has(m) && n < args.n)
      write_sum(sums.total[t][h][i] * sums.factor(), tile.of_c(m), n, launch);
  }
}
