// Finite numbers as integers. They give the value of a weight, rounded once to float32, even if a
// GPU flushes float32 subnormals, and even if code * scale * tensor scale has more bits than a
// float. The sticky last bit follows Berkeley SoftFloat.
#pragma once

#ifdef __METAL_VERSION__
#include <metal_stdlib>
using namespace metal;
#define MARLIN_DEVICE static inline
#define MARLIN_LEADING_ZEROS(x) int(clz(x))
typedef uint marlin_uint;
typedef ulong marlin_ulong;
#else
#ifdef __CUDACC__
#define MARLIN_DEVICE __device__ inline
#define MARLIN_LEADING_ZEROS(x) __clzll(static_cast<long long>(x))
#else
#include <algorithm>
using std::max;
#define MARLIN_DEVICE inline
#define MARLIN_LEADING_ZEROS(x) __builtin_clzll(x)
#endif
typedef unsigned int marlin_uint;
typedef unsigned long long marlin_ulong;
#endif

/// (-1)^negative * mantissa * 2^exponent with mantissa < 2^62. If the mantissa is inexact, its last
/// bit is 1 (sticky).
struct Exact {
  bool negative;
  marlin_ulong mantissa;
  int exponent;
};

MARLIN_DEVICE bool is_finite_bits(marlin_uint bits) { return (bits & 0x7F800000u) != 0x7F800000u; }

MARLIN_DEVICE Exact exact_of(marlin_uint bits) {
  const marlin_uint field = bits >> 23 & 0xFF, fraction = bits & 0x7FFFFF;
  return field == 0 ? Exact{bits >> 31 != 0, fraction, -149}
                    : Exact{bits >> 31 != 0, fraction | 0x800000, int(field) - 150};
}

/// Precondition: both together have at most 62 bits.
MARLIN_DEVICE Exact multiply(Exact a, Exact b) {
  return Exact{a.negative != b.negative, a.mantissa * b.mantissa, a.exponent + b.exponent};
}

/// The same number with its highest bit at 60.
MARLIN_DEVICE Exact normalized(Exact a) {
  if (a.mantissa == 0) return a;
  const int shift = MARLIN_LEADING_ZEROS(a.mantissa) - 3;
  return Exact{a.negative, shift >= 0 ? a.mantissa << shift : a.mantissa >> 1 | (a.mantissa & 1),
               a.exponent - shift};
}

/// Precondition: b is not 0 and has at most 24 bits, so the quotient has at least 36.
MARLIN_DEVICE Exact divide(Exact a, Exact b) {
  const Exact n = normalized(a);
  const marlin_ulong quotient = n.mantissa / b.mantissa;
  return Exact{a.negative != b.negative, quotient | marlin_ulong(n.mantissa % b.mantissa != 0),
               n.exponent - b.exponent};
}

/// Precondition: both are exact and have at most 48 bits. Bits are shifted out only if one number
/// is at least 2^13 times the other one; they then lie far below the rounding.
MARLIN_DEVICE Exact add(Exact a, Exact b) {
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
  const marlin_ulong lost =
      shift >= 62 ? y.mantissa : y.mantissa & ((marlin_ulong(1) << shift) - 1);
  const marlin_ulong low = (shift >= 62 ? 0 : y.mantissa >> shift) | marlin_ulong(lost != 0);
  const marlin_ulong sum = x.negative == y.negative ? x.mantissa + low : x.mantissa - low;
  return Exact{sum != 0 && x.negative, sum, x.exponent};
}

/// Rounds to the nearest float32, ties to even; overflow is infinity.
MARLIN_DEVICE marlin_uint round_to_bits(Exact a) {
  const marlin_uint sign = a.negative ? 0x80000000u : 0u;
  if (a.mantissa == 0) return sign;
  const int highest = a.exponent + 63 - MARLIN_LEADING_ZEROS(a.mantissa);
  if (highest > 127) return sign | 0x7F800000u;
  const int last = max(highest - 23, -149);  // weight of the result's last bit
  const int shift = last - a.exponent;
  marlin_ulong rounded;
  if (shift <= 0) {
    rounded = a.mantissa << -shift;
  } else if (shift > 62) {  // less than half of the smallest subnormal
    rounded = 0;
  } else {
    const marlin_ulong rest = a.mantissa & ((marlin_ulong(1) << shift) - 1);
    const marlin_ulong tie = marlin_ulong(1) << (shift - 1);
    rounded = a.mantissa >> shift;
    if (rest > tie || (rest == tie && (rounded & 1) != 0)) rounded++;
  }
  // The leading bit of a normal number adds 1 to the exponent field, and a carry from rounding adds
  // one more.
  return sign | ((marlin_uint(last + 149) << 23) + marlin_uint(rounded));
}
