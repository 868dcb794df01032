// Packed codes (layout.h), dense and 2:4 sparse, as vectors of 4 columns x 4 slots, and their
// values in INT8 and BF16.
#pragma once

#include "backends/cpu/arm64/neon.h"
#include "backends/cpu/e2m1.h"

namespace metal_marlin::cpu {

/// 4 columns x 8 slots: slots 0..3 and 4..7, one byte each. A byte of a 4-bit code has no bits of
/// its neighbor.
struct Codes {
  uint8x16_t low, high;
};

/// The code of the value 0, or with integer zeros its code + 16 - zero.
template <CodeKind kCode>
inline constexpr uint8_t kCodeOfZero = kCode == CodeKind::u4zero ? 16 : 0;
template <>
inline constexpr uint8_t kCodeOfZero<CodeKind::u4> = 8;

template <CodeKind kCode, bool kSparse>
struct CodeLines {
  static_assert(!(kSparse && is_eight_bits(kCode)));
  static constexpr int kDenseBytes = is_eight_bits(kCode) ? 512 : 256;
  static constexpr int kBytes = kSparse ? kSparseGroupBytes : kDenseBytes;  ///< of a block
  static constexpr bool kCountsKept =
      kSparse && is_additive(kCode);  ///< zeros take part where codes are kept

  /// The place of the codes of vector v of the panel, for one block. The next vector of the column
  /// group is 16 bytes further.
  MARLIN_INLINE static const uint8_t* at(const uint8_t* super, int64_t block, int v) {
    return super + (block * kColumnGroups + v / 4) * kBytes + v % 4 * 16;
  }

  /// Reads 8 slots, number `octet` (0..3) of the block, from at(). Applies integer zeros: the bytes
  /// become code + 16 - zero, and `offsets` has the 16 - zero of each byte. A slot that is not kept
  /// gets the code of 0, so that all later steps are the same as for dense weights.
  MARLIN_INLINE static Codes read(const uint8_t* from, const uint8_t* offsets, int octet) {
    const uint8x16_t fifteen = vdupq_n_u8(15);
    if constexpr (is_eight_bits(kCode)) {
      return {vld1q_u8(from + octet * 128), vld1q_u8(from + octet * 128 + 64)};
    } else {
      uint8x16_t offset = vdupq_n_u8(0);
      if constexpr (kCode == CodeKind::u4zero) offset = vld1q_u8(offsets);
      if constexpr (kSparse) {
        const uint8x16_t unit = vld1q_u8(from + octet / 2 * 64);
        const uint8x16_t kept =
            vaddq_u8(octet % 2 == 0 ? vandq_u8(unit, fifteen) : vshrq_n_u8(unit, 4), offset);
        return {expand(kept, from, 2 * octet), expand(kept, from, 2 * octet + 1)};
      } else {
        const uint8x16_t packed = vld1q_u8(from + octet * 64);
        return {vaddq_u8(vandq_u8(packed, fifteen), offset),
                vaddq_u8(vshrq_n_u8(packed, 4), offset)};
      }
    }
  }

  /// Codes that are 1 for kept slots and 0 for others.
  MARLIN_INLINE static Codes kept(const uint8_t* from, int octet) {
    const uint8x16_t one = vdupq_n_u8(1);
    const auto any = [&](int quad) {
      return vandq_u8(vorrq_u8(is_at(from, quad, 0), is_at(from, quad, 1)), one);
    };
    return {any(2 * octet), any(2 * octet + 1)};
  }

 private:
  /// Copies byte `byte` of every column's dword to all four slots.
  MARLIN_INLINE static uint8x16_t spread(uint8x16_t x, int byte) {
    const uint8x16_t first = {0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 12, 12, 12, 12};
    return vqtbl1q_u8(x, vaddq_u8(first, vdupq_n_u8(static_cast<uint8_t>(byte))));
  }

  /// All ones in the slot that holds kept code `which` (0, 1) of a quad (0..7 of the block).
  MARLIN_INLINE static uint8x16_t is_at(const uint8_t* from, int quad, int which) {
    const uint8x16_t slots = {0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3};
    const uint8x16_t positions = spread(vld1q_u8(from + kSparsePositions), quad / 4 + 2 * which);
    const uint8x16_t shifted =
        vshlq_u8(positions, vdupq_n_s8(static_cast<int8_t>(-2 * (quad % 4))));
    return vceqq_u8(vandq_u8(shifted, vdupq_n_u8(3)), slots);
  }

  MARLIN_INLINE static uint8x16_t expand(uint8x16_t kept, const uint8_t* from, int quad) {
    const uint8x16_t nothing = vdupq_n_u8(kCodeOfZero<kCode>);
    return vbslq_u8(is_at(from, quad, 0), spread(kept, quad % 2),
                    vbslq_u8(is_at(from, quad, 1), spread(kept, quad % 2 + 2), nothing));
  }
};

/// Four steps of weights for one vector of columns.
using Quad = uint8x16_t[4];

/// Steps of 4 slots as signed bytes. FP4 is 2 * value. Codes of u4 and u4zero are 8 and 16 too
/// large, which the sums of the activations correct.
template <CodeKind kCode, bool kSparse>
struct Int8Codes {
  using Lines = CodeLines<kCode, kSparse>;
  static constexpr int kQuads = 2;  ///< of a block

