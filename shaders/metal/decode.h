// Packed codes -> numbers, by bit operations, two at a time. One decoder a kind of codes; layouts in ../common/layout.h.
//
// A Unit is what a lane holds of eight slots of its four tiles. decode() turns tile i of it into pairs of halves: h[t] holds
// slots t (x) and 4 + t (y), exactly: for FP4 2^-14 times the value, for INT4 the code less the zero
// point, for INT8 the value. Zero points ride on the constant that the trick subtracts anyway, so they cost nothing.
#pragma once
#include "constants.h"

/// 2^14: what a half made of an E2M1 code's bits lacks.
constant float kFp4Range = 16384.0f;

/// A zero point z as what decode() subtracts: 1024 + z from a code in the low bits, 64 + z from one at bits 7..4 times 1/16.
struct ZeroPoint {
  half low, high;
};
static inline ZeroPoint zero_point(uint z) {
  return ZeroPoint{as_type<half>(ushort(0x6400 | z)), as_type<half>(ushort(0x5400 | z << 4))};
}

// --- FP4: E2M1 ---------------------------------------------------------------------------------------------------------------
// A half whose exponent field holds only the low two bits is 2^-14 times the E2M1 value. Code 0.5 becomes a *subnormal* half
// (0x0200), which Apple GPUs keep (the host checks a product on the device at hand). The caller restores the factor of 2^14.

/// Dense placement, chosen for five shifts instead of seven: shifts issue at a quarter of the rate of AND and OR on M1 and M2.
static inline void decode_fp4(uint q, thread half2* h) {
  const uint q1 = q << 1, q2 = q << 2, q3 = q << 3, q6 = q3 << 3, q9 = q6 << 3;
  h[0] = as_type<half2>(q & 0x8E008E00u);
  h[1] = as_type<half2>(q3 & 0x8E008E00u);
  h[2] = as_type<half2>((q1 & 0x80008000u) | (q6 & 0x0E000E00u));
  h[3] = as_type<half2>((q2 & 0x80008000u) | (q9 & 0x0E000E00u));
}

/// Nibbles, as the expansion of 2:4 sparse codes leaves them: step t at bits 4 t + 3 .. 4 t.
static inline void decode_fp4_nibbles(uint q, thread half2* h) {
  UNROLL for (ushort t = 0; t < 4; t++) {
    const uint top = q << (12 - 4 * t);
    h[t] = as_type<half2>((top & 0x80008000u) | ((top & 0x70007000u) >> 3));
  }
}

// --- INT4: 0x6400 is 1024, so the bits 0x6400 | n are 1024 + n; with n at bits 7..4 they are 1024 + 16 n ------------------------
static inline void decode_u4(uint q, ZeroPoint z, thread half2* h) {
  const uint r = q >> 8;
  h[0] = as_type<half2>((q & 0x000F000Fu) | 0x64006400u) - half2(z.low);
  h[1] = fma(as_type<half2>((q & 0x00F000F0u) | 0x64006400u), half2(0.0625h), half2(-z.high));
  h[2] = as_type<half2>((r & 0x000F000Fu) | 0x64006400u) - half2(z.low);
  h[3] = fma(as_type<half2>((r & 0x00F000F0u) | 0x64006400u), half2(0.0625h), half2(-z.high));
}

// --- INT8: stored as value + 128; 1024 + 128 + value is exact in half ------------------------------------------------------------
static inline void decode_i8(uint low, uint high, thread half2* h) {
  h[0] = as_type<half2>((low & 0x00FF00FFu) | 0x64006400u) - half2(1152.0h);
  h[1] = as_type<half2>(((low >> 8) & 0x00FF00FFu) | 0x64006400u) - half2(1152.0h);
  h[2] = as_type<half2>((high & 0x00FF00FFu) | 0x64006400u) - half2(1152.0h);
  h[3] = as_type<half2>(((high >> 8) & 0x00FF00FFu) | 0x64006400u) - half2(1152.0h);
}

// --- 2:4 sparse: 16 bits of kept codes and 8 of positions -> a unit of nibbles; what is not kept takes `fill` --------------------
/// Two kept nibbles to their places in 16 bits; `positions` is 2 bits each.
static inline uint place_pair(uint first, uint second, uint positions) {
  return first << ((positions << 2) & 12) | second << (positions & 12);
}
static inline uint expand_codes(uint codes, uint positions) {
  return place_pair(codes & 15, codes >> 4 & 15, positions) | place_pair(codes >> 8 & 15, codes >> 12 & 15, positions >> 4) << 16;
}
/// `bits` (1 or 15) at every kept nibble, 0 elsewhere.
static inline uint kept_nibbles(uint positions, uint bits) {
  return place_pair(bits, bits, positions) | place_pair(bits, bits, positions >> 4) << 16;
}

