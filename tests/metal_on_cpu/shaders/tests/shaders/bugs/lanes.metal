// What the lanes of a simdgroup do wrong together. BUG names the findings expected on its line.
#include <metal_stdlib>
#include <metal_simdgroup_matrix>
using namespace metal;

kernel void shuffle_from_inactive(device float* y [[buffer(1)]], uint i [[thread_position_in_grid]], uint lane [[thread_index_in_simdgroup]]) {
  float v = i;
  if (lane < 16) v = simd_shuffle_xor(v, 16);  // BUG inactive-lane
  y[i] = v;
}
kernel void shuffle_past_the_end(device float* y [[buffer(1)]], uint i [[thread_position_in_grid]], uint lane [[thread_index_in_simdgroup]]) {
  y[i] = simd_shuffle(float(i), lane + 8);  // BUG inactive-lane
}
kernel void sum_in_branch(device float* y [[buffer(1)]], uint i [[thread_position_in_grid]], uint lane [[thread_index_in_simdgroup]]) {
  float v = 0;
  if (lane & 1) v = simd_sum(1.0f);  // BUG divergent-reduction
  y[i] = simd_sum(v);
}
kernel void simdgroup_barrier_in_branch(device float* y [[buffer(1)]], uint i [[thread_position_in_grid]],
                                        uint lane [[thread_index_in_simdgroup]]) {
  if (lane < 5) simdgroup_barrier(mem_flags::mem_none);  // BUG divergent-simdgroup-barrier
  y[i] = 1;
}
kernel void matrix_multiply_in_branch(device float* y [[buffer(1)]], uint i [[thread_position_in_grid]],
                                      uint lane [[thread_index_in_simdgroup]]) {
  simdgroup_float8x8 a = make_filled_simdgroup_matrix<float, 8, 8>(1.0f), c = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
  if (lane != 9) {
    simdgroup_multiply_accumulate(c, a, a, c);  // BUG divergent-matrix
  }
  y[i] = c.thread_elements()[0];
}
kernel void matrix_of_few_threads(device float* y [[buffer(1)]], uint i [[thread_position_in_grid]]) {
  // RUN threads=16
  simdgroup_float8x8 a = make_filled_simdgroup_matrix<float, 8, 8>(1.0f);
  simdgroup_multiply_accumulate(a, a, a, a);  // BUG divergent-matrix
  y[i] = a.thread_elements()[0];
}
kernel void prefix_in_branch(device float* y [[buffer(1)]], uint i [[thread_position_in_grid]], uint lane [[thread_index_in_simdgroup]]) {
  float v = 0;
  if (lane > 9) v = simd_prefix_exclusive_sum(1.0f);  // BUG divergent-reduction
  y[i] = simd_sum(v);
}
kernel void uneven_loop_of_sums(device float* y [[buffer(1)]], uint i [[thread_position_in_grid]], uint lane [[thread_index_in_simdgroup]]) {
  float v = 0;
  for (uint k = 0; k <= lane / 16; k++) v += simd_sum(1.0f);  // BUG divergent-reduction
  y[i] = simd_sum(v);
}
kernel void shuffle_from_returned(device float* y [[buffer(1)]], uint i [[thread_position_in_grid]], uint lane [[thread_index_in_simdgroup]]) {
  if (lane == 3) return;
  y[i] = simd_shuffle(float(i), 3);  // BUG inactive-lane
}
kernel void simdgroup_barrier_after_return(device float* y [[buffer(1)]], uint i [[thread_position_in_grid]],
                                           uint lane [[thread_index_in_simdgroup]]) {
  if (lane == 31) return;
  simdgroup_barrier(mem_flags::mem_none);  // BUG divergent-simdgroup-barrier
  y[i] = 1;
}
kernel void matrix_after_return(device float* y [[buffer(1)]], uint i [[thread_position_in_grid]], uint lane [[thread_index_in_simdgroup]]) {
  simdgroup_float8x8 a = make_filled_simdgroup_matrix<float, 8, 8>(1.0f);
  if (lane == 30) return;
  simdgroup_multiply_accumulate(a, a, a, a);  // BUG divergent-matrix
  y[i] = a.thread_elements()[0];
}
