// Correct kernels: what lanes compute together, of all that are active.
#include <metal_stdlib>
using namespace metal;

constant uint kCount [[function_constant(0)]];

// Exclusive scan of 256 values.
kernel void scan(device const int* x [[buffer(0)]], device int* y [[buffer(1)]], uint t [[thread_index_in_threadgroup]],
                 uint lane [[thread_index_in_simdgroup]], uint sg [[simdgroup_index_in_threadgroup]]) {
  threadgroup int sums[8];
  const int v = x[t], before = simd_prefix_exclusive_sum(v);
  if (lane == 31) sums[sg] = before + v;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  int offset = 0;
  for (uint s = 0; s < sg; s++) offset += sums[s];
  y[t] = offset + before;
}

// Lanes past the end have returned: MSL sums over those that are active.
kernel void sum_of_active(device const float* x [[buffer(0)]], device float* y [[buffer(1)]], uint i [[thread_position_in_grid]],
                          uint lane [[thread_index_in_simdgroup]]) {
  if (i >= kCount) return;
  const float sum = simd_sum(x[i]);
  if (lane == 0) y[i / 32] = sum;
}

// Shuffles among the lanes of a branch, which are all active there.
kernel void swap_in_branch(device const int* x [[buffer(0)]], device int* y [[buffer(1)]], uint i [[thread_position_in_grid]],
                           uint lane [[thread_index_in_simdgroup]]) {
  int v = x[i];
  if (lane < 16)
    v = simd_shuffle_xor(v, 8);
  else
    v = -simd_shuffle_xor(v, 1);
  y[i] = v;
}

// The last that some lanes do, while the others have nothing left to do.
kernel void sum_in_last_branch(device const float* x [[buffer(0)]], device float* y [[buffer(1)]], uint lane [[thread_index_in_simdgroup]]) {
  if (lane < 12) {
    const float sum = simd_sum(x[lane]);
    if (lane == 0) y[0] = sum;
  }
}
