// For the syntax-only run of clang that looks for what MSL rejects and host C++ does not: address spaces that do not fit and
// C++17 in a C++14 shader. Address spaces are clang's own here. The Metal library is only sketched: types of results and the
// spaces of pointers matter. clang says much about classes in address spaces that MSL does not mind; the driver takes only
// those messages that MSL has too (src/compiler/messages.cc).
#pragma once
#pragma clang system_header
#include <stddef.h>
#include <stdint.h>

#include <type_traits>

#define device __attribute__((address_space(1)))
#define constant const __attribute__((address_space(2)))
#define threadgroup __attribute__((address_space(3)))
#define thread
#define is_function_constant_defined(x) true

typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
typedef _Float16 half;
typedef __bf16 bfloat;

namespace metal {
using ::bfloat;
using ::half;
using ::uchar;
using ::uint;
using ::ulong;
using ::ushort;
using namespace std;
template <class A, class B>
constexpr bool is_same_v = std::is_same<A, B>::value;
template <class A>
constexpr bool is_integral_v = std::is_integral<A>::value;
template <class A>
constexpr bool is_floating_point_v = std::is_floating_point<A>::value || is_same_v<A, half> || is_same_v<A, bfloat>;
template <class A>
constexpr bool is_signed_v = std::is_signed<A>::value;
template <class A>
constexpr bool is_unsigned_v = std::is_unsigned<A>::value;

template <class T, int N>
using vec = T __attribute__((ext_vector_type(N)));
template <class T, int N>
struct packed_vec {
  T x, y, z, w;
  packed_vec() = default;
  template <class... A>
  packed_vec(A...);
  T operator[](int) const;
  operator vec<T, N>() const;
};
template <class T, int C, int R>
struct matrix {
  template <class... A>
  matrix(A...);
  vec<T, R> columns[C];
  vec<T, R>& operator[](int);
};
template <class T, size_t N>
struct array {
  T v[N];
  T& operator[](size_t);
  static constexpr size_t size() { return N; }
};
#define MSL_NAMES(T)                      \
  typedef vec<T, 2> T##2;                 \
  typedef vec<T, 3> T##3;                 \
  typedef vec<T, 4> T##4;                 \
  typedef packed_vec<T, 2> packed_##T##2; \
  typedef packed_vec<T, 3> packed_##T##3; \
  typedef packed_vec<T, 4> packed_##T##4;
MSL_NAMES(bool)
MSL_NAMES(char)
MSL_NAMES(uchar)
MSL_NAMES(short)
MSL_NAMES(ushort)
MSL_NAMES(int)
MSL_NAMES(uint)
MSL_NAMES(long)
MSL_NAMES(ulong)
MSL_NAMES(half)
MSL_NAMES(float)
MSL_NAMES(bfloat)
#define MSL_MATRICES(T)           \
  typedef matrix<T, 2, 2> T##2x2; \
  typedef matrix<T, 2, 4> T##2x4; \
  typedef matrix<T, 3, 3> T##3x3; \
  typedef matrix<T, 4, 2> T##4x2; \
  typedef matrix<T, 4, 4> T##4x4;
MSL_MATRICES(float)
MSL_MATRICES(half)

template <class To, class From>
constexpr To as_type(From from) {
  return __builtin_bit_cast(To, from);
}
template <class T>
struct numeric_limits {
  static constexpr T min() { return T(); }
  static constexpr T max() { return T(); }
  static constexpr T lowest() { return T(); }
  static constexpr T infinity() { return T(); }
  static constexpr T quiet_NaN() { return T(); }
  static constexpr T epsilon() { return T(); }
};

enum class mem_flags : uint { mem_none, mem_device, mem_threadgroup, mem_texture };
constexpr mem_flags operator|(mem_flags a, mem_flags) { return a; }
void threadgroup_barrier(mem_flags);
void simdgroup_barrier(mem_flags);

#define MSL_FUNCTION(name)       \
  template <class T, class... A> \
  constexpr T name(T x, A...) {  \
    return x;                    \
  }
#define MSL_FUNCTIONS_8(a, b, c, d, e, f, g, h) \
  MSL_FUNCTION(a)                               \
  MSL_FUNCTION(b) MSL_FUNCTION(c) MSL_FUNCTION(d) MSL_FUNCTION(e) MSL_FUNCTION(f) MSL_FUNCTION(g) MSL_FUNCTION(h)
#define MSL_MATH                                                              \
  MSL_FUNCTIONS_8(fabs, exp, exp2, exp10, log, log2, log10, sqrt)             \
  MSL_FUNCTIONS_8(rsqrt, sin, cos, tan, sinh, cosh, tanh, asin)               \
  MSL_FUNCTIONS_8(acos, atan, asinh, acosh, atanh, floor, ceil, trunc)        \
  MSL_FUNCTIONS_8(round, rint, fract, sinpi, cospi, tanpi, sign, saturate)    \
  MSL_FUNCTIONS_8(pow, powr, fmod, atan2, fmax, fmin, fdim, divide)           \
  MSL_FUNCTIONS_8(copysign, step, fma, ldexp, nextafter, frexp, modf, sincos) \
  MSL_FUNCTIONS_8(min, max, clamp, abs, min3, max3, median3, mix)
MSL_MATH
namespace fast {
MSL_MATH
}
namespace precise {
MSL_MATH
}
MSL_FUNCTIONS_8(smoothstep, normalize, select, popcount, clz, ctz, reverse_bits, rotate)
MSL_FUNCTIONS_8(extract_bits, insert_bits, mulhi, mad24, mul24, absdiff, addsat, subsat)
MSL_FUNCTIONS_8(simd_sum, simd_product, simd_max, simd_min, simd_and, simd_or, simd_xor, simd_broadcast)
MSL_FUNCTIONS_8(simd_shuffle, simd_shuffle_xor, simd_shuffle_down, simd_shuffle_up, simd_shuffle_rotate_down,
                simd_shuffle_rotate_up, simd_shuffle_and_fill_down, simd_shuffle_and_fill_up)
MSL_FUNCTIONS_8(simd_prefix_inclusive_sum, simd_prefix_exclusive_sum, simd_prefix_inclusive_product,
                simd_prefix_exclusive_product, simd_broadcast_first, quad_sum, quad_max, quad_min)
MSL_FUNCTIONS_8(quad_shuffle, quad_shuffle_xor, quad_shuffle_down, quad_shuffle_up, quad_broadcast, quad_product, hadd,
                make_uniform)
float dot(float4, float4);
bool simd_all(bool);
bool simd_any(bool);
bool simd_is_first();
struct simd_vote {
  typedef ulong vote_t;
  explicit operator ulong() const;
  bool all() const;
  bool any() const;
};
simd_vote simd_ballot(bool);
simd_vote simd_active_threads_mask();

template <class T, int C, int R = C>
struct simdgroup_matrix {
  simdgroup_matrix();
  explicit simdgroup_matrix(T);
  vec<T, 2>& thread_elements();
};
typedef simdgroup_matrix<float, 8> simdgroup_float8x8;
typedef simdgroup_matrix<half, 8> simdgroup_half8x8;
typedef simdgroup_matrix<bfloat, 8> simdgroup_bfloat8x8;
template <class T, int C, int R = C>
simdgroup_matrix<T, C, R> make_filled_simdgroup_matrix(T);
#define MSL_IN(space)                                                                                \
  template <class T, class P>                                                                        \
  void simdgroup_load(simdgroup_matrix<T, 8>&, const space P*, ulong = 8, ulong2 = 0, bool = false); \
  template <class T, class P>                                                                        \
  void simdgroup_store(simdgroup_matrix<T, 8>, space P*, ulong = 8, ulong2 = 0, bool = false);
MSL_IN(device)
MSL_IN(threadgroup)
template <class A, class B, class C, class D>
void simdgroup_multiply_accumulate(A&, const B&, const C&, const D&);
template <class A, class B, class C>
void simdgroup_multiply(A&, const B&, const C&);

constexpr size_t dynamic_extent = ~size_t(0);
template <class I, size_t R>
struct dextents {
  template <class... A>
  dextents(A...);
};
struct tensor_inline {};
template <class T, class E, class Tag = tensor_inline>
struct tensor {
  tensor(T*, E);
  template <class S>
  tensor(T*, E, S);
  int get_extent(size_t) const;
  template <size_t... SIZES, class... A>
  tensor slice(A...) const;
};
template <size_t>
struct execution_simdgroups {};
typedef execution_simdgroups<1> execution_simdgroup;
template <class T>
struct cooperative_tensor {
  ushort get_capacity() const;
  bool is_valid_element(ushort) const;
  T& operator[](ushort);
  array<int, 2> get_multidimensional_index(ushort) const;
  template <class A>
  void load(const A&);
  template <class A>
  void store(A&) const;
};

enum memory_order { memory_order_relaxed };
template <class T>
struct atomic {
  T v;
};
typedef atomic<int> atomic_int;
typedef atomic<uint> atomic_uint;
typedef atomic<float> atomic_float;
typedef atomic<bool> atomic_bool;
typedef atomic<long> atomic_long;
typedef atomic<ulong> atomic_ulong;
#define MSL_ATOMIC_IN(space, name) \
  template <class T, class... A>   \
  T atomic_##name##_explicit(volatile space atomic<T>*, A...);
#define MSL_ATOMIC(name) MSL_ATOMIC_IN(device, name) MSL_ATOMIC_IN(threadgroup, name)
MSL_ATOMIC(fetch_add)
MSL_ATOMIC(fetch_sub)
MSL_ATOMIC(fetch_max)
MSL_ATOMIC(fetch_min)
MSL_ATOMIC(fetch_or)
MSL_ATOMIC(fetch_and)
MSL_ATOMIC(fetch_xor)
MSL_ATOMIC(exchange)
MSL_ATOMIC(store)
MSL_ATOMIC(compare_exchange_weak)
template <class T>
T atomic_load_explicit(const volatile device atomic<T>*, memory_order);
template <class T>
T atomic_load_explicit(const volatile threadgroup atomic<T>*, memory_order);
}  // namespace metal

