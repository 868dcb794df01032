// Mathematical, integer and relational functions. half and bfloat are computed in float and rounded once; fma rounds once too.
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

#define MSL_MATH                                                               \
  MSL_UNARY(fabs, __builtin_fabsf(x))                                          \
  MSL_UNARY(exp, __builtin_expf(x))                                            \
  MSL_UNARY(exp2, __builtin_exp2f(x))                                          \
  MSL_UNARY(exp10, __builtin_powf(10.f, x))                                    \
  MSL_UNARY(log, __builtin_logf(x))                                            \
  MSL_UNARY(log2, __builtin_log2f(x))                                          \
  MSL_UNARY(log10, __builtin_log10f(x))                                        \
  MSL_UNARY(sqrt, __builtin_sqrtf(x))                                          \
  MSL_UNARY(rsqrt, 1.f / __builtin_sqrtf(x))                                   \
  MSL_UNARY(sin, __builtin_sinf(x))                                            \
  MSL_UNARY(cos, __builtin_cosf(x))                                            \
  MSL_UNARY(tan, __builtin_tanf(x))                                            \
  MSL_UNARY(sinh, __builtin_sinhf(x))                                          \
  MSL_UNARY(cosh, __builtin_coshf(x))                                          \
  MSL_UNARY(tanh, __builtin_tanhf(x))                                          \
  MSL_UNARY(asin, __builtin_asinf(x))                                          \
  MSL_UNARY(acos, __builtin_acosf(x))                                          \
  MSL_UNARY(atan, __builtin_atanf(x))                                          \
  MSL_UNARY(asinh, __builtin_asinhf(x))                                        \
  MSL_UNARY(acosh, __builtin_acoshf(x))                                        \
  MSL_UNARY(atanh, __builtin_atanhf(x))                                        \
  MSL_UNARY(floor, __builtin_floorf(x))                                        \
  MSL_UNARY(ceil, __builtin_ceilf(x))                                          \
  MSL_UNARY(trunc, __builtin_truncf(x))                                        \
  MSL_UNARY(round, __builtin_roundf(x))                                        \
  MSL_UNARY(rint, __builtin_rintf(x))                                          \
  MSL_UNARY(fract, __builtin_fminf(x - __builtin_floorf(x), 0x1.fffffep-1f))   \
  MSL_UNARY(sinpi, __builtin_sinf(x* M_PI_F))                                  \
  MSL_UNARY(cospi, __builtin_cosf(x* M_PI_F))                                  \
  MSL_UNARY(tanpi, __builtin_tanf(x* M_PI_F))                                  \
  MSL_UNARY(sign, (x > 0 ? 1.f : x < 0 ? -1.f : __builtin_isnan(x) ? 0.f : x)) \
  MSL_UNARY(saturate, __builtin_fminf(1.f, __builtin_fmaxf(0.f, x)))           \
  MSL_BINARY(pow, __builtin_powf(x, y))                                        \
  MSL_BINARY(powr, __builtin_powf(x, y))                                       \
  MSL_BINARY(fmod, __builtin_fmodf(x, y))                                      \
  MSL_BINARY(atan2, __builtin_atan2f(x, y))                                    \
  MSL_BINARY(fmax, __builtin_fmaxf(x, y))                                      \
  MSL_BINARY(fmin, __builtin_fminf(x, y))                                      \
  MSL_BINARY(fdim, __builtin_fdimf(x, y))                                      \
  MSL_BINARY(divide, x / y)                                                    \
  MSL_BINARY(copysign, __builtin_copysignf(x, y))                              \
  MSL_BINARY(step, (y < x ? 0.f : 1.f))