  MARLIN_INLINE static void read(const uint8_t* from, const uint8_t* offsets, int quad, Quad& w) {
    for (int i = 0; i < 2; ++i) {
      const Codes codes = Lines::read(from, offsets, 2 * quad + i);
      w[2 * i] = value(codes.low);
      w[2 * i + 1] = value(codes.high);
    }
  }
  MARLIN_INLINE static void kept(const uint8_t* from, int quad, Quad& w) {
    for (int i = 0; i < 2; ++i) {
      const Codes codes = Lines::kept(from, 2 * quad + i);
      w[2 * i] = codes.low;
      w[2 * i + 1] = codes.high;
    }
  }

 private:
  MARLIN_INLINE static uint8x16_t value(uint8x16_t code) {
    if constexpr (kCode != CodeKind::fp4) return code;
    return vreinterpretq_u8_s8(vqtbl1q_s8(doubled(CodeIndices{}), code));
  }
  template <size_t... kIndex>
  MARLIN_INLINE static int8x16_t doubled(std::index_sequence<kIndex...>) {
    constexpr auto kValues = doubled_e2m1();
    return int8x16_t{kValues[kIndex]...};
  }
};

/// The factor by which the scales of such codes are multiplied.
constexpr float int8_factor(CodeKind code) { return code == CodeKind::fp4 ? 0.5f : 1.0f; }

/// The high and low bytes of the BF16 values of 4-bit codes; with integer zeros, of code + 16 -
/// zero.
template <CodeKind kCode>
struct Bf16Table {
  uint8_t low[32], high[32];
  constexpr Bf16Table() : low{}, high{} {
    for (int i = 0; i < 32; ++i) {
      const float value =
          kCode == CodeKind::fp4 ? kE2m1[i % 16] : static_cast<float>(i - kCodeOfZero<kCode>);
      low[i] = static_cast<uint8_t>(std::bit_cast<uint32_t>(value) >> 16);
      high[i] = static_cast<uint8_t>(std::bit_cast<uint32_t>(value) >> 24);
    }
  }
};

/// BF16 values of slots 0 2 and 1 3 from the low and high bytes of 4.
MARLIN_INLINE void join_bytes(uint8x16_t low, uint8x16_t high, uint8x16_t& even, uint8x16_t& odd) {
  even = vtrn1q_u8(low, high);
  odd = vtrn2q_u8(low, high);
}

/// Steps of 2 slots as BF16, without scale: first_slot_of_pair (activations.h) puts slots 0 2, 4 6,
/// 1 3, 5 7 of 8 into a quad.
template <CodeKind kCode, bool kSparse>
struct Bf16Codes {
  using Lines = CodeLines<kCode, kSparse>;
  static constexpr int kQuads = 4;
  static constexpr Bf16Table<kCode> kTable{};

  MARLIN_INLINE static void read(const uint8_t* from, const uint8_t* offsets, int quad, Quad& w) {
    const Codes codes = Lines::read(from, offsets, quad);
    pairs(codes.low, w[0], w[2]);
    pairs(codes.high, w[1], w[3]);
  }

  /// Values that are not 0 for kept slots.
  MARLIN_INLINE static void kept(const uint8_t* from, int quad, Quad& w) {
    const Codes kept = Lines::kept(from, quad);
    w[0] = vtrn1q_u8(kept.low, kept.low);
    w[1] = vtrn1q_u8(kept.high, kept.high);
    w[2] = vtrn2q_u8(kept.low, kept.low);
    w[3] = vtrn2q_u8(kept.high, kept.high);
  }

 private:
  /// The values of slots 0 2 and 1 3 of 4.
  MARLIN_INLINE static void pairs(uint8x16_t code, uint8x16_t& even, uint8x16_t& odd) {
    if constexpr (is_eight_bits(kCode)) {
      const int32x4_t x = vreinterpretq_s32_u8(code);
      // An int8 has 8 significant bits, so the upper half of its float holds it exactly.
      const auto uppers = [](int32x4_t a, int32x4_t b) {
        const auto bits = [](int32x4_t i) {
          return vreinterpretq_u16_f32(vcvtq_f32_s32(vshrq_n_s32(i, 24)));
        };
        return vreinterpretq_u8_u16(vtrn2q_u16(bits(a), bits(b)));
      };
      even = uppers(vshlq_n_s32(x, 24), vshlq_n_s32(x, 8));
      odd = uppers(vshlq_n_s32(x, 16), x);
    } else {
      join_bytes(look_up(kTable.low, code), look_up(kTable.high, code), even, odd);
    }
  }
  MARLIN_INLINE static uint8x16_t look_up(const uint8_t (&table)[32], uint8x16_t code) {
    if constexpr (kCode == CodeKind::u4zero)
      return vqtbl2q_u8({vld1q_u8(table), vld1q_u8(table + 16)}, code);
    return vqtbl1q_u8(vld1q_u8(table), code);
  }
};

/// The BF16 values of a pair of slots as floats.
MARLIN_INLINE float32x4_t first_of_pair(uint8x16_t pair) {
  return vreinterpretq_f32_u32(vshlq_n_u32(vreinterpretq_u32_u8(pair), 16));
}
MARLIN_INLINE float32x4_t second_of_pair(uint8x16_t pair) {
  return vreinterpretq_f32_u32(vandq_u32(vreinterpretq_u32_u8(pair), vdupq_n_u32(0xffff0000u)));
}

}  // namespace metal_marlin::cpu
