// Correct kernels: products, attention, quantization.
#include <metal_stdlib>
using namespace metal;

constant bool has_bias [[function_constant(1)]];
constant float alpha [[function_constant(2)]];
constant float scale_by = is_function_constant_defined(alpha) ? alpha : 1.0f;

struct Shape { int m, n, k; };

template <typename T>
kernel void axpy(device const T* x [[buffer(0)]], device T* y [[buffer(1)]], constant float& a [[buffer(2)]],
                 uint i [[thread_position_in_grid]]) {
  y[i] = T(a * float(x[i]) + float(y[i]));
}
template [[host_name("axpy_float")]] kernel void axpy<float>(device const float*, device float*, constant float&, uint);
template [[host_name("axpy_half")]] kernel void axpy<half>(device const half*, device half*, constant float&, uint);
template [[host_name("axpy_bfloat")]] [[kernel]] decltype(axpy<bfloat>) axpy<bfloat>;

kernel void gemv(device const float4* w [[buffer(0)]], device const float4* x [[buffer(1)]], device float* y [[buffer(2)]],
                 constant Shape& s [[buffer(3)]], device const float* bias [[buffer(4), function_constant(has_bias)]],
                 uint row [[threadgroup_position_in_grid]], uint lane [[thread_index_in_simdgroup]]) {
  float sum = 0;
  for (int i = lane; i < s.k / 4; i += 32) sum += dot(w[row * (s.k / 4) + i], x[i]);
  sum = simd_sum(sum) * scale_by;
  if (lane == 0) y[row] = has_bias ? sum + bias[row] : sum;
}

kernel void gemm_naive(device const float* a [[buffer(0)]], device const float* b [[buffer(1)]], device float* c [[buffer(2)]],
                       constant Shape& s [[buffer(3)]], uint2 at [[thread_position_in_grid]]) {
  float sum = 0;
  for (int k = 0; k < s.k; k++) sum = fma(a[at.y * s.k + k], b[k * s.n + at.x], sum);
  c[at.y * s.n + at.x] = sum;
}

// 16 x 16 threads, tiles of both operands in threadgroup memory; ragged shapes.
kernel void gemm_tiled(device const float* a [[buffer(0)]], device const float* b [[buffer(1)]], device float* c [[buffer(2)]],
                       constant Shape& s [[buffer(3)]], uint2 g [[threadgroup_position_in_grid]],
                       uint2 t [[thread_position_in_threadgroup]]) {
  threadgroup float ta[16][16], tb[16][16];
  const int m = g.y * 16 + t.y, n = g.x * 16 + t.x;
  float sum = 0;
  for (int k = 0; k < s.k; k += 16) {
    ta[t.y][t.x] = m < s.m && k + int(t.x) < s.k ? a[m * s.k + k + t.x] : 0;
    tb[t.y][t.x] = n < s.n && k + int(t.y) < s.k ? b[(k + t.y) * s.n + n] : 0;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (int i = 0; i < 16; i++) sum = fma(ta[t.y][i], tb[i][t.x], sum);
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
  if (m < s.m && n < s.n) c[m * s.n + n] = sum;
}

// One query a simdgroup over all keys, running maximum; head size 32, one component a lane.
kernel void attention(device const float* q [[buffer(0)]], device const float* keys [[buffer(1)]], device const float* values [[buffer(2)]],
                      device float* out [[buffer(3)]], constant int& n [[buffer(4)]], uint row [[threadgroup_position_in_grid]],
                      uint lane [[thread_index_in_simdgroup]]) {
  const float mine = q[row * 32 + lane];
  float top = -INFINITY, sum = 0, acc = 0;
  for (int i = 0; i < n; i++) {
    const float score = simd_sum(mine * keys[i * 32 + lane]) * 0.17677669f;
    const float higher = max(top, score), keep = exp(top - higher), weight = exp(score - higher);
    sum = sum * keep + weight;
    acc = acc * keep + weight * values[i * 32 + lane];
    top = higher;
  }
  out[row * 32 + lane] = acc / sum;
}

// Quantizes groups of 32 to 4 bits, one group a simdgroup; neighbors share a byte by a shuffle.
kernel void quantize(device const float* x [[buffer(0)]], device uchar* codes [[buffer(1)]], device float* scales [[buffer(2)]],
                     uint i [[thread_position_in_grid]], uint lane [[thread_index_in_simdgroup]]) {
  const float v = x[i], scale = simd_max(fabs(v)) / 7;
  const int q = clamp(int(rint(scale > 0 ? v / scale : 0.0f)), -7, 7) + 8;
  const int other = simd_shuffle_xor(q, 1);
  if (lane % 2 == 0) codes[i / 2] = uchar(q | other << 4);
  if (lane == 0) scales[i / 32] = scale;
}

kernel void convolve(device const float* x [[buffer(0)]], device float* y [[buffer(1)]], constant float* taps [[buffer(2)]],
                     constant int& n [[buffer(3)]], uint i [[thread_position_in_grid]], uint t [[thread_index_in_threadgroup]],
                     uint threads [[threads_per_threadgroup]]) {
  threadgroup float line[64 + 4];
  for (uint k = t; k < threads + 4; k += threads) {
    const int at = int(i - t + k) - 2;
    line[k] = at >= 0 && at < n ? x[at] : 0;
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  float sum = 0;
  for (int k = 0; k < 5; k++) sum += taps[k] * line[t + k];
  y[i] = sum;
}


