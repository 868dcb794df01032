// Integer functions and conversions between packed formats.
#pragma once
#include "math.h"

namespace metal {
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
MSL_BITS_1(popcount, __builtin_popcountl(u))
MSL_BITS_1(clz, u ? __builtin_clzl(u) - (64 - bits) : bits)
MSL_BITS_1(ctz, u ? __builtin_ctzl(u) : bits)
MSL_BITS_1(reverse_bits, __builtin_bitreverse64(u) >> (64 - bits))
template <class T>
MSL_INLINE T rotate(T x, T by) {
  using U = make_unsigned_t<T>;
  constexpr unsigned bits = sizeof(T) * 8;
  const unsigned n = static_cast<unsigned>(by) % bits;
  return n ? static_cast<T>(static_cast<U>(static_cast<U>(x) << n) | static_cast<U>(static_cast<U>(x) >> (bits - n))) : x;
}
template <class T, enable_if_t<is_integral_v<T>, int> = 0>
MSL_INLINE T extract_bits(T x, uint offset, uint count) {
  using U = make_unsigned_t<T>;
  constexpr unsigned bits = sizeof(T) * 8;
  if (count == 0) return 0;
  const U up = static_cast<U>(static_cast<U>(x) << (bits - offset - count));
  return static_cast<T>(is_signed_v<T> ? static_cast<U>(static_cast<make_signed_t<T>>(up) >> (bits - count))
                                       : static_cast<U>(up >> (bits - count)));
}
template <class T, enable_if_t<is_integral_v<T>, int> = 0>
MSL_INLINE T insert_bits(T base, T insert, uint offset, uint count) {
  using U = make_unsigned_t<T>;
  if (count == 0) return base;
  const U mask = static_cast<U>(static_cast<U>(static_cast<U>(~U(0)) >> (sizeof(T) * 8 - count)) << offset);
  return static_cast<T>((static_cast<U>(base) & ~mask) | (static_cast<U>(static_cast<U>(insert) << offset) & mask));
}
MSL_INLINE uint mulhi(uint a, uint b) { return static_cast<uint>((static_cast<ulong>(a) * b) >> 32); }
MSL_INLINE int mulhi(int a, int b) { return static_cast<int>((static_cast<long>(a) * b) >> 32); }
MSL_INLINE ulong mulhi(ulong a, ulong b) { return static_cast<ulong>((static_cast<unsigned __int128>(a) * b) >> 64); }
template <class T>
MSL_INLINE T mad24(T a, T b, T c) {
  return a * b + c;
}
template <class T>
MSL_INLINE T mul24(T a, T b) {
  return a * b;
}
template <class T>
MSL_INLINE T absdiff(T a, T b) {
  return a > b ? a - b : b - a;
}
template <class T, enable_if_t<is_integral_v<T>, int> = 0>
MSL_INLINE T addsat(T a, T b) {
  T r;
  if (!__builtin_add_overflow(a, b, &r)) return r;
  return b > 0 ? numeric_limits<T>::max() : numeric_limits<T>::min();
}
template <class T, enable_if_t<is_integral_v<T>, int> = 0>
MSL_INLINE T subsat(T a, T b) {
  T r;
  if (!__builtin_sub_overflow(a, b, &r)) return r;
  return b > 0 ? numeric_limits<T>::min() : numeric_limits<T>::max();
}
template <class T>
MSL_INLINE T hadd(T a, T b) {
  return (a >> 1) + (b >> 1) + (a & b & 1);
}

MSL_INLINE float4 unpack_unorm4x8_to_float(uint x) { return float4(uint4(x, x >> 8, x >> 16, x >> 24) & uint4(255)) / 255.f; }
MSL_INLINE half4 unpack_unorm4x8_to_half(uint x) { return half4(unpack_unorm4x8_to_float(x)); }
MSL_INLINE float2 unpack_half2x16_to_float(uint x) { return float2(as_type<half2>(x)); }
MSL_INLINE uint pack_half_to_unorm4x8(half4 v) {
  const float4 f = rint(clamp(float4(v), 0.f, 1.f) * 255.f);
  return uint(f.x) | uint(f.y) << 8 | uint(f.z) << 16 | uint(f.w) << 24;
}
}  // namespace metal