#define MSL_MATH_OF_FLOAT                                                             \
  MSL_INLINE float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); } \
  MSL_INLINE float ldexp(float x, int k) { return __builtin_ldexpf(x, k); }           \
  MSL_INLINE float nextafter(float a, float b) { return __builtin_nextafterf(a, b); } \
  MSL_INLINE float frexp(float x, int& e) { return __builtin_frexpf(x, &e); }         \
  MSL_INLINE int ilogb(float x) { return __builtin_ilogbf(x); }                       \
  MSL_INLINE float modf(float x, float& whole) { return __builtin_modff(x, &whole); } \
  MSL_INLINE float sincos(float x, float& c) {                                        \
    c = __builtin_cosf(x);                                                            \
    return __builtin_sinf(x);                                                         \
  }
MSL_MATH
MSL_MATH_OF_FLOAT
MSL_INLINE half fma(half a, half b, half c) { return static_cast<half>(fma_to_odd(a, b, c)); }
MSL_INLINE bfloat fma(bfloat a, bfloat b, bfloat c) {
  return bfloat(to_odd_float(fma_to_odd(static_cast<float>(a), static_cast<float>(b), static_cast<float>(c))));
}
MSL_VECTORS_3(fma)
MSL_INLINE half ldexp(half x, int k) { return static_cast<half>(__builtin_ldexpf(x, k)); }

// The fast and the precise forms are one here. They exist for float alone: a half that they are given becomes a float, and
// their result stays one.
#undef MSL_UNARY
#undef MSL_BINARY
#define MSL_UNARY(name, expression)                     \
  MSL_INLINE float name(float x) { return expression; } \
  MSL_VECTORS_1(name)
#define MSL_BINARY(name, expression)                             \
  MSL_INLINE float name(float x, float y) { return expression; } \
  MSL_VECTORS_2(name)
namespace fast {
MSL_MATH
MSL_MATH_OF_FLOAT
MSL_VECTORS_3(fma)
}  // namespace fast
namespace precise {
MSL_MATH
MSL_MATH_OF_FLOAT
MSL_VECTORS_3(fma)
}  // namespace precise

MSL_INLINE half contract(half a, half b, half c) { return fma(a, b, c); }
MSL_INLINE bfloat contract(bfloat a, bfloat b, bfloat c) { return fma(a, b, c); }

#define MSL_MIN_MAX(T)                                                          \
  constexpr MSL_INLINE T min(T a, T b) { return b < a ? b : a; }                \
  constexpr MSL_INLINE T max(T a, T b) { return a < b ? b : a; }                \
  constexpr MSL_INLINE T clamp(T x, T lo, T hi) { return min(max(x, lo), hi); } \
  constexpr MSL_INLINE T min3(T a, T b, T c) { return min(a, min(b, c)); }      \
  constexpr MSL_INLINE T max3(T a, T b, T c) { return max(a, max(b, c)); }      \
  constexpr MSL_INLINE T median3(T a, T b, T c) { return max(min(a, b), min(max(a, b), c)); }
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
#define MSL_MIN_MAX_FLOAT(T)                                                        \
  MSL_INLINE T min(T a, T b) { return fmin(a, b); }                                 \
  MSL_INLINE T max(T a, T b) { return fmax(a, b); }                                 \
  MSL_INLINE T clamp(T x, T lo, T hi) { return min(max(x, lo), hi); }               \
  MSL_INLINE T min3(T a, T b, T c) { return min(a, min(b, c)); }                    \
  MSL_INLINE T max3(T a, T b, T c) { return max(a, max(b, c)); }                    \
  MSL_INLINE T median3(T a, T b, T c) { return max(min(a, b), min(max(a, b), c)); } \
  MSL_INLINE T mix(T a, T b, T t) { return a + (b - a) * t; }                       \
  MSL_INLINE T smoothstep(T lo, T hi, T x) {                                        \
    const T t = saturate(T((x - lo) / (hi - lo)));                                  \
    return t * t * (T(3) - T(2) * t);                                               \
  }
