// Each kernel has one mistake. BUG names the findings expected on its line; RUN changes the usual dispatch.
#include <metal_stdlib>
using namespace metal;

kernel void read_past_end(device const float* x [[buffer(0)]], device float* y [[buffer(1)]], uint i [[thread_position_in_grid]]) {
  y[i] = x[i + 1];  // BUG out-of-bounds-read
}
kernel void read_before_start(device const float* x [[buffer(0)]], device float* y [[buffer(1)]], uint i [[thread_position_in_grid]]) {
  y[i] = x[int(i) - 1];  // BUG out-of-bounds-read
}
kernel void write_past_end(device float* y [[buffer(1)]], uint i [[thread_position_in_grid]]) {
  y[2 * i] = 1;  // BUG out-of-bounds-write
}
kernel void write_far_past_end(device float* y [[buffer(1)]], device float* z [[buffer(2)]], uint i [[thread_position_in_grid]]) {
  z[i] = 0;
  y[i + 4096] = 1;  // BUG out-of-bounds-write
}
kernel void last_byte(device const uchar* x [[buffer(0)]], device float* y [[buffer(1)]], uint i [[thread_position_in_grid]]) {
  if (i == 0) y[0] = x[512];  // BUG out-of-bounds-read
}
static float third(device const float* p, uint i) {
  return p[3 * i];  // BUG out-of-bounds-read in=read_in_helper
}
kernel void read_in_helper(device const float* x [[buffer(0)]], device float* y [[buffer(1)]], uint i [[thread_position_in_grid]]) {
  y[i] = third(x, i);
}
kernel void other_buffer(device float* x [[buffer(1)]], device float* y [[buffer(2)]], uint i [[thread_position_in_grid]]) {
  y[i] = 0;
  x[i + 128] = 2;  // BUG out-of-bounds-write
}
kernel void threadgroup_past_end(device float* y [[buffer(1)]], uint i [[thread_position_in_grid]], uint t [[thread_index_in_threadgroup]]) {
  threadgroup float a[63];
  threadgroup float b[64];
  b[t] = 1;
  threadgroup float* p = a;
  p[t] = 2;  // BUG out-of-bounds-threadgroup-write
  y[i] = b[t];
}
kernel void threadgroup_array_index(device float* y [[buffer(1)]], uint i [[thread_position_in_grid]], uint t [[thread_index_in_threadgroup]]) {
  threadgroup float a[63];
  a[t] = 2;  // BUG out-of-bounds-thread-array
  y[i] = 1;
}
kernel void thread_array(device float* y [[buffer(1)]], device const int* n [[buffer(3)]], uint i [[thread_position_in_grid]]) {
  float a[4] = {0, 1, 2, 3};
  y[i] = a[n[i] + 4];  // BUG out-of-bounds-thread-array
}
static void fill(thread float* p, int n) {
  for (int k = 0; k < n; k++) {
    p[k] = k;  // BUG out-of-bounds-thread-array in=thread_array_by_pointer
  }
}
kernel void thread_array_by_pointer(device float* y [[buffer(1)]], device const int* n [[buffer(3)]], uint i [[thread_position_in_grid]]) {
  float a[5];
  fill(a, 6 + n[i]);
  y[i] = a[n[i]];
}
kernel void vector_component(device const float4* x [[buffer(0)]], device float* y [[buffer(1)]], device const int* n [[buffer(3)]],
                             uint i [[thread_position_in_grid]]) {
  if (i < 32) y[i] = x[i][n[i] + 4];  // BUG out-of-bounds-thread-array
}
kernel void misaligned_vector(device const float* x [[buffer(0)]], device float* y [[buffer(1)]], uint i [[thread_position_in_grid]]) {
  const device float4* p = (const device float4*)(x + 1);
  if (i < 8) y[i] = p[i].x + p[i].y;  // BUG misaligned-access
}
kernel void misaligned_store(device float* y [[buffer(1)]], uint i [[thread_position_in_grid]]) {
  device half2* p = (device half2*)((device half*)y + 1);
  p[i] = half2(0.0h);  // BUG misaligned-access
}
kernel void misaligned_threadgroup(device float* y [[buffer(1)]], uint i [[thread_position_in_grid]], uint t [[thread_index_in_threadgroup]]) {
  threadgroup float a[130];
  threadgroup float2* p = (threadgroup float2*)(a + 1);
  p[t] = float2(1);  // BUG misaligned-access
  y[i] = 1;
}
kernel void misaligned_word(device const uchar* x [[buffer(0)]], device uint* y [[buffer(1)]], uint i [[thread_position_in_grid]]) {
  y[i] = *(const device uint*)(x + 2);  // BUG misaligned-access
}
kernel void null_read(device float* y [[buffer(1)]], device const ulong* zero [[buffer(3)]], uint i [[thread_position_in_grid]]) {
  device const float* p = (device const float*)zero[0];
  y[i] = p[0];  // BUG null-pointer
}
kernel void stray_read(device float* y [[buffer(1)]], device const ulong* zero [[buffer(3)]], uint i [[thread_position_in_grid]]) {
  device const float* p = (device const float*)(zero[0] + 0x123456780000);
  y[i] = p[0];  // BUG wild-pointer
}
kernel void write_constant_pointer(device const float* x [[buffer(0)]], uint i [[thread_position_in_grid]]) {
  ((device float*)x)[i] = 0;  // BUG write-to-constant
}
kernel void write_constant_struct(constant float4& x [[buffer(0)]], uint i [[thread_position_in_grid]]) {
  *(device float*)(ulong)&x = i;  // BUG write-to-constant
}
constant float kTable[4] = {1, 2, 3, 4};
kernel void table_index(device float* y [[buffer(1)]], device const int* n [[buffer(3)]], uint i [[thread_position_in_grid]]) {
  y[i] = kTable[n[i] + 4];  // BUG out-of-bounds-thread-array
}
kernel void too_much_threadgroup(device float* y [[buffer(1)]], uint i [[thread_position_in_grid]], uint t [[thread_index_in_threadgroup]]) {
  threadgroup float a[8193];  // BUG threadgroup-memory
  a[t] = 0;
  y[i] = a[t];
}
kernel void two_large_arrays(device float* y [[buffer(1)]], uint i [[thread_position_in_grid]], uint t [[thread_index_in_threadgroup]]) {
  threadgroup float a[4096];
  threadgroup float b[4097];  // BUG threadgroup-memory
  a[t] = 0, b[t] = 0;
  y[i] = a[t] + b[t];
}
kernel void divide_by_zero(device int* y [[buffer(1)]], device const int* zero [[buffer(3)]], uint i [[thread_position_in_grid]]) {
  y[i] = 7 / zero[i];  // BUG division-by-zero
}
kernel void endless(device float* y [[buffer(1)]], uint i [[thread_position_in_grid]]) {
  uint k = i;
  while (true) k = k * 3 + 1;  // BUG step-budget
  y[i] = k;
}
kernel void endless_wait(device volatile uint* y [[buffer(1)]], device const uint* flag [[buffer(3)]], uint i [[thread_position_in_grid]]) {
  while (*(device const volatile uint*)flag == 0) {}  // BUG step-budget
  y[i] = 1;
}
struct Three { float a, b, c; };
kernel void misaligned_vector_read(device uchar* y [[buffer(1)]], device const uchar* x [[buffer(0)]], uint i [[thread_position_in_grid]]) {
  if (i < 1) *(device float4*)y = *(device const float4*)(x + 4);  // BUG misaligned-access
}
kernel void misaligned_vector_write(device uchar* y [[buffer(1)]], device const uchar* x [[buffer(0)]], uint i [[thread_position_in_grid]]) {
  if (i < 1) *(device float4*)(y + 8) = *(device const float4*)x;  // BUG misaligned-access
}
kernel void misaligned_struct(device uchar* y [[buffer(1)]], device const uchar* x [[buffer(0)]], uint i [[thread_position_in_grid]]) {
  if (i < 1) *(device Three*)(y + 2) = *(device const Three*)x;  // BUG misaligned-access
}
kernel void merged_stores(device int* y [[buffer(1)]], device const int* x [[buffer(3)]], uint i [[thread_position_in_grid]]) {
  if (x[i] > 0)  // BUG out-of-bounds-write
    y[i * 128] = 1;
  else
    y[i * 128] = x[i];
}
