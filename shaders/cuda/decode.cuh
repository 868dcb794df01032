// Decodes packed codes to pairs of 16-bit numbers by bit operations. ../common/layout.h has the
// layouts. h[t] holds both halves of step t; every decoded number is exact. F16 holds integers
// themselves, and 2^-14 of FP4 and E4M3; Bf16 holds 2^-14 of all of them. Real codes (real.cuh) are
// sums of such numbers.
#pragma once
#include "numbers.cuh"

/// What codes have in common.
struct AnyCodes {
  static constexpr bool kSparse = false;   // 2:4: half of the slots have codes
  static constexpr bool kZeros = false;    // they may have zero points
  static constexpr u32 kMiddle = 0;        // the zero point of those that have none of their own
  static constexpr int kWords = 1;         // of a unit, a lane and a tile
  static constexpr bool kIntegers = true;  // which F16 holds as they are
  static constexpr bool kReal = false;
  static constexpr u32 kNothing = 0;     // a word of codes that are 0
  static constexpr int kTableBytes = 0;  // in shared memory, of what they are looked up in

  AnyCodes() = default;
  __device__ AnyCodes(const void*, int) {}  // only real codes have numbers of their own
};

/// `zero` holds kMagic | zero point, twice; only codes with zero points read it.
struct Fp4 : AnyCodes {
  using AnyCodes::AnyCodes;
  static constexpr bool kIntegers = false;
  /// The bits of codes as bfloat16: a number whose exponent field holds only the low two bits of
  /// E2M1 is 2^-126 of it.
  __device__ static void bits(u32 q, u32 (&h)[4]) {
    constexpr u32 kCode = 0x81C0u * kHalves;
    h[0] = q & kCode;
    h[1] = (q << 6) & kCode;
    h[2] = __funnelshift_r(q, q, 4) & kCode;
    h[3] = ((q << 2) & (0x80C0u * kHalves)) | ((q >> 6) & (0x0100u * kHalves));
  }
  /// The same bits three places higher, but for the sign, are 2^-14 in float16.
  __device__ static void decode(F16, const u32 (&word)[1], u32, u32 (&h)[4]) {
    bits(word[0], h);
    UNROLL for (int t = 0; t < 4; t++) h[t] =
        (h[t] & (0x8000u * kHalves)) | ((h[t] << 3) & (0x0E00u * kHalves));
  }
  /// 2^112 makes 2^-14 of 2^-126.
  __device__ static void decode(Bf16, const u32 (&word)[1], u32, u32 (&h)[4]) {
    bits(word[0], h);
    UNROLL for (int t = 0; t < 4; t++) h[t] = Bf16::multiply(h[t], 0x7780u * kHalves);
  }
};

