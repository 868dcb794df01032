// Scalar types and traits of the Metal Shading Language.
#pragma once
#include <stddef.h>
#include <stdint.h>

#include <type_traits>

#define MSL_INLINE inline __attribute__((always_inline))
// Code that runs for the whole simdgroup and reads other lanes' variables: called, never inlined into checked code.
#ifdef MSL_GPU
#define MSL_RUNTIME __attribute__((always_inline))
#else
#define MSL_RUNTIME __attribute__((noinline, no_sanitize("kernel-address", "alignment", "array-bounds")))
#endif
// Where in the shader a function of this prelude was called.
#define MSL_SITE const char *file = __builtin_FILE(), unsigned line = __builtin_LINE(), unsigned column = __builtin_COLUMN()

typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
typedef _Float16 half;

// Rounds to nearest even, NaNs stay quiet. The compiler calls it by this name; libgcc 12 has none.
extern "C" __attribute__((weak, used, visibility("hidden"), no_sanitize("kernel-address"))) __bf16 __truncsfbf2(float value) {
  const uint32_t bits = __builtin_bit_cast(uint32_t, value);
  const bool nan = (bits & 0x7fffffffu) > 0x7f800000u;
  const uint16_t rounded = nan ? (bits >> 16) | 0x40 : (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  return __builtin_bit_cast(__bf16, rounded);
}

// A class, because clang forbids static_cast between _Float16 and __bf16 while MSL allows it when explicit. Its operators are
// templates that deduce exactly bfloat: mixed with float they leave the field to the built-in operators on float.
struct bfloat {
  __bf16 v;
  bfloat() = default;
  template <class A, std::enable_if_t<std::is_same_v<A, __bf16>, int> = 0>
  constexpr MSL_INLINE bfloat(A a) : v(a) {}
  template <class A, std::enable_if_t<std::is_arithmetic_v<A>, int> = 0>
  constexpr MSL_INLINE bfloat(A a) : v(static_cast<__bf16>(static_cast<float>(a))) {}
  template <class A, std::enable_if_t<std::is_same_v<A, half>, long> = 0>
  explicit constexpr MSL_INLINE bfloat(A a) : v(static_cast<__bf16>(static_cast<float>(a))) {}
  // To float alone: with a way to every number, condition ? bfloat : 0 would be ambiguous.
  template <class F, std::enable_if_t<std::is_same_v<F, float>, int> = 0>
  constexpr MSL_INLINE operator F() const {
    return static_cast<float>(v);
  }
  template <class B, std::enable_if_t<std::is_same_v<B, bool>, long> = 0>
  constexpr MSL_INLINE operator B() const {
    return static_cast<float>(v) != 0;
  }
  template <class I, std::enable_if_t<std::is_integral_v<I> && !std::is_same_v<I, bool>, short> = 0>
  explicit constexpr MSL_INLINE operator I() const {
    return static_cast<I>(static_cast<float>(v));
  }
  explicit constexpr MSL_INLINE operator __bf16() const { return v; }
  explicit constexpr MSL_INLINE operator half() const { return static_cast<half>(static_cast<float>(v)); }
  constexpr MSL_INLINE bfloat operator-() const { return bfloat(static_cast<__bf16>(-v)); }
  constexpr MSL_INLINE bfloat operator+() const { return *this; }
};
#define MSL_BFLOAT_OPERATOR(op)                                                                              \
  template <class A, std::enable_if_t<std::is_same_v<A, bfloat>, int> = 0>                                   \
  constexpr MSL_INLINE bfloat operator op(A a, A b) {                                                        \
    return bfloat(static_cast<float>(a) op static_cast<float>(b));                                           \
  }                                                                                                          \
  template <class A, class I, std::enable_if_t<std::is_same_v<A, bfloat> && std::is_integral_v<I>, int> = 0> \
  constexpr MSL_INLINE bfloat operator op(A a, I b) {                                                        \
    return a op bfloat(b);                                                                                   \
  }                                                                                                          \
  template <class A, class I, std::enable_if_t<std::is_same_v<A, bfloat> && std::is_integral_v<I>, int> = 0> \
  constexpr MSL_INLINE bfloat operator op(I a, A b) {                                                        \
    return bfloat(a) op b;                                                                                   \
  }                                                                                                          \
  template <class A>                                                                                         \
  constexpr MSL_INLINE bfloat& operator op##=(bfloat & a, A b) {                                             \
    return a = bfloat(static_cast<float>(a) op static_cast<float>(b));                                       \
  }
MSL_BFLOAT_OPERATOR(+)
MSL_BFLOAT_OPERATOR(-)
MSL_BFLOAT_OPERATOR(*)
MSL_BFLOAT_OPERATOR(/)
#define MSL_BFLOAT_COMPARISON(op)                                          \
  template <class A, std::enable_if_t<std::is_same_v<A, bfloat>, int> = 0> \
  constexpr MSL_INLINE bool operator op(A a, A b) {                        \
    return static_cast<float>(a) op static_cast<float>(b);                 \
  }
MSL_BFLOAT_COMPARISON(==)
MSL_BFLOAT_COMPARISON(!=)
MSL_BFLOAT_COMPARISON(<)
MSL_BFLOAT_COMPARISON(>)
MSL_BFLOAT_COMPARISON(<=)
MSL_BFLOAT_COMPARISON(>=)

namespace metal {
using ::bfloat;
using ::half;
using ::uchar;
using ::uint;
using ::ulong;
using ::ushort;
using std::bool_constant;
using std::conditional_t;
using std::enable_if_t;
using std::is_integral_v;
using std::is_same_v;
using std::make_unsigned_t;
using std::remove_cv_t;
template <class T>
struct is_floating_point
    : bool_constant<std::is_floating_point_v<T> || is_same_v<remove_cv_t<T>, half> || is_same_v<remove_cv_t<T>, bfloat>> {};
template <class T>
constexpr bool is_floating_point_v = is_floating_point<T>::value;
template <class T>
struct is_arithmetic : bool_constant<std::is_arithmetic_v<T> || is_floating_point_v<T>> {};
template <class T>
constexpr bool is_arithmetic_v = is_arithmetic<T>::value;
template <class T>
constexpr bool is_scalar_v = is_arithmetic_v<T> || std::is_enum_v<T>;

// Whether a * b + c of this type is rounded once. CompileOptions::contraction: 0 off, 1 float, 2 all.
#ifndef MSL_CONTRACTION
#define MSL_CONTRACTION 1
#endif
template <class T>
constexpr bool contracted = MSL_CONTRACTION == 2 ? is_floating_point_v<T> : MSL_CONTRACTION == 1 && is_same_v<T, float>;

template <class To, class From>
constexpr MSL_INLINE To as_type(From from) {
  static_assert(sizeof(To) == sizeof(From), "as_type needs types of equal size");
  return __builtin_bit_cast(To, from);
}
}  // namespace metal
using metal::as_type;

#define NAN __builtin_nanf("")
