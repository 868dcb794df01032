// Operands A of 16 rows of W and 64 slots, for kernels that are compiled for one form of weights
// (../common/cuda_parameters.h). Lane 4 g + j has the rows g and g + 8.
#pragma once
#include "decode.cuh"

/// What a lane needs of the scales and zeros of a chunk of 64 slots. HALF of the row block has the
/// bytes 2 HALF and 2 HALF + 1 of each word of one-byte scales and zeros, or word HALF of two.
struct ChunkScales {
  u32 words[4];  // E8M0: of the units 0, 1; E4M3: of the steps 0..3; float16: of the halves
  u32 zeros;
};

template <class Codes, class Number, class Form>
struct Operand {
  static constexpr bool kIsBf16 = Number::kMagic == Bf16::kMagic;
  static constexpr bool kE8m0 = Form::kScale == kScaleE8m0, kE4m3 = Form::kScale == kScaleE4m3;
  /// The product of code and scale is exact in 16 bits, so that sums need no scale.
  static constexpr bool kFolded = kE4m3 || (kE8m0 && kIsBf16);
  /// Bytes of the scales and of the zeros of a row block for 64 slots, or for 128 if that is the
  /// group.
  static constexpr int kScaleBytes = kE4m3 ? 128 : 64;
  static constexpr int kZeroBytes = Form::kZero == kZeroInteger ? 32 : 0;
  static constexpr bool kGroupsOf128 = Form::kShift == 7;
  static_assert(Form::kScale == kScaleE8m0 ? Form::kShift == 5 : Form::kShift == (kE4m3 ? 4 : 7),
                "forms that exist");

  /// Folded products are code * scale * 2^-14, or 2^-7 in float16, whose range ends there. Others
  /// lack what decoding left out (decode.cuh), unless e8m0_factor has it.
  static constexpr float factor() {
    if (kE8m0) return 1.0f;
    if (kE4m3 && !kIsBf16) return 128.0f;
    return kE4m3 || kIsBf16 ? float(1 << kFp4Exponent) : 1.0f;
  }
  static constexpr float kFactor = factor();

  /// The operands of the four steps of a chunk. With WITHOUT_ZEROS, weights whose scale is 0 become
  /// 0.
  template <int HALF, bool WITHOUT_ZEROS = false>
  __device__ static void decode(const uint4& q, const ChunkScales& scales, u32 (&a)[4][4]) {
    const u32 words[2][2] = {{q.x, q.y}, {q.z, q.w}};
    UNROLL for (int row = 0; row < 2; row++) {
      const bool is_zero = WITHOUT_ZEROS && (scales.words[HALF] >> (16 * row) & 0x7FFF) == 0;
      const u32 zero = is_zero ? u32(Number::kMagic) : zero_point<HALF>(scales, row);
      const u32 code_bits = is_zero ? 0 : kCodeBits;
      UNROLL for (int unit = 0; unit < 2; unit++) {
        u32 h[4];
        const u32 word[1] = {words[unit][row]};
        if constexpr (kFolded && kIsBf16)
          Codes::bits(word[0], h);
        else
          decode_word(word, zero, code_bits, h);
        UNROLL for (int t = 0; t < 4; t++) {
          const int step = 2 * unit + t / 2;
          u32& to = a[step][2 * (t % 2) + row];
          to = h[t];
          if (kFolded) to = Number::multiply(to, multiplier<HALF>(scales, step, row));
        }
      }
    }
  }

  /// The factor in float32 of the sum of a group: of unit `unit` if groups have 32 slots.
  template <int HALF>
  __device__ static float scale(const ChunkScales& scales, int unit, int row) {
    if (kE8m0) return e8m0_factor(scales.words[unit] >> (8 * (2 * HALF + row)));
    return f16_to_float(u16(scales.words[HALF] >> (16 * row)));
  }

 private:
  static constexpr u32 kCodeBits = 0xF * kHalves;  // of U4
  __device__ static void decode_word(const u32 (&word)[1], u32 zero, u32 code_bits, u32 (&h)[4]) {
    if constexpr (Codes::kZeros)
      Codes::decode(Number(), word, zero, h, code_bits);
    else
      Codes::decode(Number(), word, zero, h);
  }
  /// A scale as two 16-bit numbers: a byte in both halves, shifted to the exponent.
  template <int HALF>
  __device__ static u32 multiplier(const ChunkScales& scales, int step, int row) {
    const int byte = 2 * HALF + row;
    const u32 both = __byte_perm(scales.words[kE8m0 ? step / 2 : step], 0, 0x4040 | byte * 0x101);
    if (kE8m0) return both << 7;  // 2^(126 + e): bits() are 2^-126
    if (kIsBf16) return both * 16 + ((127 + 126 - kFp4Exponent - kE5m3Zero) << 7) * kHalves;
    return both * 128 + ((15 + 7 - kE5m3Zero) << 10) * kHalves;
  }
  template <int HALF>
  __device__ static u32 zero_point(const ChunkScales& scales, int row) {
    if (!Codes::kZeros) return 0;
    if (Form::kZero != kZeroInteger) return Number::kMagic | 8 * kHalves;
    return Number::kMagic | __byte_perm(scales.zeros, 0, 0x4040 | (2 * HALF + row) * 0x101);
  }
};