MSL_MIN_MAX_FLOAT(half)
MSL_MIN_MAX_FLOAT(float)
MSL_MIN_MAX_FLOAT(bfloat)
#define MSL_ABS(T) \
  constexpr MSL_INLINE T abs(T a) { return a < 0 ? static_cast<T>(-a) : a; }
MSL_ABS(char)
MSL_ABS(signed char)
MSL_ABS(short)
MSL_ABS(int)
MSL_ABS(long)
MSL_INLINE float abs(float x) { return __builtin_fabsf(x); }
MSL_INLINE half abs(half x) { return fabs(x); }
MSL_INLINE bfloat abs(bfloat x) { return fabs(x); }
MSL_VECTORS_1(abs)
MSL_VECTORS_2(min)
MSL_VECTORS_2(max)
MSL_VECTORS_3(clamp)
MSL_VECTORS_3(mix)
MSL_VECTORS_3(smoothstep)
namespace fast {
using metal::abs, metal::min, metal::max, metal::clamp;
}
namespace precise {
using metal::abs, metal::min, metal::max, metal::clamp;
}

template <class T, int N>
MSL_INLINE T dot(vec<T, N> a, vec<T, N> b) {
  T sum = a[0] * b[0];
  for (int i = 1; i < N; i++) sum = sum + a[i] * b[i];
  return sum;
}
template <class T, int N>
MSL_INLINE T length_squared(vec<T, N> a) {
  return dot(a, a);
}
template <class T, int N>
MSL_INLINE T length(vec<T, N> a) {
  return sqrt(dot(a, a));
}
template <class T, int N>
MSL_INLINE T distance(vec<T, N> a, vec<T, N> b) {
  return length(a - b);
}
template <class T, int N>
MSL_INLINE vec<T, N> normalize(vec<T, N> a) {
  return a * rsqrt(dot(a, a));
}
template <class T>
MSL_INLINE vec<T, 3> cross(vec<T, 3> a, vec<T, 3> b) {
  return vec<T, 3>(a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]);
}
template <class T, enable_if_t<is_scalar_v<T>, int> = 0>
MSL_INLINE T select(T a, T b, bool c) {
  return c ? b : a;
}
template <class T, int N>
MSL_INLINE vec<T, N> select(vec<T, N> a, vec<T, N> b, vec<bool, N> c) {
  vec<T, N> r;
  for (int i = 0; i < N; i++) r[i] = c.d[i] ? b[i] : a[i];
  return r;
}
MSL_INLINE bool all(bool v) { return v; }
MSL_INLINE bool any(bool v) { return v; }
template <int N>
MSL_INLINE bool all(vec<bool, N> v) {
  bool r = true;
  for (int i = 0; i < N; i++) r = r && v.d[i];
  return r;
}
template <int N>
MSL_INLINE bool any(vec<bool, N> v) {
  bool r = false;
  for (int i = 0; i < N; i++) r = r || v.d[i];
  return r;
}
#define MSL_PREDICATE(name, expression)                                \
  MSL_INLINE bool name(float x) { return expression; }                 \
  MSL_INLINE bool name(half h) {                                       \
    const float x = h;                                                 \
    return expression;                                                 \
  }                                                                    \
  MSL_INLINE bool name(bfloat h) {                                     \
    const float x = h;                                                 \
    return expression;                                                 \
  }                                                                    \
  template <class T, int N>                                            \
  MSL_INLINE vec<bool, N> name(vec<T, N> v) {                          \
    vec<bool, N> r;                                                    \
    for (int i = 0; i < N; i++) r.d[i] = name(static_cast<T>(v.d[i])); \
    return r;                                                          \
  }
MSL_PREDICATE(isnan, __builtin_isnan(x))
MSL_PREDICATE(isinf, __builtin_isinf(x))
MSL_PREDICATE(isfinite, __builtin_isfinite(x))
MSL_PREDICATE(isnormal, __builtin_isnormal(x))
MSL_PREDICATE(signbit, __builtin_signbit(x))
}  // namespace metal
