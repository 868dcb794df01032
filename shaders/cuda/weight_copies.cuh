// Copies of packed weights to shared memory, by kernels for Hopper.
#pragma once
#include "hopper.cuh"
#include "operand.cuh"

/// Of a row block, `count` pieces of `bytes` from number `first` on: codes of 64 slots, or scales
/// or zeros of groups. Groups of `quad_blocks` times 128 slots, if that is not 1, have their scales
/// copied for each 128.
__device__ inline void copy_pieces(const unsigned char* row_block, int bytes, int first, int count,
                                   int quad_blocks, u32 to, u32 barrier) {
  if (quad_blocks == 1) {
    copy_bulk(to, row_block + static_cast<long long>(first) * bytes, count * bytes, barrier);
    return;
  }
#pragma unroll 1
  for (int i = 0; i < count; i++)
    copy_bulk(to + i * bytes, row_block + static_cast<long long>((first + i) / quad_blocks) * bytes,
              bytes, barrier);
}

/// The bytes of scales, and of zeros, from one row block to the next.
template <class Op>
__device__ inline long long scale_pitch(const ProductArgs& args) {
  return static_cast<long long>(args.quads) * (kRowBlock * Op::kScaleElement);
}
template <class Op>
__device__ inline long long zero_pitch(const ProductArgs& args) {
  return static_cast<long long>(args.quads) * (kRowBlock * Op::kZeroElement);
}
template <class Op>
__device__ inline int quad_blocks_of(const ProductArgs& args) {
  return Op::kGroupsOf128 ? args.quad_blocks : 1;
}
