// Races, barriers, uninitialized memory. BUG names the findings expected on its line.
#include <metal_stdlib>
using namespace metal;

kernel void no_barrier(device float* y [[buffer(1)]], uint i [[thread_position_in_grid]], uint t [[thread_index_in_threadgroup]]) {
  threadgroup float a[64];
  a[t] = t;
  y[i] = t < 32 ? a[t] : a[63 - t];                 // BUG threadgroup-race
}
kernel void read_read_write(device float* y [[buffer(1)]], uint i [[thread_position_in_grid]], uint t [[thread_index_in_threadgroup]]) {
  threadgroup float a[64];
  a[t] = t;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  float v = a[0] + a[t];
  if (t == 63) a[0] = 9;  // BUG threadgroup-race
  y[i] = v;
}
kernel void last_reader_writes(device float* y [[buffer(1)]], uint i [[thread_position_in_grid]], uint t [[thread_index_in_threadgroup]]) {
  threadgroup float a[64];
  a[t] = t;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  float v = a[5];  // RUN threads=32
  if (t == 31) a[5] = v + 1;  // BUG threadgroup-race
  y[i] = v;
}
kernel void write_write(device float* y [[buffer(1)]], uint i [[thread_position_in_grid]], uint t [[thread_index_in_threadgroup]]) {
  threadgroup float a[1];
  a[0] = t;  // BUG threadgroup-race
  threadgroup_barrier(mem_flags::mem_threadgroup);
  y[i] = a[0];
}
kernel void simdgroup_barrier_is_not_enough(device float* y [[buffer(1)]], uint i [[thread_position_in_grid]],
                                            uint t [[thread_index_in_threadgroup]]) {
  threadgroup float a[64];
  a[t] = t;  // BUG threadgroup-race
  simdgroup_barrier(mem_flags::mem_threadgroup);
  y[i] = a[63 - t];  // BUG threadgroup-race uninitialized-threadgroup-read
}
kernel void barrier_without_flag(device float* y [[buffer(1)]], uint i [[thread_position_in_grid]], uint t [[thread_index_in_threadgroup]]) {
  threadgroup float a[64];
  a[t] = t;
  threadgroup_barrier(mem_flags::mem_none);
  y[i] = a[63 - t];  // BUG threadgroup-race
}
kernel void barrier_with_wrong_flag(device float* y [[buffer(1)]], uint i [[thread_position_in_grid]], uint t [[thread_index_in_threadgroup]]) {
  threadgroup float a[64];
  a[t] = t;
  threadgroup_barrier(mem_flags::mem_device);
  y[i] = a[63 - t];  // BUG threadgroup-race
}
kernel void simdgroup_barrier_without_flag(device float* y [[buffer(1)]], uint i [[thread_position_in_grid]],
                                           uint t [[thread_index_in_threadgroup]]) {
  threadgroup float a[64];
  a[t] = t;
  simdgroup_barrier(mem_flags::mem_none);
  y[i] = a[t ^ 1];  // BUG threadgroup-race
}
kernel void shuffle_is_no_barrier(device float* y [[buffer(1)]], uint i [[thread_position_in_grid]], uint t [[thread_index_in_threadgroup]]) {
  threadgroup float a[64];
  a[t] = t;
  const float v = simd_sum(1.0f);
  y[i] = v + a[t ^ 1];  // BUG threadgroup-race
}
kernel void missing_second_barrier(device float* y [[buffer(1)]], uint i [[thread_position_in_grid]], uint t [[thread_index_in_threadgroup]]) {
  threadgroup float a[64];
  float v = t;
  for (int k = 0; k < 3; k++) {
    a[t] = v;  // BUG threadgroup-race
    threadgroup_barrier(mem_flags::mem_threadgroup);
    v = a[(t + 33) % 64];  // BUG threadgroup-race
  }
  y[i] = v;
}
kernel void device_race_in_threadgroup(device float* y [[buffer(1)]], device float* z [[buffer(2)]], uint i [[thread_position_in_grid]]) {
  y[i] = i;  // BUG device-race
  z[i] = y[i ^ 32];  // BUG device-race
}
kernel void device_race_mem_threadgroup(device float* y [[buffer(1)]], device float* z [[buffer(2)]], uint i [[thread_position_in_grid]]) {
  y[i] = i;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  z[i] = y[i ^ 1];  // BUG device-race
}
kernel void device_race_across_threadgroups(device float* y [[buffer(1)]], uint t [[thread_index_in_threadgroup]]) {
  y[t] = t;  // BUG device-race
}
kernel void device_sum_without_atomics(device float* y [[buffer(1)]]) {
  y[0] += 1;  // BUG device-race
}
kernel void neighbor_threadgroup(device float* y [[buffer(1)]], device float* z [[buffer(2)]], uint i [[thread_position_in_grid]]) {
  y[i] = 1;  // BUG device-race
  threadgroup_barrier(mem_flags::mem_device);
  z[i] = y[i ^ 64];  // BUG device-race
}
kernel void barrier_in_branch(device float* y [[buffer(1)]], uint i [[thread_position_in_grid]], uint t [[thread_index_in_threadgroup]]) {
  if (t < 40) threadgroup_barrier(mem_flags::mem_threadgroup);  // BUG divergent-barrier
  y[i] = 1;
}
kernel void different_barriers(device float* y [[buffer(1)]], uint i [[thread_position_in_grid]], uint t [[thread_index_in_threadgroup]]) {
  if (t < 32) {
    threadgroup_barrier(mem_flags::mem_threadgroup);  // BUG divergent-barrier
  } else {
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
  y[i] = 1;
}
kernel void early_return(device float* y [[buffer(1)]], uint i [[thread_position_in_grid]], uint t [[thread_index_in_threadgroup]]) {
  if (t == 17) return;
  threadgroup_barrier(mem_flags::mem_threadgroup);  // BUG divergent-barrier
  y[i] = 1;
}
kernel void uneven_loop(device float* y [[buffer(1)]], uint i [[thread_position_in_grid]], uint t [[thread_index_in_threadgroup]]) {
  for (uint k = 0; k <= t / 32; k++) threadgroup_barrier(mem_flags::mem_threadgroup);  // BUG divergent-barrier
  y[i] = 1;
}
kernel void unwritten_threadgroup(device float* y [[buffer(1)]], uint i [[thread_position_in_grid]], uint t [[thread_index_in_threadgroup]]) {
  threadgroup float a[64];
  if (t != 5) a[t] = t;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  y[i] = a[63 - t];  // BUG uninitialized-threadgroup-read
}
kernel void left_by_last_threadgroup(device float* y [[buffer(1)]], uint i [[thread_position_in_grid]], uint t [[thread_index_in_threadgroup]],
                                     uint g [[threadgroup_position_in_grid]]) {
  threadgroup float a[64];
  if (g == 0) a[t] = 1;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  y[i] = a[t];  // BUG uninitialized-threadgroup-read
}
kernel void unwritten_device(device float* y [[buffer(1)]], device float* fresh [[buffer(4)]], uint i [[thread_position_in_grid]]) {
  if (i != 7) fresh[i] = 1;
  y[i] = fresh[i];  // BUG uninitialized-device-read
}
kernel void accumulate_into_output(device float* fresh [[buffer(4)]], uint i [[thread_position_in_grid]]) {
  fresh[i] += 1;  // BUG uninitialized-device-read
}