// --- kinds of codes: how a lane reads its span of a block, and what a unit of it is ------------------------------------------------
// Span: the lane's words of one block. open() points it at lane's part of the block of `units` units a lane; unit(w) is unit w.

struct NibbleSpan {
  typedef uint4 Unit;
  static long words(int slots) { return slots; }  // uint4 of that many slots of a row block
  const device uint4* at;
  void open(const device uint4* block, ushort, ushort lane) { at = block + lane; }
  Unit unit(ushort w) const { return at[w * kLanes]; }
};

struct ByteSpan {
  struct Unit { uint4 low, high; };
  static long words(int slots) { return 2 * slots; }
  const device uint4* at;
  void open(const device uint4* block, ushort, ushort lane) { at = block + lane; }
  Unit unit(ushort w) const { return Unit{at[2 * w * kLanes], at[(2 * w + 1) * kLanes]}; }
};

/// Loads a block's codes and positions at once: three quarters of the dense bytes, as wide.
struct SparseSpan {
  struct Unit { uint4 codes, positions; };  // 16 and 8 bits of each
  static long words(int slots) { return slots / kBlockSlots * 96 + slots % kBlockSlots; }
  uint4 low, high, positions;
  void open(const device uint4* block, ushort units, ushort lane) {
    low = block[lane];
    high = units == 4 ? block[kLanes + lane] : low;
    positions = units == 4 ? block[2 * kLanes + lane] : units == 2 ? block[kLanes + lane] : low >> 16;
  }
  Unit unit(ushort w) const {
    return Unit{((w < 2 ? low : high) >> (16 * (w & 1))) & 0xFFFF, (positions >> (8 * w)) & 0xFF};
  }
};

struct Fp4 {
  typedef NibbleSpan Span;
  static constexpr constant bool kSparse = false, kFp4 = true, kZeros = false;
  static void decode(uint4 unit, ushort i, ZeroPoint, thread half2* h) { decode_fp4(unit[i], h); }
};

struct U4 {
  typedef NibbleSpan Span;
  static constexpr constant bool kSparse = false, kFp4 = false, kZeros = true;
  static void decode(uint4 unit, ushort i, ZeroPoint z, thread half2* h) { decode_u4(unit[i], z, h); }
};

struct I8 {
  typedef ByteSpan Span;
  static constexpr constant bool kSparse = false, kFp4 = false, kZeros = false;
  static void decode(Span::Unit unit, ushort i, ZeroPoint, thread half2* h) { decode_i8(unit.low[i], unit.high[i], h); }
};

struct Fp4Sparse {
  typedef SparseSpan Span;
  static constexpr constant bool kSparse = true, kFp4 = true, kZeros = false;
  static void decode(Span::Unit unit, ushort i, ZeroPoint, thread half2* h) {
    decode_fp4_nibbles(expand_codes(unit.codes[i], unit.positions[i]), h);
  }
};

struct U4Sparse {
  typedef SparseSpan Span;
  static constexpr constant bool kSparse = true, kFp4 = false, kZeros = true;
  /// 1 where kept, else 0.
  static void kept(Span::Unit unit, ushort i, thread half2* one) {
    decode_u4(kept_nibbles(unit.positions[i], 1), zero_point(0), one);
  }
  static void decode(Span::Unit unit, ushort i, ZeroPoint z, thread half2* h) {
    const uint codes = expand_codes(unit.codes[i], unit.positions[i]);
    if (!has_zeros) return decode_u4(codes | (kept_nibbles(unit.positions[i], 15) ^ 0xFFFFFFFFu) & 0x88888888u, z, h);
    decode_u4(codes, zero_point(0), h);
    if (additive) return;
    half2 one[4];
    kept(unit, i, one);
    const half zero = z.low - 1024.0h;  // exact
    UNROLL for (ushort t = 0; t < 4; t++) h[t] = fma(one[t], half2(-zero), h[t]);
  }
};

/// Whether element (step t, half p) of a unit is kept; for those who need zeros that no scale can touch.
static inline bool is_kept(uint positions, ushort t, ushort p) {
  const uint pair = positions >> (4 * p) & 15;
  return (pair & 3) == t || pair >> 2 == t;
}
