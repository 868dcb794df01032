// What goes wrong with operations on tensors. BUG names the findings expected on its line.
#include <metal_stdlib>
#include <metal_tensor>
#include <MetalPerformancePrimitives/MetalPerformancePrimitives.h>
using namespace metal;
using namespace mpp::tensor_ops;

typedef tensor<threadgroup half, dextents<int, 2>, tensor_inline> Tile;
typedef tensor<device float, dextents<int, 2>, tensor_inline> Matrix;
typedef matmul2d<matmul2d_descriptor(16, 16, 16, false, true), execution_simdgroups<2>> Product;
typedef matmul2d<matmul2d_descriptor(16, 16, 16, false, true), execution_simdgroup> ProductOfOne;

kernel void multiply_before_barrier(device float* y [[buffer(1)]], uint i [[thread_position_in_grid]], uint t [[thread_index_in_threadgroup]]) {
  threadgroup half tile[256];
  for (uint e = t; e < 256; e += 64) tile[e] = half(e);
  Tile a(tile, dextents<int, 2>(16, 16));
  Product op;
  auto c = op.get_destination_cooperative_tensor<Tile, Tile, float>();
  op.run(a, a, c);  // BUG threadgroup-race
  y[i] = c.is_valid_element(0) ? c[0] : 0;
}
kernel void simdgroup_multiplies_before_barrier(device float* y [[buffer(1)]], uint i [[thread_position_in_grid]],
                                                uint lane [[thread_index_in_simdgroup]], uint sg [[simdgroup_index_in_threadgroup]]) {
  threadgroup half tiles[2][256];
  for (uint e = 0; e < 16 && lane < 16; e++) tiles[sg][16 * lane + e] = half(e);
  Tile a(tiles[sg], dextents<int, 2>(16, 16));
  ProductOfOne op;
  auto c = op.get_destination_cooperative_tensor<Tile, Tile, float>();
  op.run(a, a, c);  // BUG threadgroup-race
  y[i] = c.is_valid_element(0) ? c[0] : 0;
}
kernel void overwrite_after_multiply(device float* y [[buffer(1)]], uint i [[thread_position_in_grid]], uint t [[thread_index_in_threadgroup]]) {
  threadgroup half tile[256];
  for (uint e = t; e < 256; e += 64) tile[e] = half(e);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  Tile a(tile, dextents<int, 2>(16, 16));
  Product op;
  auto c = op.get_destination_cooperative_tensor<Tile, Tile, float>();
  op.run(a, a, c);                                        // BUG threadgroup-race
  for (uint e = t; e < 256; e += 64) tile[e] = half(0);  // BUG threadgroup-race
  y[i] = c.is_valid_element(0) ? c[0] : 0;
}
kernel void tile_not_filled(device float* y [[buffer(1)]], uint i [[thread_position_in_grid]], uint t [[thread_index_in_threadgroup]]) {
  threadgroup half tile[256];
  for (uint e = t; e < 240; e += 64) tile[e] = half(e);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  Tile a(tile, dextents<int, 2>(16, 16));
  Product op;
  auto c = op.get_destination_cooperative_tensor<Tile, Tile, float>();
  op.run(a, a, c);  // BUG uninitialized-threadgroup-read
  y[i] = c.is_valid_element(0) ? c[0] : 0;
}
kernel void slice_past_the_end(device float* x [[buffer(2)]], device float* y [[buffer(1)]], uint i [[thread_position_in_grid]]) {
  Matrix all(x, dextents<int, 2>(16, 8));
  auto a = all.slice<16, 4>(0, 5);  // BUG out-of-bounds-slice
  y[i] = sizeof(a);
}
kernel void slice_from_behind(device float* x [[buffer(2)]], device float* y [[buffer(1)]], uint i [[thread_position_in_grid]]) {
  Matrix all(x, dextents<int, 2>(16, 8));
  auto a = all.slice<16, 8>(-1, 0);  // BUG out-of-bounds-slice
  y[i] = sizeof(a);
}
kernel void extents_past_the_buffer(device float* x [[buffer(2)]], device float* y [[buffer(1)]], uint i [[thread_position_in_grid]]) {
  Matrix a(x, dextents<int, 2>(16, 9));
  Product op;
  auto c = op.get_destination_cooperative_tensor<Matrix, Matrix, float>();
  op.run(a, a, c);  // BUG out-of-bounds-read
  y[i] = c.is_valid_element(0) ? c[0] : 0;
}
kernel void one_simdgroup_of_two(device float* x [[buffer(2)]], device float* y [[buffer(1)]], uint i [[thread_position_in_grid]],
                                 uint sg [[simdgroup_index_in_threadgroup]]) {
  Matrix a(x, dextents<int, 2>(16, 8));
  Product op;
  auto c = op.get_destination_cooperative_tensor<Matrix, Matrix, float>();
  if (sg == 0) op.run(a, a, c);  // BUG divergent-tensor-operation
  y[i] = c.is_valid_element(0) ? c[0] : 0;
}
kernel void lanes_of_a_simdgroup(device float* x [[buffer(2)]], device float* y [[buffer(1)]], uint i [[thread_position_in_grid]],
                                 uint lane [[thread_index_in_simdgroup]]) {
  Matrix a(x, dextents<int, 2>(16, 8));
  ProductOfOne op;
  auto c = op.get_destination_cooperative_tensor<Matrix, Matrix, float>();
  if (lane != 3) op.run(a, a, c);  // BUG divergent-tensor-operation
  y[i] = c.is_valid_element(0) ? c[0] : 0;
}
kernel void scope_of_more_threads(device float* x [[buffer(2)]], device float* y [[buffer(1)]], uint i [[thread_position_in_grid]]) {
  Matrix a(x, dextents<int, 2>(16, 8));
  matmul2d<matmul2d_descriptor(16, 16, 16, false, true), execution_simdgroups<4>> op;
  auto c = op.get_destination_cooperative_tensor<Matrix, Matrix, float>();
  op.run(a, a, c);  // BUG divergent-tensor-operation
  y[i] = c.is_valid_element(0) ? c[0] : 0;
}
kernel void operands_of_each_simdgroup(device float* x [[buffer(2)]], device float* y [[buffer(1)]], uint i [[thread_position_in_grid]],
                                       uint sg [[simdgroup_index_in_threadgroup]]) {
  Matrix all(x, dextents<int, 2>(16, 8));
  auto a = all.slice<16, 4>(0, sg);
  Product op;
  auto c = op.get_destination_cooperative_tensor<Matrix, Matrix, float>();
  op.run(a, all, c);  // BUG not-uniform
  y[i] = c.is_valid_element(0) ? c[0] : 0;
}
kernel void slots_without_an_element(device float* x [[buffer(2)]], device float* y [[buffer(1)]], uint i [[thread_position_in_grid]]) {
  Matrix a(x, dextents<int, 2>(16, 8));
  Product op;
  auto c = op.get_destination_cooperative_tensor<Matrix, Matrix, float>();
  op.run(a, a, c);
  float sum = 0;
  for (ushort e = 0; e < c.get_capacity(); e++) sum += c[e];  // BUG invalid-tensor-element
  y[i] = sum;
}
kernel void index_of_no_element(device float* y [[buffer(1)]], uint i [[thread_position_in_grid]]) {
  Product op;
  auto c = op.get_destination_cooperative_tensor<Matrix, Matrix, float>();
  for (ushort e = 0; e < c.get_capacity(); e++) y[i] = c.get_multidimensional_index(e)[0];  // BUG invalid-tensor-element
}
