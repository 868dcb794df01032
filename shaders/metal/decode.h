// Decodes packed codes to numbers by bit operations, two at a time. There is one decoder for each
// kind of codes; ../common/layout.h has the layouts.
//
// A Unit holds the lane's part of eight slots of its four tiles. decode() turns tile i of it into
// pairs of halves. h[t] holds slots t (x) and 4 + t (y), divided exactly by range(t): the values of
// FP4 and INT8, or the codes 0..15 of INT4. The next float operation applies the range, a power of
// two, and the zero point of INT4 (product.h).
//
// The value 0.5 of FP4 and all codes of INT4 and of planes become *subnormal* halves. Apple GPUs
// keep these; the host checks a product on the device.
//
// The numbers of codebooks and floats as they are need float32. Their decoders (kReal) return pairs
// of floats, which lack no factor.
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

// --- bytes ---------------------------------------------------------------------------------------
/// INT8, stored as value + 128; 1024 + 128 + value is exact in half. UINT8 is stored as it is.
static inline half2 decode_integers(uint bytes) {
  return as_type<half2>((bytes & 0x00FF00FFu) | 0x64006400u) -
         half2(code_form == kFormUnsigned ? 1024.0h : 1152.0h);
}
/// 2^-8 times the values of E4M3 bytes 0 and 2, exactly: their bits in a half, including
/// subnormals. 0x7F and 0xFF (NaN) become finite; the row factor contains their NaN.
static inline half2 e4m3_pair(uint bytes) {
  return as_type<half2>((bytes & 0x00800080u) << 8 | (bytes & 0x007F007Fu) << 7);
}
static inline void decode_bytes(uint low, uint high, thread half2* h) {
  const uint4 steps = uint4(low, low >> 8, high, high >> 8);
  UNROLL for (ushort t = 0; t < 4; t++) h[t] =
      code_form == kFormE4m3 ? e4m3_pair(steps[t]) : decode_integers(steps[t]);
}

// --- planes: the low four bits of INT4, and two bits or one above them; or two bits and one ------
/// The bits of a plane of two bits (mask 0x00300030) or one (0x00100010): of even steps at bit 4 of
/// each half, of odd steps at bit 8.
static inline void plane_bits(uint plane, uint mask, thread uint* bits) {
  bits[0] = plane & mask;
  bits[1] = plane & mask << 4;
  bits[2] = plane << 4 & mask;
  bits[3] = plane >> 4 & mask << 4;
}
/// 2^-24 n in even steps and 2^-20 n in odd ones.
static inline void decode_above_u4(uint q, uint plane, uint mask, thread half2* h) {
  const uint r = q >> 8;
  uint bits[4];
  plane_bits(plane, mask, bits);
  h[0] = as_type<half2>((q & 0x000F000Fu) | bits[0]);
  h[1] = as_type<half2>((q & 0x00F000F0u) | bits[1]);
  h[2] = as_type<half2>((r & 0x000F000Fu) | bits[2]);
  h[3] = as_type<half2>((r & 0x00F000F0u) | bits[3]);
}
/// 2^-20 n in even steps and 2^-16 n in odd ones, of which bit 10 is 2^-14 as well. `high` has the
/// third bit.
static inline void decode_u2(uint low, uint high, thread half2* h) {
  uint bits[4], above[4];
  plane_bits(low, 0x00300030u, bits);
  plane_bits(high, 0x00100010u, above);
  UNROLL for (ushort t = 0; t < 4; t++) h[t] = as_type<half2>(bits[t] | above[t] << 2);
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
    high = low;
    if (units == 4) high = block[kLanes + lane];
    if (units == 1)
      positions = low >> 16;
    else
      positions = block[(units == 4 ? 2 * kLanes : kLanes) + lane];
  }
  Unit unit(ushort w) const {
    const uint4 two = w < 2 ? uint4(low) : uint4(high);
    return Unit{(two >> (16 * (w & 1))) & 0xFFFF, (positions >> (8 * w)) & 0xFF};
  }
};

