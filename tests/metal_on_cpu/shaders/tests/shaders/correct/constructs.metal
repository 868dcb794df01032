// Constructs of the language that kernels of matrix products are written with.
#include <metal_stdlib>
#include <metal_simdgroup_matrix>
#include <metal_logging>
#include <metal_tensor>
using namespace metal;
#pragma METAL fp contract(off)
#pragma METAL fp math_mode(safe)
#if __METAL_VERSION__ >= 310
typedef bfloat bf;
#endif
enum class Format : uchar { mxfp4 = 1, u4 = 2 };
enum Plain { kOne = 1 };
constant bool c_bool [[function_constant(0)]];
constant char c_char [[function_constant(1)]];
constant uchar c_uchar [[function_constant(2)]];
constant short c_short [[function_constant(3)]];
constant ushort c_ushort [[function_constant(4)]];
constant int c_int [[function_constant(5)]];
constant uint c_uint [[function_constant(6)]];
constant half c_half [[function_constant(7)]];
constant float c_float [[function_constant(8)]];
static constant constexpr float kTable[4] = {0, 1, 2, 3};
static constexpr constant ushort kShort = 4;
constant float kOneFloat = 1;
constexpr constant int kPlain = 3;
constant constexpr half kLut[2] = {1.0h, 2.0h};
struct Args { uint m, n, k; packed_float3 scale; Format format; float4x4 t; };
struct Table { device const uint4* codes; device const half* scales; ulong offset; };
struct Tables { Table t[4]; };
template <typename T, constant T& V> struct Holder { static T get() { return V; } };
template <int N> static inline float sum_of(thread const float (&a)[N]) { float s = 0; for (int i = 0; i < N; i++) s += a[i]; return s; }
template <typename T> static inline T take(constant T& x) { return x; }
static inline float with_array(thread array<float, 4>& a) { return a[0] + a.size(); }
template <typename T, ushort N> struct alignas(16) Block { T v[N]; };
constexpr os_log log_it("sub", "cat");
[[kernel, max_total_threads_per_threadgroup(64)]] void constructs(
    device const uint4* codes [[buffer(0)]], device float* y [[buffer(1)]], constant Args& a [[buffer(2)]],
    constant Tables& tables [[buffer(3)]], device atomic_float* total [[buffer(4)]],
    threadgroup float* dynamic [[threadgroup(0)]],
    uint i [[thread_position_in_grid]], ushort lane [[thread_index_in_simdgroup]],
    ushort width [[threads_per_simdgroup]], ushort3 tg3 [[threads_per_threadgroup]]) {
  float v[3] = {1, 2, 3};
  array<float, 4> arr = {{1, 2, 3, 4}};
  packed_uchar4 pu = packed_uchar4(1, 2, 3, 4);
  const uint bits = as_type<uint>(pu);
  const packed_half4 ph = as_type<packed_half4>(uint2(bits, 0));
  const half2 h2 = as_type<half2>(bits);
  simdgroup_matrix<bfloat, 8, 8> mb = simdgroup_matrix<bfloat, 8, 8>(bfloat(1.0f));
  simdgroup_float8x8 acc(0);
  simdgroup_multiply_accumulate(acc, mb, mb, acc);
  dynamic[lane] = i;
  threadgroup_barrier(mem_flags::mem_device | mem_flags::mem_threadgroup);
  const float limit = metal::numeric_limits<float>::max() + float(numeric_limits<half>::infinity());
  const int p = simd_prefix_inclusive_sum(int(lane)) + simd_prefix_exclusive_product(1);
  atomic_fetch_add_explicit(total, 1.0f, memory_order_relaxed);
  Block<half, 8> blk;
  for (ushort q = 0; q < 8; q++) blk.v[q] = half(q);
  switch (a.format) { case Format::mxfp4: y[i] = 1; break; default: y[i] = 2; }
  if (a.format == Format::u4 && kOne) y[i] += Holder<const float, kOneFloat>::get();
  os_log_default.log("hello %d", i);
  log_it.log_debug("x");
  float3 sc = a.scale;
  sc *= 2;
  y[i] += sum_of(v) + with_array(arr) + width + tg3.x + h2.x * 0 + ph.x * 0 + c_ushort + float(c_half) + c_float + kLut[1] + kTable[lane & 3] + p + take(a.m);
  y[i] += acc.thread_elements()[0] + dynamic[lane ^ 1] + (limit > 0 ? 1 : 0) + sc.x + blk.v[3] + (c_bool ? 1 : 0) + c_char + c_uchar + c_short + c_int + c_uint + a.t[0][1] + kShort + kPlain;
  y[i] += codes[i & 3].x + float(tables.t[0].offset);
}
