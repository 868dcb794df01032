// Scalar types, traits, limits and constants of the Metal Shading Language.
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
using std::is_signed_v;
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

template <class T>
struct numeric_limits;
#define MSL_INTEGER_LIMITS(T, lo, hi)                                                      \
  template <>                                                                              \
  struct numeric_limits<T> {                                                               \
    static constexpr bool is_integer = true;                                               \
    static constexpr T min() { return lo; }                                                \
    static constexpr T max() { return hi; }                                                \
    static constexpr T lowest() { return lo; }                                             \
    static constexpr int digits = std::is_signed_v<T> ? sizeof(T) * 8 - 1 : sizeof(T) * 8; \
  };
MSL_INTEGER_LIMITS(bool, false, true)
MSL_INTEGER_LIMITS(char, -128, 127)
MSL_INTEGER_LIMITS(signed char, -128, 127)
MSL_INTEGER_LIMITS(uchar, 0, 255)
MSL_INTEGER_LIMITS(short, -32768, 32767)
MSL_INTEGER_LIMITS(ushort, 0, 65535)
MSL_INTEGER_LIMITS(int, -2147483647 - 1, 2147483647)
MSL_INTEGER_LIMITS(uint, 0, ~0u)
MSL_INTEGER_LIMITS(long, -0x7fffffffffffffffl - 1, 0x7fffffffffffffffl)
MSL_INTEGER_LIMITS(ulong, 0, ~0ul)
#define MSL_FLOAT_LIMITS(T, hi, lo, eps, bits)                                    \
  template <>                                                                     \
  struct numeric_limits<T> {                                                      \
    static constexpr bool is_integer = false;                                     \
    static constexpr int digits = bits;                                           \
    static constexpr T max() { return static_cast<T>(hi); }                       \
    static constexpr T lowest() { return static_cast<T>(-hi); }                   \
    static constexpr T min() { return static_cast<T>(lo); }                       \
    static constexpr T epsilon() { return static_cast<T>(eps); }                  \
    static constexpr T infinity() { return static_cast<T>(__builtin_inff()); }    \
    static constexpr T quiet_NaN() { return static_cast<T>(__builtin_nanf("")); } \
  };
MSL_FLOAT_LIMITS(float, 0x1.fffffep127f, 0x1p-126f, 0x1p-23f, 24)
MSL_FLOAT_LIMITS(half, 65504.f, 0x1p-14f, 0x1p-10f, 11)
MSL_FLOAT_LIMITS(bfloat, 0x1.fep127f, 0x1p-126f, 0x1p-7f, 8)

template <class To, class From>
constexpr MSL_INLINE To as_type(From from) {
  static_assert(sizeof(To) == sizeof(From), "as_type needs types of equal size");
  return __builtin_bit_cast(To, from);
}
}  // namespace metal
using metal::as_type;

#define FLT_MAX 0x1.fffffep127f
#define FLT_MIN 0x1p-126f
#define INFINITY __builtin_inff()
#define NAN __builtin_nanf("")
#define INT_MAX 2147483647
#define UINT_MAX 4294967295u