/// (a & b) | c in one instruction, where the compiler takes two for constants b and c.
__device__ inline u32 and_or(u32 a, u32 b, u32 c) {
  u32 d;
  asm("lop3.b32 %0, %1, %2, %3, 0xEA;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
  return d;
}

struct U4 : AnyCodes {
  using AnyCodes::AnyCodes;
  static constexpr bool kZeros = true;
  static constexpr u32 kMiddle = 8;
  /// `code_bits` are the bits of a code that count: all, or none.
  template <class Number>
  __device__ static void decode(Number, const u32 (&word)[1], u32 zero, u32 (&h)[4],
                                u32 code_bits = 0xF * kHalves) {
    UNROLL for (int t = 0; t < 4; t++) h[t] =
        Number::subtract(((word[0] >> (4 * t)) & code_bits) | Number::kMagic, zero);
  }
};

/// The same with a quarter less instructions, and a register more.
struct QuickU4 : U4 {
  using U4::U4;
  template <class Number>
  __device__ static void decode(Number, const u32 (&word)[1], u32 zero, u32 (&h)[4],
                                u32 code_bits = 0xF * kHalves) {
    UNROLL for (int t = 0; t < 4; t++) h[t] =
        Number::subtract(and_or(word[0] >> (4 * t), code_bits, Number::kMagic), zero);
  }
};

struct I8 : AnyCodes {
  using AnyCodes::AnyCodes;
  static constexpr u32 kNothing = 0x80808080u;
  static constexpr int kWords = 2;
  __device__ static void decode(F16, const u32 (&word)[2], u32, u32 (&h)[4]) {
    UNROLL for (int t = 0; t < 4; t++) h[t] =
        F16::subtract(((word[t / 2] >> (8 * (t % 2))) & 0x00FF00FFu) | F16::kMagic, 0x64806480u);
  }
  /// bfloat16 has room for seven bits below kMagic. The value is (v & 127) - (v < 128 ? 128 : 0).
  __device__ static void decode(Bf16, const u32 (&word)[2], u32, u32 (&h)[4]) {
    UNROLL for (int t = 0; t < 4; t++) {
      const u32 v = word[t / 2] >> (8 * (t % 2));
      h[t] = Bf16::subtract((v & 0x007F007Fu) | Bf16::kMagic, (~v & 0x00800080u) | Bf16::kMagic);
    }
  }
};

/// Integers from 0 to 255.
struct U8 : AnyCodes {
  using AnyCodes::AnyCodes;
  static constexpr bool kZeros = true;
  static constexpr u32 kMiddle = 128;
  static constexpr int kWords = 2;
  __device__ static void decode(F16, const u32 (&word)[2], u32 zero, u32 (&h)[4]) {
    UNROLL for (int t = 0; t < 4; t++) h[t] =
        F16::subtract(((word[t / 2] >> (8 * (t % 2))) & kBytes) | F16::kMagic, zero);
  }
  __device__ static void decode(Bf16, const u32 (&word)[2], u32 zero, u32 (&h)[4]) {
    const u32 point = number(zero);
    UNROLL for (int t = 0; t < 4; t++) h[t] =
        Bf16::subtract(number(word[t / 2] >> (8 * (t % 2))), point);
  }

 private:
  static constexpr u32 kBytes = 0x00FF00FFu;
  /// 2^-14 of the low byte of each half. bfloat16 has room for seven of its bits below kMagic,
  /// whose own 2^7 is the eighth bit if that is set.
  __device__ static u32 number(u32 v) {
    return Bf16::subtract((v & 0x007F007Fu) | Bf16::kMagic,
                          ((~v & 0x00800080u) >> 7) * (Bf16::kMagic & 0xFFFFu));
  }
};

/// Finite E4M3 numbers. The row factor has the NaN of a row with others.
struct E4m3 : AnyCodes {
  using AnyCodes::AnyCodes;
  static constexpr bool kIntegers = false;
  static constexpr int kWords = 2;
  /// Below the signs, their bits are a float16 of 2^-8.
  __device__ static void decode(F16, const u32 (&word)[2], u32, u32 (&h)[4]) {
    UNROLL for (int t = 0; t < 4; t++) {
      const u32 v = word[t / 2] >> (8 * (t % 2));
      h[t] = F16::multiply((v & kSigns) << 8 | (v & kMagnitudes) << 7, 0x2400u * kHalves);
    }
  }
  /// And a bfloat16 of 2^-120.
  __device__ static void decode(Bf16, const u32 (&word)[2], u32, u32 (&h)[4]) {
    UNROLL for (int t = 0; t < 4; t++) {
      const u32 v = word[t / 2] >> (8 * (t % 2));
      h[t] = Bf16::multiply((v & kSigns) << 8 | (v & kMagnitudes) << 4, 0x7480u * kHalves);
    }
  }

 private:
  static constexpr u32 kSigns = 0x00800080u, kMagnitudes = 0x007F007Fu;
};

/// Kept codes of 2:4 weights are in words like those of dense weights.
template <class Dense>
struct Sparse : Dense {
  using Dense::Dense;
  static constexpr bool kSparse = true;
};
template <>
struct Sparse<U4> : QuickU4 {
  using QuickU4::QuickU4;
  static constexpr bool kSparse = true;
};

/// The positions of the two of four slots that are not kept, for those of the two that are. Two
/// neighbors that share a bit, 0 and 1 or 2 and 3, have all four bits inverted; others have both
/// low ones.
__device__ inline u32 other_positions(u32 positions) {
  const u32 apart = positions ^ (positions >> 2);
  const u32 pairs = apart & ~(apart >> 1) & 0x11111111u;
  return positions ^ 0x55555555u ^ (pairs * 15);
}
