// Correct kernels with tensors: products through device and threadgroup memory, for every thread of a threadgroup or of a simdgroup.
#include <metal_stdlib>
#include <metal_tensor>
#include <MetalPerformancePrimitives/MetalPerformancePrimitives.h>
using namespace metal;
using namespace mpp::tensor_ops;

struct Shape { int m, n, k; };

// C = A B^T, tiles of 16 x 32 by steps of 16 over K, straight from device memory.
template <class T, int SIMDGROUPS>
kernel void product(device T* a [[buffer(0)]], device T* b [[buffer(1)]], device float* c [[buffer(2)]], constant Shape& s [[buffer(3)]],
                    uint2 group [[threadgroup_position_in_grid]]) {
  typedef tensor<device T, dextents<int, 2>, tensor_inline> Matrix;
  Matrix all_a(a, dextents<int, 2>(s.k, s.m)), all_b(b, dextents<int, 2>(s.k, s.n));
  constexpr matmul2d_descriptor kTile(16, 32, 16, false, true, false, matmul2d_descriptor::mode::multiply_accumulate);
  matmul2d<kTile, execution_simdgroups<SIMDGROUPS>> op;
  auto sum = op.template get_destination_cooperative_tensor<Matrix, Matrix, float>();
  for (ushort i = 0; i < sum.get_capacity(); i++)
    if (sum.is_valid_element(i)) sum[i] = 0;
  const int m = group.y * 16, n = group.x * 32;
  for (int k = 0; k < s.k; k += 16) {
    auto tile_a = all_a.template slice<16, 16>(k, m);
    auto tile_b = all_b.template slice<16, 32>(k, n);
    op.run(tile_a, tile_b, sum);
  }
  for (ushort i = 0; i < sum.get_capacity(); i++) {
    if (!sum.is_valid_element(i)) continue;
    const auto at = sum.get_multidimensional_index(i);
    c[(m + at[1]) * s.n + n + at[0]] = sum[i];
  }
}
#define PRODUCT(name, ...) template [[host_name(name)]] kernel decltype(product<__VA_ARGS__>) product<__VA_ARGS__>;
PRODUCT("half_1", half, 1)
PRODUCT("bfloat_2", bfloat, 2)
PRODUCT("float_3", float, 3)

// Each simdgroup has a tile of 8 x 32 of its own, by operands that the threadgroup stages.
kernel void staged(device half* a [[buffer(0)]], device half* b [[buffer(1)]], device float* c [[buffer(2)]], constant Shape& s [[buffer(3)]],
                   uint t [[thread_index_in_threadgroup]], uint sg [[simdgroup_index_in_threadgroup]]) {
  threadgroup half stage_a[16 * 32], stage_b[32 * 32];
  tensor<threadgroup half, dextents<int, 2>, tensor_inline> whole_a(stage_a, dextents<int, 2>(32, 16)), whole_b(stage_b, dextents<int, 2>(32, 32));
  matmul2d<matmul2d_descriptor(8, 32, 16, false, true), execution_simdgroup> op;
  auto first = whole_a.slice<16, 8>(0, 8 * sg);
  auto part = op.get_destination_cooperative_tensor<decltype(first), decltype(whole_b), float>(), sum = part;
  for (ushort i = 0; i < sum.get_capacity(); i++)
    if (sum.is_valid_element(i)) sum[i] = 0;
  for (int k0 = 0; k0 < s.k; k0 += 32) {
    for (uint e = t; e < 32 * 32; e += 64) {
      const int row = e / 32, k = k0 + e % 32;
      if (row < 16) stage_a[e] = row < s.m && k < s.k ? a[row * s.k + k] : half(0);
      stage_b[e] = row < s.n && k < s.k ? b[row * s.k + k] : half(0);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (int k = 0; k < 32; k += 16) {
      auto tile_a = whole_a.slice<16, 8>(k, 8 * sg);
      auto tile_b = whole_b.slice<16, 32>(k, 0);
      op.run(tile_a, tile_b, part);
      for (ushort i = 0; i < sum.get_capacity(); i++)
        if (sum.is_valid_element(i)) sum[i] += part[i];
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
  for (ushort i = 0; i < sum.get_capacity(); i++) {
    if (!sum.is_valid_element(i)) continue;
    const auto at = sum.get_multidimensional_index(i);
    if (at[0] < s.n && 8 * int(sg) + at[1] < s.m) c[(8 * sg + at[1]) * s.n + at[0]] = sum[i];
  }
}

// Who holds which element: 1 + slot, and of each thread its capacity.
kernel void arrangement(device int* holder [[buffer(0)]], device int* capacity [[buffer(1)]], uint t [[thread_index_in_threadgroup]]) {
  matmul2d<matmul2d_descriptor(16, 32, 16, false, true), execution_simdgroups<2>> op;
  typedef tensor<device half, dextents<int, 2>, tensor_inline> Matrix;
  auto c = op.get_destination_cooperative_tensor<Matrix, Matrix, float>();
  capacity[t] = c.get_capacity();
  for (ushort i = 0; i < c.get_capacity(); i++)
    if (c.is_valid_element(i)) holder[c.get_multidimensional_index(i)[1] * 32 + c.get_multidimensional_index(i)[0]] = 1 + 64 * i + t;
}

// C = A B^T of 16 x 32 x 16 with all operands in registers, wherever their elements are; and of each lane and slot of the three the row
// and column, or -1.
kernel void fragments(device half* a [[buffer(0)]], device half* b [[buffer(1)]], device float* c [[buffer(2)]], device int* places [[buffer(3)]],
                      ushort lane [[thread_index_in_simdgroup]]) {
  matmul2d<matmul2d_descriptor(16, 32, 16, false, true), execution_simdgroup> op;
  auto left = op.get_left_input_cooperative_tensor<half, half, float>();
  auto right = op.get_right_input_cooperative_tensor<half, half, float>();
  auto sum = op.get_destination_cooperative_tensor<remove_addrspace_t<decltype(left)>, remove_addrspace_t<decltype(right)>, float>();
  for (ushort i = 0; i < left.get_capacity(); i++) {
    if (!left.is_valid_element(i)) continue;
    const auto at = left.get_multidimensional_index(i);
    left[i] = a[at[1] * 16 + at[0]];
    if (i < 8) places[8 * lane + i] = at[1] * 16 + at[0];
  }
  for (ushort i = 0; i < right.get_capacity(); i++) {
    if (!right.is_valid_element(i)) continue;
    const auto at = right.get_multidimensional_index(i);
    right[i] = b[at[1] * 16 + at[0]];
    if (i < 16) places[256 + 16 * lane + i] = at[1] * 16 + at[0];
  }
  op.run(left, right, sum);
  for (ushort i = 0; i < sum.get_capacity(); i++) {
    if (!sum.is_valid_element(i)) continue;
    const auto at = sum.get_multidimensional_index(i);
    c[at[1] * 32 + at[0]] = sum[i];
    if (i < 16) places[768 + 16 * lane + i] = at[1] * 32 + at[0];
  }
}
