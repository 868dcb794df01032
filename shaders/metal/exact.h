// Finite numbers as integers: a weight's value rounded once to float32, also where GPUs flush
// float32's subnormals, and also where code * scale * tensor scale has more bits than a float.
// After Berkeley SoftFloat's way of keeping a sticky last bit.
#pragma once
#include "constants.h"

/// (-1)^negative * mantissa * 2^exponent. mantissa < 2^62; where its last bit is inexact it is 1
/// (sticky).
struct Exact {
  bool negative;
  ulong mantissa;
  int exponent;
};

static inline bool is_finite_bits(uint bits) { return (bits & 0x7F800000u) != 0x7F800000u; }

static inline Exact exact_of(uint bits) {
  const uint field = bits >> 23 & 0xFF, fraction = bits & 0x7FFFFF;
  return field == 0 ? Exact{bits >> 31 != 0, fraction, -149}
                    : Exact{bits >> 31 != 0, fraction | 0x800000, int(field) - 150};
}

/// Precondition: together at most 62 bits.
static inline Exact multiply(Exact a, Exact b) {
  return Exact{a.negative != b.negative, a.mantissa * b.mantissa, a.exponent + b.exponent};
}

/// Highest bit at 60.
static inline Exact normalized(Exact a) {
  if (a.mantissa == 0) return a;
  const int shift = int(clz(a.mantissa)) - 3;
  return Exact{a.negative, shift >= 0 ? a.mantissa << shift : a.mantissa >> 1 | (a.mantissa & 1),
               a.exponent - shift};
}

/// Precondition: b is not 0 and has at most 24 bits, so the quotient has at least 36.
static inline Exact divide(Exact a, Exact b) {
  const Exact n = normalized(a);
  const ulong quotient = n.mantissa / b.mantissa;
  return Exact{a.negative != b.negative, quotient | ulong(n.mantissa % b.mantissa != 0),
               n.exponent - b.exponent};
}

/// Precondition: both exact, of at most 32 bits; then what is shifted out lies far below the
/// rounding.
static inline Exact add(Exact a, Exact b) {
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
  const ulong lost = shift >= 62 ? y.mantissa : y.mantissa & ((1ul << shift) - 1);
  const ulong low = (shift >= 62 ? 0ul : y.mantissa >> shift) | ulong(lost != 0);
  const ulong sum = x.negative == y.negative ? x.mantissa + low : x.mantissa - low;
  return Exact{sum != 0 && x.negative, sum, x.exponent};
}

/// Nearest float32, ties to even; overflow is infinity.
static inline uint round_to_bits(Exact a) {
  const uint sign = a.negative ? 0x80000000u : 0u;
  if (a.mantissa == 0) return sign;
  const int highest = a.exponent + 63 - int(clz(a.mantissa));
  if (highest > 127) return sign | 0x7F800000u;
  const int last = max(highest - 23, -149);  // weight of the result's last bit
  const int shift = last - a.exponent;
  ulong rounded;
  if (shift <= 0) {
    rounded = a.mantissa << -shift;
  } else if (shift > 62) {  // less than half of the smallest subnormal
    rounded = 0;
  } else {
    const ulong rest = a.mantissa & ((1ul << shift) - 1), tie = 1ul << (shift - 1);
    rounded = a.mantissa >> shift;
    if (rest > tie || (rest == tie && (rounded & 1) != 0)) rounded++;
  }
  // A normal number's leading bit adds 1 to the exponent field, a carry out of the rounding one
  // more.
  return sign | (uint(last + 149) << 23) + uint(rounded);
}