/// Loads the planes above the nibbles of a block at once, and the nibbles with their units.
struct PlaneSpan {
  struct Unit {
    uint4 low, high;  // planes of this unit, in the place of unit 0
  };
  static long words(int slots) {
    return kLanes * (long(slots / kBlockSlots) * code_bits +
                     ((slots & 64) != 0 ? plane_words(code_bits, 2) : 0) +
                     ((slots & 32) != 0 ? plane_words(code_bits, 1) : 0));
  }
  const device uint4* at;
  uint4 first, second, third;  // of two bits: units 0, 1 and 2, 3; of one bit: `third`
  void open(const device uint4* block, ushort units, ushort lane) {
    at = block + lane;
    const device uint4* plane = at + (code_bits > 4 ? kLanes * units : 0);
    first = second = third = uint4(0);
    if (code_bits != 5) {
      first = second = *plane;
      if (units == 4) second = plane[kLanes];
      plane += units == 4 ? 2 * kLanes : kLanes;
    }
    if (code_bits == 3 || code_bits == 5) third = *plane;
  }
  Unit unit(ushort w) const {
    const uint4 plane = w < 2 ? uint4(first) : uint4(second);
    const uint4 two = plane >> (2 * (w & 1)), one = third >> w;
    if (code_bits < 5) return Unit{two, one};
    return Unit{at[w * kLanes], code_bits == 6 ? two : one};
  }
};

/// A float takes half a word or a whole one.
struct FloatSpan {
  struct Unit {
    uint4 word[8];  // 16 bits: the first four
  };
  static ushort unit_words() { return code_form == kFormF32 ? 8 : 4; }
  static long words(int slots) { return long(slots) * unit_words(); }
  const device uint4* at;
  void open(const device uint4* block, ushort, ushort lane) { at = block + lane; }
  Unit unit(ushort w) const {
    Unit out;
    UNROLL for (ushort v = 0; v < 8; v++) out.word[v] =
        v < unit_words() ? at[(w * unit_words() + v) * kLanes] : uint4(0);
    return out;
  }
};

/// The codebook of a threadgroup's weights, from memory, for threads that do not run together.
struct TableInMemory {
  const device float* at;
  float operator[](uint code) const { return at[code]; }
};
/// The same in the registers of a simdgroup: lane i has number i % 16. All lanes ask at once. A
/// shuffle costs no memory access, of which every code would need one.
struct TableInLanes {
  float own;
  float operator[](uint code) const { return simd_shuffle(own, ushort(code)); }
};

struct Fp4 {
  typedef NibbleSpan Span;
  typedef half2 Pair;
  static constexpr constant bool kReal = false;
  static constexpr constant bool kSparse = false;
  static constexpr uint zero_point() { return 0; }
  static constexpr float range(ushort) { return 1 << kFp4Exponent; }
  static void decode(uint4 unit, ushort i, thread half2* h) { decode_fp4(unit[i], h); }
};

struct U4 {
  typedef NibbleSpan Span;
  typedef half2 Pair;
  static constexpr constant bool kReal = false;
  static constexpr constant bool kSparse = false;
  static constexpr uint zero_point() { return 8; }
  static constexpr float range(ushort t) { return t % 2 == 0 ? 1 << 24 : 1 << 20; }
  static void decode(uint4 unit, ushort i, thread half2* h) { decode_u4(unit[i], h); }
};

struct I8 {
  typedef ByteSpan Span;
  typedef half2 Pair;
  static constexpr constant bool kReal = false;
  static constexpr constant bool kSparse = false;
  static uint zero_point() { return code_form == kFormUnsigned ? 128 : 0; }
  static float range(ushort) { return code_form == kFormE4m3 ? 256 : 1; }
  static void decode(Span::Unit unit, ushort i, thread half2* h) {
    decode_bytes(unit.low[i], unit.high[i], h);
  }
};

