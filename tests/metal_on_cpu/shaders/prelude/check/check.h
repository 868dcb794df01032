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

template <class T, int N>
using vec = T __attribute__((ext_vector_type(N)));
template <class T, size_t N>
struct array {
  T v[N];
  T& operator[](size_t);
  static constexpr size_t size() { return N; }
};
#define MSL_NAMES(T)              \
  namespace metal {               \
  typedef vec<T, 2> T##2;         \
  typedef vec<T, 3> T##3;         \
  typedef vec<T, 4> T##4;         \
  }                               \
  using metal::T##2, metal::T##3; \
  using metal::T##4;
}  // namespace metal
MSL_NAMES(char)
MSL_NAMES(uchar)
MSL_NAMES(short)
MSL_NAMES(ushort)
MSL_NAMES(int)
MSL_NAMES(uint)
MSL_NAMES(half)
MSL_NAMES(float)
MSL_NAMES(bfloat)

namespace metal {
template <class To, class From>
constexpr To as_type(From from) {
  return __builtin_bit_cast(To, from);
}

enum class mem_flags : uint { mem_none, mem_device, mem_threadgroup };
constexpr mem_flags operator|(mem_flags a, mem_flags) { return a; }
void threadgroup_barrier(mem_flags);
void simdgroup_barrier(mem_flags);

#define MSL_FUNCTION(name)       \
  template <class T, class... A> \
  constexpr T name(T x, A...) {  \
    return x;                    \
  }
#define MSL_MATH     \
  MSL_FUNCTION(fabs) \
  MSL_FUNCTION(exp)  \
  MSL_FUNCTION(log2) \
  MSL_FUNCTION(sqrt) \
  MSL_FUNCTION(rint) \
  MSL_FUNCTION(tanh) \
  MSL_FUNCTION(fmax) \
  MSL_FUNCTION(fmin)
MSL_MATH
namespace precise {
MSL_MATH
}
namespace fast {
MSL_MATH
}
MSL_FUNCTION(fma)
MSL_FUNCTION(min)
MSL_FUNCTION(max)
MSL_FUNCTION(clamp)
MSL_FUNCTION(clz)
MSL_FUNCTION(ctz)
MSL_FUNCTION(simd_sum)
MSL_FUNCTION(simd_prefix_exclusive_sum)
MSL_FUNCTION(simd_shuffle)
MSL_FUNCTION(simd_shuffle_xor)

template <class T, int C, int R = C>
struct simdgroup_matrix {
  vec<T, 64>& thread_elements();
};
typedef simdgroup_matrix<float, 8> simdgroup_float8x8;
template <class T, int C, int R = C>
simdgroup_matrix<T, C, R> make_filled_simdgroup_matrix(T);
template <class A, class B, class C, class D>
void simdgroup_multiply_accumulate(A&, const B&, const C&, const D&);

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
};
template <class T>
using remove_addrspace_t = T;

}  // namespace metal

namespace mpp {
namespace tensor_ops {
struct matmul2d_descriptor {
  enum class mode { multiply, multiply_accumulate };
  constexpr matmul2d_descriptor(int, int, int, bool = false, bool = false, bool = false, mode = mode::multiply) {}
  constexpr operator int() const { return 0; }
};
template <int DESCRIPTOR, class Scope>
struct matmul2d {
  template <class A, class B, class T>
  metal::cooperative_tensor<A> get_left_input_cooperative_tensor() const;
  template <class A, class B, class T>
  metal::cooperative_tensor<B> get_right_input_cooperative_tensor() const;
  template <class A, class B, class T>
  metal::cooperative_tensor<T> get_destination_cooperative_tensor() const;
  template <class A, class B, class C>
  void run(A&, B&, C&) const;
};
}  // namespace tensor_ops
}  // namespace mpp

using metal::as_type;
using metal::simdgroup_float8x8;
using metal::vec;

#define NAN __builtin_nanf("")
