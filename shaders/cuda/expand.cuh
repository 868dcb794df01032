// Weights of any form as floats of 16 bits, in the order of such weights, for products that round
// weights once (MARLIN_COMPUTE_W16) and have so many rows of A that decoding in every tile costs
// more.
//
//   warp        a few chunks of 64 slots of a row block, each 4096 bytes of the result; the next
//               one is on its way
//   lane        decodes its part of operand A in float32, as the general kernels do
//   stmatrix    puts it into shared memory in the order of the result
//   memory      in pieces of 16 bytes
#pragma once
#include "hopper.cuh"
#include "product.cuh"

constexpr int kExpandedBytes = kRowBlock * kMmaSlots * 2;  // of a chunk

/// Writes four matrices of 8 x 8 numbers of 16 bits, as load_matrices reads them.
__device__ inline void store_matrices(u32 row, const u32 (&matrices)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(row),
               "r"(matrices[0]), "r"(matrices[1]), "r"(matrices[2]), "r"(matrices[3])
               : "memory");
}

template <class Codes, class Activation, class Own, class Form>
__device__ inline void expand(const CudaParameters& parameters) {
  constexpr int kUnits = kMmaSlots / 32;
  alignas(16) __shared__ unsigned char shared[kExpandWarps][kExpandedBytes];
  const Launch launch{parameters};
  const ProductArgs& args = launch.arguments<ProductArgs>();
  let_next_start();
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  const int chunks = args.slots / kMmaSlots;
  const int begin = (int(blockIdx.x) * kExpandWarps + warp) * kExpandChunks;
  const int end = min(begin + kExpandChunks, chunks);
  if (begin >= end) return;
  const long long row_block = launch.group_y();
  const TileRows tile(launch, nullptr, kRowBlock, 0);
  const Sums<Codes, Activation, 1, Form> weights(launch, tile, row_block, lane);
  const uint4* const from =
      launch.buffer<const uint4>(MARLIN_BUFFER_CODES) + row_block * loads_of<Codes>(args.slots);
  uint4* const to =
      launch.buffer<uint4>(MARLIN_BUFFER_EXPANDED) + row_block * chunks * (kExpandedBytes / 16);
  const u32 memory = shared_address(shared[warp]);
  Chunk<Codes, kUnits> next;
  weights.load(next, from, kUnits * begin, kUnits, lane);
  wait_for_previous();  // which may read the last result
#pragma unroll 1
  for (int chunk = begin; chunk < end; chunk++) {
    const Chunk<Codes, kUnits> codes = next;
    if (chunk + 1 < end) weights.load(next, from, kUnits * (chunk + 1), kUnits, lane);
    UNROLL for (int unit = 0; unit < kUnits; unit++) UNROLL for (int i = 0; i < 4; i++) {
      u32 halves[4];  // of the steps
      weights.template expand<Own>(codes, kUnits * chunk + unit, unit, i, halves);
      // Lane 8 t + r has the address of row r of step t, which is a piece.
      const int r = lane % 8, piece = (4 * unit + lane / 8) ^ r;
      store_matrices(memory + (8 * i + r) * 128 + piece * 16, halves);
    }
    __syncwarp();
    UNROLL for (int i = 0; i < kExpandedBytes / 16; i += kWarp) {
      uint4 piece;
      load_shared(memory + 16 * (i + lane), piece);
      to[chunk * (kExpandedBytes / 16) + i + lane] = piece;
    }
    __syncwarp();
  }
}
