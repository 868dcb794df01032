// Decodes packed codes to numbers by bit operations, two at a time. There is one decoder for each
// kind of codes; ../common/layout.h has the layouts.
//
// A Unit holds the lane's part of eight slots of its four tiles. decode() turns tile i of it into
// pairs of halves. h[t] holds slots t (x) and 4 + t (y), divided exactly by range(t): the values of
// FP4 and INT8, or the codes 0..15 of INT4. The next float operation applies the range, a power of
// two, and the zero point of INT4 (product.h).
//
// The value 0.5 of FP4 and all codes of INT4 become *subnormal* halves. Apple GPUs keep these; the
// host checks a product on the device.
#pragma once
#include "constants.h"

// --- FP4: E2M1 ----------------------------------------------------------------------------------
// A half whose exponent field holds only the low two bits is 2^-14 times the E2M1 value. 0.5 is the
// subnormal 0x0200.

/// Decodes the dense placement, which needs five shifts instead of seven: on M1 and M2, shifts
/// issue at a quarter of the rate of AND and OR.
static inline void decode_fp4(uint q, thread half2* h) {
  const uint q1 = q << 1, q2 = q << 2, q3 = q << 3, q6 = q3 << 3, q9 = q6 << 3;
  h[0] = as_type<half2>(q & 0x8E008E00u);
  h[1] = as_type<half2>(q3 & 0x8E008E00u);
  h[2] = as_type<half2>((q1 & 0x80008000u) | (q6 & 0x0E000E00u));
  h[3] = as_type<half2>((q2 & 0x80008000u) | (q9 & 0x0E000E00u));
}

/// Decodes the nibbles of expanded 2:4 sparse codes: step t is at bits 4 t + 3 .. 4 t.
static inline void decode_fp4_nibbles(uint q, thread half2* h) {
  UNROLL for (ushort t = 0; t < 4; t++) {
    const uint top = q << (12 - 4 * t);
    h[t] = as_type<half2>((top & 0x80008000u) | ((top & 0x70007000u) >> 3));
  }
}

// --- INT4: a half whose low bits are n is 2^-24 n; with n at bits 7..4 it is 2^-20 n -------------
static inline void decode_u4(uint q, thread half2* h) {
  const uint r = q >> 8;
  h[0] = as_type<half2>(q & 0x000F000Fu);
  h[1] = as_type<half2>(q & 0x00F000F0u);
  h[2] = as_type<half2>(r & 0x000F000Fu);
  h[3] = as_type<half2>(r & 0x00F000F0u);
}

// --- INT8: stored as value + 128; 1024 + 128 + value is exact in half ----------------------------
static inline void decode_i8(uint low, uint high, thread half2* h) {
  h[0] = as_type<half2>((low & 0x00FF00FFu) | 0x64006400u) - half2(1152.0h);
  h[1] = as_type<half2>(((low >> 8) & 0x00FF00FFu) | 0x64006400u) - half2(1152.0h);
  h[2] = as_type<half2>((high & 0x00FF00FFu) | 0x64006400u) - half2(1152.0h);
  h[3] = as_type<half2>(((high >> 8) & 0x00FF00FFu) | 0x64006400u) - half2(1152.0h);
}

// --- 2:4 sparse: 16 bits of kept codes and 8 of positions become a unit of nibbles, 0 if not kept
/// Moves two kept nibbles to their places in 16 bits; `positions` has 2 bits for each.
static inline uint place_pair(uint first, uint second, uint positions) {
  return first << ((positions << 2) & 12) | second << (positions & 12);
}
static inline uint expand_codes(uint codes, uint positions) {
  return place_pair(codes & 15, codes >> 4 & 15, positions) |
         place_pair(codes >> 8 & 15, codes >> 12 & 15, positions >> 4) << 16;
}
/// 15 for every kept nibble, 0 for others.
static inline uint kept_nibbles(uint positions) {
  return place_pair(15, 15, positions) | place_pair(15, 15, positions >> 4) << 16;
}

