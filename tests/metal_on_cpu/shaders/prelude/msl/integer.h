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
template <class T>
MSL_INLINE T rhadd(T a, T b) {
  return (a >> 1) + (b >> 1) + ((a | b) & 1);
}
template <class T, enable_if_t<is_integral_v<T>, int> = 0>
MSL_INLINE T madhi(T a, T b, T c) {
  return mulhi(a, b) + c;
}
// a * b + c without the wrap: the exact value is between the limits of twice as many bits.
template <class T, enable_if_t<is_integral_v<T>, int> = 0>
MSL_INLINE T madsat(T a, T b, T c) {
  const __int128 exact = is_signed_v<T> || sizeof(T) < 8 ? static_cast<__int128>(a) * b + c : 0;
  if constexpr (!is_signed_v<T> && sizeof(T) == 8) {
    T product, sum;
    const bool over = __builtin_mul_overflow(a, b, &product) | __builtin_add_overflow(product, c, &sum);
    return over ? numeric_limits<T>::max() : sum;
  }
  if (exact > static_cast<__int128>(numeric_limits<T>::max())) return numeric_limits<T>::max();
  return exact < static_cast<__int128>(numeric_limits<T>::min()) ? numeric_limits<T>::min() : static_cast<T>(exact);
}

MSL_INLINE float4 unpack_unorm4x8_to_float(uint x) { return float4(uint4(x, x >> 8, x >> 16, x >> 24) & uint4(255)) / 255.f; }
MSL_INLINE half4 unpack_unorm4x8_to_half(uint x) { return half4(unpack_unorm4x8_to_float(x)); }
MSL_INLINE float2 unpack_half2x16_to_float(uint x) { return float2(as_type<half2>(x)); }
MSL_INLINE float4 unpack_snorm4x8_to_float(uint x) { return max(float4(as_type<char4>(x)) / 127.f, float4(-1)); }
MSL_INLINE half4 unpack_snorm4x8_to_half(uint x) { return half4(unpack_snorm4x8_to_float(x)); }
MSL_INLINE float2 unpack_unorm2x16_to_float(uint x) { return float2(as_type<ushort2>(x)) / 65535.f; }
MSL_INLINE float2 unpack_snorm2x16_to_float(uint x) { return max(float2(as_type<short2>(x)) / 32767.f, float2(-1)); }
MSL_INLINE half2 unpack_unorm2x16_to_half(uint x) { return half2(unpack_unorm2x16_to_float(x)); }
MSL_INLINE half2 unpack_snorm2x16_to_half(uint x) { return half2(unpack_snorm2x16_to_float(x)); }
MSL_INLINE uint pack_float_to_unorm4x8(float4 v) {
  const float4 f = rint(clamp(v, 0.f, 1.f) * 255.f);
  return uint(f.x) | uint(f.y) << 8 | uint(f.z) << 16 | uint(f.w) << 24;
}
MSL_INLINE uint pack_float_to_snorm4x8(float4 v) { return as_type<uint>(char4(rint(clamp(v, -1.f, 1.f) * 127.f))); }
MSL_INLINE uint pack_float_to_unorm2x16(float2 v) { return as_type<uint>(ushort2(rint(clamp(v, 0.f, 1.f) * 65535.f))); }
MSL_INLINE uint pack_float_to_snorm2x16(float2 v) { return as_type<uint>(short2(rint(clamp(v, -1.f, 1.f) * 32767.f))); }
MSL_INLINE uint pack_half_to_unorm4x8(half4 v) { return pack_float_to_unorm4x8(float4(v)); }
MSL_INLINE uint pack_half_to_snorm4x8(half4 v) { return pack_float_to_snorm4x8(float4(v)); }
MSL_INLINE uint pack_half_to_unorm2x16(half2 v) { return pack_float_to_unorm2x16(float2(v)); }
MSL_INLINE uint pack_half_to_snorm2x16(half2 v) { return pack_float_to_snorm2x16(float2(v)); }
}  // namespace metal
