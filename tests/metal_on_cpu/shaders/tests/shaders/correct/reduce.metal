// Correct kernels: sums, scans, transposes, sorting.
#include <metal_stdlib>
using namespace metal;

constant uint kCount [[function_constant(0)]];

// One threadgroup of 256: tree in threadgroup memory.
kernel void sum_tree(device const float* x [[buffer(0)]], device float* y [[buffer(1)]], uint t [[thread_index_in_threadgroup]],
                     uint n [[threads_per_threadgroup]]) {
  threadgroup float part[256];
  float s = 0;
  for (uint i = t; i < kCount; i += n) s += x[i];
  part[t] = s;
  for (uint step = n / 2; step > 0; step /= 2) {
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (t < step) part[t] += part[t + step];
  }
  if (t == 0) y[0] = part[0];
}

kernel void sum_simd(device const float* x [[buffer(0)]], device float* y [[buffer(1)]], uint t [[thread_index_in_threadgroup]],
                     uint n [[threads_per_threadgroup]], uint lane [[thread_index_in_simdgroup]],
                     uint sg [[simdgroup_index_in_threadgroup]]) {
  threadgroup float part[32];
  float s = 0;
  for (uint i = t; i < kCount; i += n) s += x[i];
  s = simd_sum(s);
  if (lane == 0) part[sg] = s;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (sg == 0) {
    s = simd_sum(lane < n / 32 ? part[lane] : 0.0f);
    if (lane == 0) y[0] = s;
  }
}

kernel void sum_shuffle(device const float* x [[buffer(0)]], device float* y [[buffer(1)]], uint t [[thread_index_in_threadgroup]],
                        uint lane [[thread_index_in_simdgroup]]) {
  if (t >= 32) return;
  float s = 0;
  for (uint i = lane; i < kCount; i += 32) s += x[i];
  for (ushort d = 16; d > 0; d /= 2) s += simd_shuffle_xor(s, d);
  if (lane == 0) y[0] = s;
}

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

// The same by doubling, in threadgroup memory with two halves.
kernel void scan_doubling(device const int* x [[buffer(0)]], device int* y [[buffer(1)]], uint t [[thread_index_in_threadgroup]]) {
  threadgroup int a[2][256];
  uint from = 0;
  a[0][t] = t > 0 ? x[t - 1] : 0;
  for (uint d = 1; d < 256; d *= 2) {
    threadgroup_barrier(mem_flags::mem_threadgroup);
    a[1 - from][t] = a[from][t] + (t >= d ? a[from][t - d] : 0);
    from = 1 - from;
  }
  y[t] = a[from][t];
}

kernel void transpose(device const float* x [[buffer(0)]], device float* y [[buffer(1)]], constant uint2& size [[buffer(2)]],
                      uint2 g [[threadgroup_position_in_grid]], uint2 t [[thread_position_in_threadgroup]]) {
  threadgroup float tile[16][17];
  const uint2 from = g * 16 + t;
  if (from.x < size.x && from.y < size.y) tile[t.y][t.x] = x[from.y * size.x + from.x];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  const uint2 to = g.yx * 16 + t;
  if (to.x < size.y && to.y < size.x) y[to.y * size.y + to.x] = tile[t.x][t.y];
}

kernel void bitonic_sort(device const uint* x [[buffer(0)]], device uint* y [[buffer(1)]], uint t [[thread_index_in_threadgroup]]) {
  threadgroup uint a[256];
  a[t] = x[t];
  for (uint k = 2; k <= 256; k *= 2) {
    for (uint j = k / 2; j > 0; j /= 2) {
      threadgroup_barrier(mem_flags::mem_threadgroup);
      const uint other = t ^ j;
      if (other > t && ((t & k) == 0) == (a[t] > a[other])) {
        const uint swap = a[t];
        a[t] = a[other];
        a[other] = swap;
      }
    }
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  y[t] = a[t];
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
