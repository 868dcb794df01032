// C = f(A W^T) for few rows of A. A block of eight warps takes 32 rows of W; its warps share K, a
// chunk of up to 128 slots at a time. Weights go from memory to registers, in loads of 16 bytes, a
// chunk ahead of their use.
#pragma once
#include "product.cuh"

constexpr int kGemvWarps = 8;
/// Units of a warp's chunk. Those of floats take more registers.
template <class Codes>
constexpr int kChunkUnitsOf = Codes::kWords <= 2 ? 4 : 8 / Codes::kWords;

/// The rows of a tile of `tile_rows` from `first` on, 8 TILES of them.
template <class Codes, class Activation, int TILES, class Form>
__device__ inline void gemv(const CudaParameters& parameters, int tile_rows, int first) {
  typedef typename Activation::Stored Stored;
  typedef Sums<Codes, Activation, TILES, Form> S;
  constexpr int kChunkUnits = kChunkUnitsOf<Codes>;
  // Units whose activations are loaded together, as far as registers go.
  constexpr int kAhead = TILES == 1 && Activation::kPieces == 1 ? kChunkUnits : 1;
  __shared__ float shared[kGemvWarps][8 * TILES][kRowBlock + 1];
  const Launch launch{parameters};
  const ProductArgs& args = launch.arguments<ProductArgs>();
  let_next_start();
  alignas(16) __shared__ int few[kFewRoutes];
  const int* table = nullptr;
  if (args.items != 0) {
    wait_for_previous();
    table = find_few_routes(launch, tile_rows, few);
  }
  const TileRows tile(launch, table, tile_rows, first);
  if (tile.empty) return;
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp, g = lane / 4, j = lane % 4;
  const long long row_block = blockIdx.x;
  const int begin = block_begin(args.slots, int(blockIdx.z) * args.split_blocks) / 32;
  const int end_block = min((int(blockIdx.z) + 1) * args.split_blocks, block_count(args.slots));
  const int end = block_begin(args.slots, end_block) / 32;
  const bool aligned = launch.constant(MARLIN_CONSTANT_ALIGNED) != 0;
  const uint4* const codes =
      reinterpret_cast<const uint4*>(weights_of(launch, MARLIN_BUFFER_CODES, tile)) +
      row_block * loads_of<Codes>(args.slots);
  const float* const a_scales = launch.buffer<const float>(MARLIN_BUFFER_A_SCALES);
  S sums(launch, tile, row_block, lane);
  Chunk<Codes, kChunkUnits> next;
  int unit = begin + kChunkUnits * warp;
  sums.load(next, codes, unit, end - unit, lane);
  wait_for_previous();
  const Stored* rows[TILES];
  UNROLL for (int t = 0; t < TILES; t++) rows[t] =
      launch.buffer<const Stored>(MARLIN_BUFFER_A) + tile.of_a(8 * t + g) * args.lda;
  for (; unit < end; unit += kChunkUnits * kGemvWarps) {
    const Chunk<Codes, kChunkUnits> chunk = next;
    const int units = min(end - unit, kChunkUnits), K = args.k;
    const int following = unit + kChunkUnits * kGemvWarps;
    const bool whole = aligned && 32 * (unit + kChunkUnits) <= K;
    typename Activation::Raw x[kAhead][2][TILES];
    const auto fetch = [&](int w) {  // the activations of kAhead units
      UNROLL for (int v = 0; v < kAhead; v++) UNROLL for (int step = 0; step < 2; step++)
          UNROLL for (int t = 0; t < TILES; t++) {
        const int k = 32 * (unit + w + v) + 16 * step + 2 * j;
        if (whole)
          x[v][step][t] = load_step<Activation>(rows[t] + k);
        else
          x[v][step][t] = load_step<Activation>(rows[t], k, K);
      }
    };
    if (kAhead == kChunkUnits) fetch(0);
    sums.load(next, codes, following, end - following, lane);
    UNROLL for (int w = 0; w < kChunkUnits; w++) {
      if (w >= units) break;
      if (kAhead == 1) fetch(w);
      const auto operands = [&](int step, typename S::Operand& b) {
        UNROLL for (int t = 0; t < TILES; t++) Activation::take(x[w % kAhead][step][t], b[t]);
      };
      const auto scale_of = [&](int t, int e) {
        const long long row = tile.of_a(8 * t + 2 * j + e);
        return a_scales[row * (args.slots / kActivationBlock) + unit + w];
      };
      sums.add(chunk, unit + w, w, w + 1 == units, operands, scale_of);
    }
  }

  UNROLL for (int t = 0; t < TILES; t++) UNROLL for (int h = 0; h < 2; h++)
      UNROLL for (int i = 0; i < 4; i++)
          shared[warp][8 * t + 2 * j + i % 2][16 * h + 8 * (i / 2) + g] = sums.total[t][h][i];
  __syncthreads();
  const int n = int(row_block) * kRowBlock + lane;
  for (int m = warp; m < 8 * TILES; m += kGemvWarps) {
    float sum = shared[0][m][lane];  // in a fixed order
    UNROLL for (int s = 1; s < kGemvWarps; s++) sum += shared[s][m][lane];
    if (tile.has(m) && n < args.n) write_sum(sum * sums.factor(), tile.of_c(m), n, launch);
  }
}
