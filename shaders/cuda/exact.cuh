// Finite numbers as integers: the value of a weight, rounded once to float32, even if code * scale
// * tensor scale has more bits than a float. The sticky last bit follows Berkeley SoftFloat.
#pragma once
#include "numbers.cuh"

/// (-1)^negative * mantissa * 2^exponent with mantissa < 2^62. If the mantissa is inexact, its last
/// bit is 1 (sticky).
struct Exact {
  bool negative;
  u64 mantissa;
  int exponent;
};

__device__ inline bool is_finite_bits(u32 bits) { return (bits & 0x7F800000u) != 0x7F800000u; }

__device__ inline Exact exact_of(u32 bits) {
  const u32 field = bits >> 23 & 0xFF, fraction = bits & 0x7FFFFF;
  return field == 0 ? Exact{bits >> 31 != 0, fraction, -149}
                    : Exact{bits >> 31 != 0, fraction | 0x800000, int(field) - 150};
}

/// Precondition: both together have at most 62 bits.
__device__ inline Exact multiply(Exact a, Exact b) {
  return Exact{a.negative != b.negative, a.mantissa * b.mantissa, a.exponent + b.exponent};
}

/// The same number with its highest bit at 60.
__device__ inline Exact normalized(Exact a) {
  if (a.mantissa == 0) return a;
  const int shift = __clzll(static_cast<long long>(a.mantissa)) - 3;
  return Exact{a.negative, shift >= 0 ? a.mantissa << shift : a.mantissa >> 1 | (a.mantissa & 1),
               a.exponent - shift};
}

/// Precondition: b is not 0 and has at most 24 bits, so the quotient has at least 36.
__device__ inline Exact divide(Exact a, Exact b) {
  const Exact n = normalized(a);
  const u64 quotient = n.mantissa / b.mantissa;
  return Exact{a.negative != b.negative, quotient | u64(n.mantissa % b.mantissa != 0),
               n.exponent - b.exponent};
}

/// Precondition: both are exact and have at most 32 bits. The bits that are shifted out then lie
/// far below the rounding.
__device__ inline Exact add(Exact a, Exact b) {
  if (a.mantissa == 0 && b.mantissa == 0) return Exact{a.negative && b.negative, 0, 0};
  if (a.mantissa == 0) return b;
  if (b.mantissa == 0) return a;
  Exact x = normalized(a), y = normalized(b);
  if (y.exponent > x.exponent || (y.exponent == x.exponent && y.mantissa > x.mantissa)) {
    const Exact swap = x;
    x = y;
    y = swap;
  }
  const int shift = x.exponent - y.exponent;
  const u64 lost = shift >= 62 ? y.mantissa : y.mantissa & ((1ull << shift) - 1);
  const u64 low = (shift >= 62 ? 0ull : y.mantissa >> shift) | u64(lost != 0);
  const u64 sum = x.negative == y.negative ? x.mantissa + low : x.mantissa - low;
  return Exact{sum != 0 && x.negative, sum, x.exponent};
}

/// Rounds to the nearest float32, ties to even; overflow is infinity.
__device__ inline u32 round_to_bits(Exact a) {
  const u32 sign = a.negative ? 0x80000000u : 0u;
  if (a.mantissa == 0) return sign;
  const int highest = a.exponent + 63 - __clzll(static_cast<long long>(a.mantissa));
  if (highest > 127) return sign | 0x7F800000u;
  const int last = max(highest - 23, -149);  // weight of the result's last bit
  const int shift = last - a.exponent;
  u64 rounded;
  if (shift <= 0) {
    rounded = a.mantissa << -shift;
  } else if (shift > 62) {  // less than half of the smallest subnormal
    rounded = 0;
  } else {
    const u64 rest = a.mantissa & ((1ull << shift) - 1), tie = 1ull << (shift - 1);
    rounded = a.mantissa >> shift;
    if (rest > tie || (rest == tie && (rounded & 1) != 0)) rounded++;
  }
  // The leading bit of a normal number adds 1 to the exponent field, and a carry from rounding adds
  // one more.
  return sign | ((u32(last + 149) << 23) + u32(rounded));
}
