// Mathematical and integer functions. half and bfloat are computed in float and rounded once; fma rounds once too.
#pragma once
#include "vector.h"

namespace metal {

// a * b + c rounded once to 11 or 8 bits: the product of two such numbers is exact in double; the sum is rounded to odd there,
// so that the second rounding sees on which side of a tie the exact value lies.
MSL_INLINE double fma_to_odd(double a, double b, double c) {
#pragma clang fp contract(off)
  const double product = a * b, sum = product + c;
  const double back = sum - product;
  const double error = (product - (sum - back)) + (c - back);
  if (error == 0 || !(error - error == 0)) return sum;
  long bits = __builtin_bit_cast(long, sum);
  if (bits & 1) return sum;
  bits += ((error > 0) == (sum > 0)) ? 1 : -1;
  return __builtin_bit_cast(double, bits);
}

// A float that a second rounding treats as it would x: towards zero, with the last bit set when something was cut off.
MSL_INLINE float to_odd_float(double x) {
  const float f = static_cast<float>(x);
  if (static_cast<double>(f) == x || x != x) return f;
  uint bits = __builtin_bit_cast(uint, f);
  if (__builtin_fabs(static_cast<double>(f)) > __builtin_fabs(x)) bits--;
  return __builtin_bit_cast(float, bits | 1);
}

#define MSL_VECTORS_1(name)                                          \
  template <class T, int N>                                          \
  MSL_INLINE vec<T, N> name(vec<T, N> v) {                           \
    vec<T, N> r;                                                     \
    for (int i = 0; i < N; i++) r[i] = name(static_cast<T>(v.d[i])); \
    return r;                                                        \
  }
#define MSL_VECTORS_2(name)                                                                  \
  template <class T, int N>                                                                  \
  MSL_INLINE vec<T, N> name(vec<T, N> a, vec<T, N> b) {                                      \
    vec<T, N> r;                                                                             \
    for (int i = 0; i < N; i++) r[i] = name(static_cast<T>(a.d[i]), static_cast<T>(b.d[i])); \
    return r;                                                                                \
  }                                                                                          \
  template <class T, int N, class A, class = enable_if_t<is_scalar_v<A>>>                    \
  MSL_INLINE vec<T, N> name(vec<T, N> a, A b) {                                              \
    return name(a, vec<T, N>(b));                                                            \
  }                                                                                          \
  template <class T, int N, class A, class = enable_if_t<is_scalar_v<A>>>                    \
  MSL_INLINE vec<T, N> name(A a, vec<T, N> b) {                                              \
    return name(vec<T, N>(a), b);                                                            \
  }
#define MSL_VECTORS_3(name)                                                                                          \
  template <class T, int N>                                                                                          \
  MSL_INLINE vec<T, N> name(vec<T, N> a, vec<T, N> b, vec<T, N> c) {                                                 \
    vec<T, N> r;                                                                                                     \
    for (int i = 0; i < N; i++) r[i] = name(static_cast<T>(a.d[i]), static_cast<T>(b.d[i]), static_cast<T>(c.d[i])); \
    return r;                                                                                                        \
  }                                                                                                                  \
  template <class T, int N, class A, class B, class = enable_if_t<is_scalar_v<A> && is_scalar_v<B>>>                 \
  MSL_INLINE vec<T, N> name(vec<T, N> a, A b, B c) {                                                                 \
    return name(a, vec<T, N>(b), vec<T, N>(c));                                                                      \
  }                                                                                                                  \
  template <class T, int N, class B, class = enable_if_t<is_scalar_v<B>>>                                            \
  MSL_INLINE vec<T, N> name(vec<T, N> a, vec<T, N> b, B c) {                                                         \
    return name(a, b, vec<T, N>(c));                                                                                 \
  }
#define MSL_UNARY(name, expression)                          \
  MSL_INLINE float name(float x) { return expression; }      \
  MSL_INLINE half name(half h) {                             \
    const float x = h;                                       \
    return static_cast<half>(expression);                    \
  }                                                          \
  MSL_INLINE bfloat name(bfloat h) {                         \
    const float x = h;                                       \
    return bfloat(static_cast<float>(expression));           \
  }                                                          \
  template <class I, enable_if_t<is_integral_v<I>, int> = 0> \
  MSL_INLINE float name(I i) {                               \
    return name(static_cast<float>(i));                      \
  }                                                          \
  MSL_VECTORS_1(name)
// Mixed scalar arguments take the common type, as MSL's conversions do.
#define MSL_BINARY(name, expression)                                                                      \
  MSL_INLINE float name(float x, float y) { return expression; }                                          \
  MSL_INLINE half name(half a, half b) {                                                                  \
    const float x = a, y = b;                                                                             \
    return static_cast<half>(expression);                                                                 \
  }                                                                                                       \
  MSL_INLINE bfloat name(bfloat a, bfloat b) {                                                            \
    const float x = a, y = b;                                                                             \
    return bfloat(static_cast<float>(expression));                                                        \
  }                                                                                                       \
  template <class A, class B, enable_if_t<is_scalar_v<A> && is_scalar_v<B> && !is_same_v<A, B>, int> = 0> \
  MSL_INLINE float name(A a, B b) {                                                                       \
    return name(static_cast<float>(a), static_cast<float>(b));                                            \
  }                                                                                                       \
  MSL_VECTORS_2(name)

#define MSL_MATH                          \
  MSL_UNARY(fabs, __builtin_fabsf(x))     \
  MSL_UNARY(exp, __builtin_expf(x))       \
  MSL_UNARY(log2, __builtin_log2f(x))     \
  MSL_UNARY(sqrt, __builtin_sqrtf(x))     \
  MSL_UNARY(tanh, __builtin_tanhf(x))     \
  MSL_UNARY(rint, __builtin_rintf(x))     \
  MSL_BINARY(fmax, __builtin_fmaxf(x, y)) \
  MSL_BINARY(fmin, __builtin_fminf(x, y))
MSL_MATH
MSL_INLINE float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
MSL_INLINE half fma(half a, half b, half c) { return static_cast<half>(fma_to_odd(a, b, c)); }
MSL_INLINE bfloat fma(bfloat a, bfloat b, bfloat c) {
  return bfloat(to_odd_float(fma_to_odd(static_cast<float>(a), static_cast<float>(b), static_cast<float>(c))));
}
MSL_VECTORS_3(fma)

// The precise forms are the usual ones. They exist for float alone: a half that they are given becomes a float, and their
// result stays one.
#undef MSL_UNARY
#undef MSL_BINARY
#define MSL_UNARY(name, expression)                     \
  MSL_INLINE float name(float x) { return expression; } \
  MSL_VECTORS_1(name)
#define MSL_BINARY(name, expression)                             \
  MSL_INLINE float name(float x, float y) { return expression; } \
  MSL_VECTORS_2(name)
namespace precise {
MSL_MATH
}  // namespace precise

// The fast forms have the errors that the specification of the language allows them (its table of fast math). The argument and
// the dispatch's seed choose the sign and size of an error.
#ifdef MSL_GPU
MSL_INLINE float erring(double exact, double, float) { return static_cast<float>(exact); }
#else
MSL_INLINE float erring(double exact, double units, float x) {
  uint64_t chance = (__builtin_bit_cast(uint, x) + msl_participant(1).seed * 0xd6e8feb86659fd93u) * 0x9e3779b97f4a7c15u;
  chance = (chance ^ chance >> 29) * 0xbf58476d1ce4e5b9u;
  const double part = static_cast<double>(static_cast<long>(chance)) * 0x1p-63;  // -1 to 1
  return static_cast<float>(exact * (1.0 + part * units * 0x1p-24));             // a unit is 2^-24 of it at least
}
#endif
MSL_INLINE float fast_exp(float x) { return erring(__builtin_exp(x), 3 + __builtin_floor(__builtin_fabs(2.0 * x)), x); }
MSL_INLINE float fast_tanh(float x) {
  const float t = fast_exp(2 * x);
  return (t - 1) / (t + 1);
}
namespace fast {
MSL_UNARY(exp, fast_exp(x))
MSL_UNARY(log2, erring(__builtin_log2(x), 2, x))
MSL_UNARY(sqrt, erring(__builtin_sqrt(x), 2, x))
MSL_UNARY(tanh, fast_tanh(x))
using metal::fabs, metal::fmax, metal::fmin, metal::rint;
}  // namespace fast

MSL_INLINE half contract(half a, half b, half c) { return fma(a, b, c); }
MSL_INLINE bfloat contract(bfloat a, bfloat b, bfloat c) { return fma(a, b, c); }

#define MSL_MIN_MAX(T)                                           \
  constexpr MSL_INLINE T min(T a, T b) { return b < a ? b : a; } \
  constexpr MSL_INLINE T max(T a, T b) { return a < b ? b : a; } \
  constexpr MSL_INLINE T clamp(T x, T lo, T hi) { return min(max(x, lo), hi); }
MSL_MIN_MAX(char)
MSL_MIN_MAX(signed char)
MSL_MIN_MAX(uchar)
MSL_MIN_MAX(short)
MSL_MIN_MAX(ushort)
MSL_MIN_MAX(int)
MSL_MIN_MAX(uint)
MSL_MIN_MAX(long)
MSL_MIN_MAX(ulong)
// A NaN gives way to a number, as in fmin and fmax.
#define MSL_MIN_MAX_FLOAT(T)                        \
  MSL_INLINE T min(T a, T b) { return fmin(a, b); } \
  MSL_INLINE T max(T a, T b) { return fmax(a, b); } \
  MSL_INLINE T clamp(T x, T lo, T hi) { return min(max(x, lo), hi); }
MSL_MIN_MAX_FLOAT(half)
MSL_MIN_MAX_FLOAT(float)
MSL_MIN_MAX_FLOAT(bfloat)
MSL_VECTORS_2(min)
MSL_VECTORS_2(max)
MSL_VECTORS_3(clamp)

// Of integers.
#define MSL_BITS_1(name, expression)                         \
  template <class T, enable_if_t<is_integral_v<T>, int> = 0> \
  MSL_INLINE T name(T x) {                                   \
    using U = make_unsigned_t<T>;                            \
    constexpr int bits = sizeof(T) * 8;                      \
    const U u = static_cast<U>(x);                           \
    (void)bits;                                              \
    return static_cast<T>(expression);                       \
  }                                                          \
  MSL_VECTORS_1(name)
MSL_BITS_1(clz, u ? __builtin_clzl(u) - (64 - bits) : bits)
MSL_BITS_1(ctz, u ? __builtin_ctzl(u) : bits)
MSL_BITS_1(popcount, __builtin_popcountl(u))
}  // namespace metal