namespace mpp {
namespace tensor_ops {
struct matmul2d_descriptor {
  enum class mode { multiply, multiply_accumulate };
  constexpr matmul2d_descriptor(int, int, int = 0, bool = false, bool = false, bool = false, mode = mode::multiply) {}
  constexpr operator int() const { return 0; }
};
template <int DESCRIPTOR, class Scope>
struct matmul2d {
  template <class A, class B, class T>
  metal::cooperative_tensor<T> get_destination_cooperative_tensor() const;
  template <class A, class B, class C>
  void run(A&, B&, C&) const;
};
}  // namespace tensor_ops
}  // namespace mpp

using metal::as_type;
using metal::memory_order_relaxed;
using metal::vec;
#define MSL_GLOBAL(T)         \
  using metal::T##2;          \
  using metal::T##3;          \
  using metal::T##4;          \
  using metal::packed_##T##2; \
  using metal::packed_##T##3; \
  using metal::packed_##T##4;
MSL_GLOBAL(bool)
MSL_GLOBAL(char)
MSL_GLOBAL(uchar)
MSL_GLOBAL(short)
MSL_GLOBAL(ushort)
MSL_GLOBAL(int)
MSL_GLOBAL(uint)
MSL_GLOBAL(long)
MSL_GLOBAL(ulong)
MSL_GLOBAL(half)
MSL_GLOBAL(float)
MSL_GLOBAL(bfloat)
using metal::float4x4;
using metal::half4x4;
using metal::simdgroup_bfloat8x8;
using metal::simdgroup_float8x8;
using metal::simdgroup_half8x8;

#define INFINITY __builtin_inff()
#define NAN __builtin_nanf("")
#define FLT_MAX 0x1.fffffep127f
#define FLT_MIN 0x1p-126f
#define MAXFLOAT FLT_MAX
#define HALF_MAX 65504.f
#define M_PI_F 3.14159274f
#define M_LOG2E_F 1.44269502f
#define INT_MAX 2147483647
#define INT_MIN (-2147483647 - 1)
#define UINT_MAX 4294967295u
