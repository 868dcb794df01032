// Variables of a thread that are used before they have a value, and constants without one.
#include <metal_stdlib>
#include <metal_simdgroup_matrix>
using namespace metal;
constant int kMissing [[function_constant(7)]];

kernel void set_in_one_branch(device float* y [[buffer(1)]], uint i [[thread_position_in_grid]]) {
  float v;
  if (i < 5) v = 1;
  y[i] = v;  // BUG uninitialized-variable
}
kernel void never_set(device float* y [[buffer(1)]], uint i [[thread_position_in_grid]]) {
  float v;
  y[i] = v + 1;  // BUG uninitialized-variable
}
kernel void used_in_itself(device int* y [[buffer(1)]], uint i [[thread_position_in_grid]]) {
  int n = n + i;
  y[i] = n;  // BUG uninitialized-variable
}
kernel void constant_without_value(device int* y [[buffer(1)]], uint i [[thread_position_in_grid]]) {
  y[i] = kMissing;  // BUG undefined-function-constant
}
kernel void element_never_set(device float* y [[buffer(1)]], uint i [[thread_position_in_grid]]) {
  float a[4];
  a[0] = a[1] = a[3] = 1;
  y[i] = a[2];  // BUG uninitialized-variable
}
kernel void element_past_those_set(device float* y [[buffer(1)]], device const int* zero [[buffer(3)]], uint i [[thread_position_in_grid]]) {
  float a[8];
  for (int k = 0; k < 7 + zero[i]; k++) a[k] = k;
  y[i] = a[zero[i] + 7];  // BUG uninitialized-variable
}
kernel void elements_set_by_index(device float* y [[buffer(1)]], device const int* zero [[buffer(3)]], uint i [[thread_position_in_grid]]) {
  float a[8];
  a[zero[i] + 3] = 1;
  float sum = 0;
  for (int k = 2; k < 4 + zero[i]; k++) sum += a[k];
  y[i] = sum;  // BUG uninitialized-variable
}
struct Pair { float first, second; };
kernel void member_never_set(device float* y [[buffer(1)]], uint i [[thread_position_in_grid]]) {
  Pair p;
  p.first = i;
  y[i] = p.first + p.second;  // BUG uninitialized-variable
}
kernel void copy_of_a_copy(device float* y [[buffer(1)]], device const int* zero [[buffer(3)]], uint i [[thread_position_in_grid]]) {
  Pair p[4], q[4];
  for (int k = 0; k < 4; k++) p[k].first = k;
  p[zero[i]].second = 2;
  for (int k = 0; k < 4; k++) q[k] = p[k];
  y[i] = q[zero[i] + 1].second;  // BUG uninitialized-variable
}
static Pair half_made(float first) {
  Pair p;
  p.first = first;
  return p;
}
kernel void member_of_result(device float* y [[buffer(1)]], uint i [[thread_position_in_grid]]) {
  const Pair p = half_made(i);
  y[i] = p.second;  // BUG uninitialized-variable
}
static void set_some(thread float* a, int n) {
  for (int k = 0; k < n; k++) a[k] = 1;
}
kernel void set_by_helper(device float* y [[buffer(1)]], device const int* zero [[buffer(3)]], uint i [[thread_position_in_grid]]) {
  float a[6];
  set_some(a, 5 + zero[i]);
  y[i] = a[5];  // BUG uninitialized-variable
}
kernel void branch_on_element(device float* y [[buffer(1)]], uint i [[thread_position_in_grid]]) {
  bool done[2];
  done[0] = true;
  y[i] = 0;
  if (done[1]) y[i] = 1;  // BUG uninitialized-variable
}
kernel void index_from_element(device const float* x [[buffer(0)]], device float* y [[buffer(1)]], uint i [[thread_position_in_grid]]) {
  int at[2];
  at[0] = 3;
  y[i] = x[at[1] & 1];  // BUG uninitialized-variable
}
kernel void component_never_set(device float4* y [[buffer(1)]], uint i [[thread_position_in_grid]]) {
  float4 v;
  v.x = 1, v.y = 2, v.w = 4;
  if (i < 32) y[i] = v;  // BUG uninitialized-variable
}
kernel void accumulator_never_filled(device const float* x [[buffer(0)]], device float* y [[buffer(1)]], uint i [[thread_position_in_grid]]) {
  simdgroup_float8x8 a = make_filled_simdgroup_matrix<float, 8, 8>(x[0]), c;
  simdgroup_multiply_accumulate(c, a, a, c);  // BUG uninitialized-variable
  y[i] = c.thread_elements()[0];
}
kernel void some_accumulators_filled(device const float* x [[buffer(0)]], device float* y [[buffer(1)]], device const int* zero [[buffer(3)]],
                                     uint i [[thread_position_in_grid]]) {
  simdgroup_float8x8 a = make_filled_simdgroup_matrix<float, 8, 8>(x[0]), c[4];
  for (int k = 0; k < 3 + zero[0]; k++) c[k] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
  for (int k = 0; k < 4; k++) simdgroup_multiply_accumulate(c[k], a, a, c[k]);  // BUG uninitialized-variable
  y[i] = c[zero[i]].thread_elements()[0];
}
kernel void sum_over_lanes(device float* y [[buffer(1)]], uint i [[thread_position_in_grid]], uint lane [[thread_index_in_simdgroup]]) {
  float v;
  if (lane != 7) v = 1;
  y[i] = simd_sum(v);  // BUG uninitialized-variable
}
kernel void value_of_last_iteration(device float* y [[buffer(1)]], device const int* zero [[buffer(3)]], uint i [[thread_position_in_grid]]) {
  float sum = 0;
  for (int k = 0; k < 3 + zero[i]; k++) {
    float a[4];
    if (k == 0) a[zero[i]] = 1;
    sum += a[zero[i]];
  }
  y[i] = sum;  // BUG uninitialized-variable
}
kernel void to_threadgroup_memory(device float* y [[buffer(1)]], uint i [[thread_position_in_grid]], uint t [[thread_index_in_threadgroup]]) {
  threadgroup float a[64];
  float v[2];
  v[0] = i;
  a[t] = v[1];  // BUG uninitialized-variable
  y[i] = a[t];
}
kernel void whole_struct(device Pair* y [[buffer(1)]], uint i [[thread_position_in_grid]]) {
  Pair p;
  if (i < 64) y[i] = p;  // BUG uninitialized-variable
}
struct Best { float value; ushort at; };
kernel void member_of_padded_struct(device Best* y [[buffer(1)]], uint i [[thread_position_in_grid]]) {
  Best b;
  b.value = i;
  if (i < 64) y[i] = b;  // BUG uninitialized-variable
}
kernel void whole_padded_struct(device Best* y [[buffer(1)]], uint i [[thread_position_in_grid]]) {
  Best b;
  if (i < 64) y[i] = b;  // BUG uninitialized-variable
}
kernel void one_element_of_a_factor(device float* y [[buffer(1)]], device const float* x [[buffer(0)]], uint i [[thread_position_in_grid]]) {
  simdgroup_float8x8 a = make_filled_simdgroup_matrix<float, 8, 8>(x[0]), b, c = make_filled_simdgroup_matrix<float, 8, 8>(0);
  b.thread_elements()[0] = i;
  simdgroup_multiply_accumulate(c, a, b, c);  // BUG uninitialized-variable
  y[i] = c.thread_elements()[0];
}
kernel void one_element_of_a_sum(device float* y [[buffer(1)]], device const float* x [[buffer(0)]], uint i [[thread_position_in_grid]]) {
  simdgroup_float8x8 a = make_filled_simdgroup_matrix<float, 8, 8>(x[0]), c;
  c.thread_elements()[1] = i;
  simdgroup_multiply_accumulate(c, a, a, c);  // BUG uninitialized-variable
  y[i] = c.thread_elements()[0];
}
kernel void dangling_pointer(device float* y [[buffer(1)]], device const float* x [[buffer(0)]], uint i [[thread_position_in_grid]]) {
  thread float* p;
  {
    float a[4] = {x[0], x[1], x[2], x[3]};
    p = &a[i & 3];
  }
  y[i] = *p;  // BUG uninitialized-variable
}
static thread float* address_of_a_local(float x, int at) {
  float a[3] = {x, 1, 2};
  a[at] += 1;
  return &a[at];
}
kernel void address_of_what_has_returned(device float* y [[buffer(1)]], device const float* x [[buffer(0)]], device const int* zero [[buffer(3)]],
                                         uint i [[thread_position_in_grid]]) {
  thread float* p = address_of_a_local(x[i], zero[i]);
  y[i] = *p;  // BUG uninitialized-variable
}
kernel void through_a_shuffle(device float* y [[buffer(1)]], uint i [[thread_position_in_grid]], uint lane [[thread_index_in_simdgroup]]) {
  float v;
  if (lane != 7) v = i;
  y[i] = simd_shuffle_xor(v, 1);  // BUG uninitialized-variable
}
kernel void component_through_a_shuffle(device float* y [[buffer(1)]], uint i [[thread_position_in_grid]]) {
  float4 v;
  v.x = i, v.y = 1, v.w = 2;
  const float4 other = simd_shuffle_xor(v, 3);
  y[i] = other.x + other.z;  // BUG uninitialized-variable
}
kernel void long_component_through_a_shuffle(device long* y [[buffer(1)]], uint i [[thread_position_in_grid]]) {
  vec<long, 2> v;
  v.x = i;
  const vec<long, 2> other = simd_shuffle_xor(v, 1);
  if (i < 32) y[i] = other.y;  // BUG uninitialized-variable
}
kernel void halves_through_a_shuffle(device float* y [[buffer(1)]], device const int* zero [[buffer(3)]], uint i [[thread_position_in_grid]]) {
  half3 v[2];
  v[0] = half3(i);
  y[i] = 0;
  if (simd_shuffle(v[zero[i] + 1], 2).z > 0) y[i] = 1;  // BUG uninitialized-variable
}
kernel void from_the_first_lane(device int* y [[buffer(1)]], uint i [[thread_position_in_grid]], uint lane [[thread_index_in_simdgroup]]) {
  int n;
  if (lane != 0) n = i;
  y[i] = simd_shuffle(n, 0);  // BUG uninitialized-variable
}
kernel void sum_of_shuffles(device float* y [[buffer(1)]], uint i [[thread_position_in_grid]], uint lane [[thread_index_in_simdgroup]]) {
  float v;
  if (lane != 31) v = 1;
  for (ushort step = 16; step > 0; step /= 2) v += simd_shuffle_xor(v, step);
  y[i] = v;  // BUG uninitialized-variable
}
