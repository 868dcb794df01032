// Packed codes -> numbers, by bit operations, two at a time. One decoder a kind of codes; layouts
// in ../common/layout.h.
//
// A Unit is what a lane holds of eight slots of its four tiles. decode() turns tile i of it into
// pairs of halves: h[t] holds slots t (x) and 4 + t (y), divided by range(t), exactly: of FP4 and
// INT8 values, of INT4 codes 0..15. The range, a power of two, and INT4's zero point are for the
// float operation that follows anyway: product.h.
//
// FP4 and INT4 come out as *subnormal* halves, 0.5 and all codes. Apple GPUs keep these; the host
// checks a product on the device at hand.
#pragma once
#include "constants.h"

// --- FP4: E2M1
// -------------------------------------------------------------------------------------------------
// A half whose exponent field holds only the low two bits is 2^-14 times the E2M1 value; 0.5 is the
// subnormal 0x0200.

/// Dense placement, chosen for five shifts instead of seven: shifts issue at a quarter of the rate
/// of AND and OR on M1 and M2.
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

// --- INT4: a half whose low bits are n is 2^-24 n; with n at bits 7..4 it is 2^-20 n
// --------------------------------------------
static inline void decode_u4(uint q, thread half2* h) {
  const uint r = q >> 8;
  h[0] = as_type<half2>(q & 0x000F000Fu);
  h[1] = as_type<half2>(q & 0x00F000F0u);
  h[2] = as_type<half2>(r & 0x000F000Fu);
  h[3] = as_type<half2>(r & 0x00F000F0u);
}

// --- INT8: stored as value + 128; 1024 + 128 + value is exact in half
// ------------------------------------------------------------
static inline void decode_i8(uint low, uint high, thread half2* h) {
  h[0] = as_type<half2>((low & 0x00FF00FFu) | 0x64006400u) - half2(1152.0h);
  h[1] = as_type<half2>(((low >> 8) & 0x00FF00FFu) | 0x64006400u) - half2(1152.0h);
  h[2] = as_type<half2>((high & 0x00FF00FFu) | 0x64006400u) - half2(1152.0h);
  h[3] = as_type<half2>(((high >> 8) & 0x00FF00FFu) | 0x64006400u) - half2(1152.0h);
}

// --- 2:4 sparse: 16 bits of kept codes and 8 of positions -> a unit of nibbles; what is not kept
// is 0 -----------------------------
/// Two kept nibbles to their places in 16 bits; `positions` is 2 bits each.
static inline uint place_pair(uint first, uint second, uint positions) {
  return first << ((positions << 2) & 12) | second << (positions & 12);
}
static inline uint expand_codes(uint codes, uint positions) {
  return place_pair(codes & 15, codes >> 4 & 15, positions) |
         place_pair(codes >> 8 & 15, codes >> 12 & 15, positions >> 4) << 16;
}
/// 15 at every kept nibble, 0 elsewhere.
static inline uint kept_nibbles(uint positions) {
  return place_pair(15, 15, positions) | place_pair(15, 15, positions >> 4) << 16;
}

// --- kinds of codes: how a lane reads its span of a block, and what a unit of it is
// ------------------------------------------------ Span: the lane's words of one block. open()
// points it at lane's part of the block of `units` units a lane; unit(w) is unit w.

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

/// Loads a block's codes and positions at once: three quarters of the dense bytes, as wide.
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
  /// What is not kept is 8, the zero point where there are no others, or else 0: see kept_ones().
  static void decode(Span::Unit unit, ushort i, thread half2* h) {
    const uint codes = expand_codes(unit.codes[i], unit.positions[i]);
    decode_u4(has_zeros ? codes : codes | (~kept_nibbles(unit.positions[i]) & 0x88888888u), h);
  }
};

/// Whether element (step t, half p) of a unit is kept; for those who need zeros that no scale can
/// touch.
static inline bool is_kept(uint positions, ushort t, ushort p) {
  const uint pair = positions >> (4 * p) & 15;
  return (pair & 3) == t || pair >> 2 == t;
}
