// Correct kernels with variables of which some part never gets a value, and which nothing depends on.
#include <metal_stdlib>
#include <metal_simdgroup_matrix>
using namespace metal;

struct Padded { uchar tag; float value; uchar end; };
kernel void padding(device Padded* y [[buffer(0)]], uint i [[thread_position_in_grid]]) {
  Padded p;
  p.tag = uchar(i), p.value = i, p.end = 1;
  Padded all[3];
  for (int k = 0; k < 3; k++) all[k] = p;
  y[i] = all[i % 3];
}

struct Best { float value; ushort at; };
static Best better(Best a, Best b) {
  if (b.value > a.value) return b;
  return a;
}
// Padding goes along through threadgroup memory, calls and branches.
kernel void padded(device const float* x [[buffer(0)]], device float* y [[buffer(1)]], uint i [[thread_position_in_grid]],
                   uint t [[thread_index_in_threadgroup]]) {
  threadgroup Best all[64];
  Best b, last;
  b.value = x[i], b.at = ushort(i);
  last = b;
  for (ushort k = 0; k < 4; k++) {
    if (x[k] > last.value) {
      last.value = x[k];
      last.at = k;
    }
  }
  all[t] = last;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  device Best* stored = (device Best*)y + i;
  *stored = better(all[t], b);
  y[2 * i] = b.value;
}

// Set and used under the same condition; only some components and elements are looked at.
kernel void guarded(device const float* x [[buffer(0)]], device float* y [[buffer(1)]], constant int& n [[buffer(2)]],
                    uint i [[thread_position_in_grid]]) {
  float v, a[16];
  float4 q;
  const bool some = x[i] > 0;
  if (some) v = 2 * x[i];
  q.xy = float2(x[i], 1);
  for (int k = 0; k < n; k++) a[k] = k + x[i];
  float sum = q.x + q.y;
  if (some) sum += v;
  for (int k = 0; k < n; k++) sum += a[(k + 3) % n];
  y[i] = sum;
}

struct Choice { float left, right; int which; };
static Choice choose(float x) {
  Choice c;
  c.which = x > 0;
  if (c.which) c.right = x; else c.left = -x;
  return c;
}
kernel void tagged(device const float* x [[buffer(0)]], device float* y [[buffer(1)]], uint i [[thread_position_in_grid]]) {
  const Choice c = choose(x[i]);
  y[i] = c.which ? c.right : c.left;
}

// A value that one lane has set, and that all take from it.
kernel void given(device const float* x [[buffer(0)]], device float* y [[buffer(1)]], uint i [[thread_position_in_grid]],
                  uint lane [[thread_index_in_simdgroup]]) {
  float v, first;
  int4 many;
  if (lane == 3) v = x[i];
  if (lane == 0) first = x[i];
  if (lane < 16) many.zw = int2(1, 2);
  y[i] = simd_shuffle(v, 3) + simd_shuffle(first, 0) + simd_shuffle(many, ushort(lane / 2)).w;
}

// A lane takes what another one has set, and ignores what none has.
kernel void shuffled(device const float* x [[buffer(0)]], device float* y [[buffer(1)]], uint i [[thread_position_in_grid]],
                     uint lane [[thread_index_in_simdgroup]]) {
  float2 v;
  v.x = x[i];
  const float2 other = simd_shuffle_xor(v, 1);
  simdgroup_float8x8 unused;
  y[i] = other.x;
}