// --- kinds of codes: how a lane reads its span of a block, and the units of the span -------------
// A Span is the lane's words of one block. open() points it at the lane's part of a block of
// `units` units per lane; unit(w) is unit w.

struct NibbleSpan {
  typedef uint4 Unit;
  static long words(int slots) { return slots; }  // uint4 of that many slots of a row block
  const device uint4* at;
  void open(const device uint4* block, ushort, ushort lane) { at = block + lane; }
  Unit unit(ushort w) const { return at[w * kLanes]; }
};

struct ByteSpan {
  struct Unit {
    uint4 low, high;
  };
  static long words(int slots) { return 2 * slots; }
  const device uint4* at;
  void open(const device uint4* block, ushort, ushort lane) { at = block + lane; }
  Unit unit(ushort w) const { return Unit{at[2 * w * kLanes], at[(2 * w + 1) * kLanes]}; }
};

/// Loads the codes and positions of a block at once: three quarters of the dense bytes, with loads
/// of the same width.
struct SparseSpan {
  struct Unit {
    uint4 codes, positions;
  };  // 16 and 8 bits of each
  static long words(int slots) { return slots / kBlockSlots * 96 + slots % kBlockSlots; }
  uint4 low, high, positions;
  void open(const device uint4* block, ushort units, ushort lane) {
    low = block[lane];
    high = units == 4 ? block[kLanes + lane] : low;
    if (units == 1)
      positions = low >> 16;
    else
      positions = block[(units == 4 ? 2 * kLanes : kLanes) + lane];
  }
  Unit unit(ushort w) const {
    return Unit{((w < 2 ? low : high) >> (16 * (w & 1))) & 0xFFFF, (positions >> (8 * w)) & 0xFF};
  }
};

struct Fp4 {
  typedef NibbleSpan Span;
  static constexpr constant bool kSparse = false, kZeros = false;
  static constexpr float range(ushort) { return 1 << kFp4Exponent; }
  static void decode(uint4 unit, ushort i, thread half2* h) { decode_fp4(unit[i], h); }
};

struct U4 {
  typedef NibbleSpan Span;
  static constexpr constant bool kSparse = false, kZeros = true;
  static constexpr float range(ushort t) { return t % 2 == 0 ? 1 << 24 : 1 << 20; }
  static void decode(uint4 unit, ushort i, thread half2* h) { decode_u4(unit[i], h); }
};

struct I8 {
  typedef ByteSpan Span;
  static constexpr constant bool kSparse = false, kZeros = false;
  static constexpr float range(ushort) { return 1; }
  static void decode(Span::Unit unit, ushort i, thread half2* h) {
    decode_i8(unit.low[i], unit.high[i], h);
  }
};

struct Fp4Sparse {
  typedef SparseSpan Span;
  static constexpr constant bool kSparse = true, kZeros = false;
  static constexpr float range(ushort t) { return Fp4::range(t); }
  static void decode(Span::Unit unit, ushort i, thread half2* h) {
    decode_fp4_nibbles(expand_codes(unit.codes[i], unit.positions[i]), h);
  }
};

struct U4Sparse {
  typedef SparseSpan Span;
  static constexpr constant bool kSparse = true, kZeros = true;
  static constexpr float range(ushort t) { return U4::range(t); }
  /// A slot that is not kept is 8, which is the default zero point, or else 0: see kept_ones().
  static void decode(Span::Unit unit, ushort i, thread half2* h) {
    const uint codes = expand_codes(unit.codes[i], unit.positions[i]);
    decode_u4(has_zeros ? codes : codes | (~kept_nibbles(unit.positions[i]) & 0x88888888u), h);
  }
};

/// Whether element (step t, half p) of a unit is kept, for callers that need zeros which no scale
/// can change.
static inline bool is_kept(uint positions, ushort t, ushort p) {
  const uint pair = positions >> (4 * p) & 15;
  return (pair & 3) == t || pair >> 2 == t;
}