struct Planes {
  typedef PlaneSpan Span;
  typedef half2 Pair;
  static constexpr constant bool kReal = false;
  static constexpr constant bool kSparse = false;
  static uint zero_point() { return 1u << code_bits >> 1; }
  static float range(ushort t) {
    return (t % 2 == 0 ? 1 << 20 : 1 << 16) * (code_bits > 4 ? 16.0f : 1.0f);
  }
  static void decode(Span::Unit unit, ushort i, thread half2* h) {
    if (code_bits < 5)
      decode_u2(unit.low[i], unit.high[i], h);
    else
      decode_above_u4(unit.low[i], unit.high[i], code_bits == 6 ? 0x00300030u : 0x00100010u, h);
  }
};

struct Fp4Sparse {
  typedef SparseSpan Span;
  typedef half2 Pair;
  static constexpr constant bool kReal = false;
  static constexpr constant bool kSparse = true;
  static constexpr uint zero_point() { return 0; }
  static constexpr float range(ushort t) { return Fp4::range(t); }
  static void decode(Span::Unit unit, ushort i, thread half2* h) {
    decode_fp4_nibbles(expand_codes(unit.codes[i], unit.positions[i]), h);
  }
};

struct U4Sparse {
  typedef SparseSpan Span;
  typedef half2 Pair;
  static constexpr constant bool kReal = false;
  static constexpr constant bool kSparse = true;
  static constexpr uint zero_point() { return 8; }
  static constexpr float range(ushort t) { return U4::range(t); }
  /// A slot that is not kept is 8, which is the default zero point, or else 0: see kept_ones().
  static void decode(Span::Unit unit, ushort i, thread half2* h) {
    const uint codes = expand_codes(unit.codes[i], unit.positions[i]);
    decode_u4(has_zeros ? codes : codes | (~kept_nibbles(unit.positions[i]) & 0x88888888u), h);
  }
};

/// 4-bit indices of 16 numbers, in the order of INT4's codes.
struct Lut4 {
  typedef NibbleSpan Span;
  typedef float2 Pair;
  static constexpr constant bool kReal = true;
  static constexpr constant bool kSparse = false;
  static constexpr uint zero_point() { return 0; }
  static constexpr float range(ushort) { return 1; }
  template <typename Table>
  static void decode(uint4 unit, ushort i, thread const Table& table, thread float2* h) {
    UNROLL for (ushort t = 0; t < 4; t++) h[t] =
        float2(table[unit[i] >> (4 * t) & 15], table[unit[i] >> (16 + 4 * t) & 15]);
  }
};

struct Floats {
  typedef FloatSpan Span;
  typedef float2 Pair;
  static constexpr constant bool kReal = true;
  static constexpr constant bool kSparse = false;
  static constexpr uint zero_point() { return 0; }
  static constexpr float range(ushort) { return 1; }
  template <typename Table>
  static void decode(Span::Unit unit, ushort i, thread const Table&, thread float2* h) {
    UNROLL for (ushort t = 0; t < 4; t++) {
      const uint both = unit.word[t][i];
      if (code_form == kFormF32)
        h[t] = as_type<float2>(uint2(unit.word[2 * t][i], unit.word[2 * t + 1][i]));
      else if (code_form == kFormF16)
        h[t] = float2(as_type<half2>(both));
      else
        h[t] = as_type<float2>(uint2(both << 16, both & 0xFFFF0000u));
    }
  }
};

/// Decodes tile i of a unit of any kind.
template <typename Codes, typename Table>
static inline void decode_pairs(typename Codes::Span::Unit unit, ushort i, thread const Table&,
                                thread half2* h) {
  Codes::decode(unit, i, h);
}
template <typename Codes, typename Table>
static inline void decode_pairs(typename Codes::Span::Unit unit, ushort i,
                                thread const Table& table, thread float2* h) {
  Codes::decode(unit, i, table, h);
}

/// Whether element (step t, half p) of a unit is kept, for callers that need zeros which no scale
/// can change.
static inline bool is_kept(uint positions, ushort t, ushort p) {
  const uint pair = positions >> (4 * p) & 15;
  return (pair & 3) == t || pair >> 2 == t;
}
