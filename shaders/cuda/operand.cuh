// Operands A of 16 rows of W and 64 slots, for kernels that are compiled for one form of weights
// (../common/cuda_parameters.h). Lane 4 g + j has the rows g and g + 8.
#pragma once
#include "real.cuh"

/// The bytes of a number of this MarlinScaleType, or of this MarlinZeroKind.
constexpr int scale_element_of(int type) {
  if (type >= kScaleE8m0) return 1;
  return type == kScaleF32 ? 4 : 2;
}
constexpr int zero_element_of(int kind) {
  if (kind == kZeroNone) return 0;
  return kind == kZeroInteger ? 1 : scale_element_of(kind - kZeroF32);
}

/// What a lane reads of the scales and zeros of a chunk of 64 slots, a quad for each group: of one
/// half of the row block, or of both. One-byte numbers of both are in one word, whose bytes 2 HALF
/// and 2 HALF + 1 belong to HALF. Numbers of two bytes have a word for each half, and float32 have
/// two.
template <class Op, int HALVES>
struct ChunkScales {
  static constexpr int words(int element) { return element <= 1 ? 1 : element * HALVES / 2; }
  u32 scales[Op::kQuads][words(Op::kScaleElement)];
  u32 zeros[Op::kQuads][words(Op::kZeroElement)];
};

/// Where a lane finds the row that ldmatrix wants of it, for operand A of a half of a row block of
/// floats of 16 bits: the bytes from a chunk of 64 slots on. Of step s, they are ^ 32 s.
__device__ inline u32 row_of_halves(int half, int lane) {
  const int r = lane % 8, row = 16 * half + lane / 8 % 2 * 8 + r;
  return row * 128 + (lane / 16 ^ r) * 16;
}

/// With ROUNDS, a weight is code * scale + zero, rounded to 16 bits (MARLIN_COMPUTE_W16).
template <class Codes, class Number, class Form, bool ROUNDS = false>
struct Operand {
  static constexpr bool kIsBf16 = Number::kMagic == Bf16::kMagic;
  static constexpr bool kE8m0 = Form::kScale == kScaleE8m0, kE4m3 = Form::kScale == kScaleE4m3;
  /// Floats are operands as they are: a piece is that of a step.
  static constexpr bool kFloats = Codes::kReal;
  /// The product of code and scale is exact in 16 bits, so that sums need no scale.
  static constexpr bool kExact = !ROUNDS && (kE4m3 || (kE8m0 && kIsBf16));
  /// Operands are whole weights.
  static constexpr bool kFolded = ROUNDS || kExact || kFloats;
  static constexpr bool kGroupsOf128 = !kFloats && Form::kShift == kLongGroupShift;
  /// Additive zeros are a product of their own.
  static constexpr bool kAdditive = !ROUNDS && Form::kZero >= kZeroF32;
  /// Quads of scales for 64 slots, or for 128 if that is the group.
  static constexpr int kQuads = Form::kShift == kLongGroupShift ? 1 : kMmaSlots >> Form::kShift;
  /// Steps of 16 slots of a group, of those in a chunk.
  static constexpr int kGroupSteps = 4 / kQuads;
  /// Pieces of 16 bytes of a lane, and the bytes of the codes of 32 rows of W and 64 slots: of 2:4
  /// weights, of those that are kept and their positions.
  static constexpr int kPieces = Codes::kWords, kTableBytes = Codes::kTableBytes;
  static constexpr int kChunkCodes = Codes::kSparse ? 4 * kMmaSparseWords : 1024 * kPieces;
  static constexpr int kScaleElement = kFloats ? 0 : scale_element_of(Form::kScale);
  static constexpr int kZeroElement = zero_element_of(Form::kZero);
  /// The bytes of these quads of a row block.
  static constexpr int kScaleBytes = kQuads * kRowBlock * kScaleElement;
  static constexpr int kZeroBytes = kQuads * kRowBlock * kZeroElement;
  /// Those that tiles keep in shared memory. They add additive zeros at the end (tile_zeros.cuh).
  static constexpr int kStagedZeroBytes = kAdditive ? 0 : kZeroBytes;
  static constexpr int kZeroType = kAdditive ? Form::kZero - kZeroF32 : -1;  // MarlinScaleType
  static constexpr int kShift = Form::kShift;
  static_assert(!kE4m3 || Form::kShift == 4, "forms that exist");
  static_assert(!kE8m0 || Form::kShift == 5, "forms that exist");
  static constexpr bool kHasWgmma = kFolded || has_wgmma_of(Form::kScale, kIsBf16);

  /// What decoded codes lack (decode.cuh), unless e8m0_factor has it.
  static constexpr float kCodeFactor =
      kE8m0 || (Codes::kIntegers && !kIsBf16) || Codes::kTableBytes != 0 ? 1.0f
                                                                         : float(1 << kFp4Exponent);
  /// What sums lack: exact products of E4M3 scales are code * scale * 2^-14, or 2^-7 in float16,
  /// whose range ends there.
  static constexpr float factor() {
    if (ROUNDS || kFloats) return 1.0f;
    return kE4m3 && !kIsBf16 ? 128.0f : kCodeFactor;
  }
  static constexpr float kFactor = factor();

  /// The operands of the four steps of a chunk. With WITHOUT_ZEROS, weights whose scale is 0 become
  /// 0.
  template <int HALF, bool WITHOUT_ZEROS = false, int HALVES>
  __device__ static void decode(const uint4 (&q)[kPieces],
                                const ChunkScales<Operand, HALVES>& scales, u32 (&a)[4][4]) {
    if constexpr (kFloats)
      UNROLL for (int step = 0; step < 4; step++) halves_of(q[step], a[step]);
    else
      UNROLL for (int row = 0; row < 2; row++) UNROLL for (int unit = 0; unit < 2; unit++)
          decode_row<HALF, WITHOUT_ZEROS>(q, scales, unit, row, a);
  }
  /// The operands of the two steps of a unit alone.
  template <int HALF, int HALVES>
  __device__ static void decode_unit(const uint4 (&q)[kPieces],
                                     const ChunkScales<Operand, HALVES>& scales, int unit,
                                     u32 (&a)[4][4]) {
    UNROLL for (int row = 0; row < 2; row++) decode_row<HALF, false>(q, scales, unit, row, a);
  }

  /// The sparse operands of both units of a chunk, of the kept codes of the rows g and g + 8 of a
  /// half. (A word has four steps of 16 slots, and one zero point.)
  template <int HALF, int HALVES>
  __device__ static void decode_kept(const u32 (&words)[2],
                                     const ChunkScales<Operand, HALVES>& scales, u32 (&a)[2][4]) {
    static_assert(Codes::kSparse && Form::kZero == kZeroNone, "forms that exist");
    UNROLL for (int row = 0; row < 2; row++) {
      u32 h[4];
      const u32 word[1] = {words[row]};
      if constexpr (kExact && kIsBf16)
        Codes::bits(word[0], h);
      else
        Codes::decode(Number(), word, zero_point<HALF>(scales, 0, row), h);
      UNROLL for (int step = 0; step < 4; step++) {
        u32& to = a[step / 2][2 * (step % 2) + row];
        to = h[step];
        if (kExact) to = Number::multiply(to, multiplier<HALF>(scales, step, row));
      }
    }
  }

  /// The factor in float32 of the sum of the group of step `step`.
  template <int HALF, int HALVES>
  __device__ static float scale(const ChunkScales<Operand, HALVES>& scales, int step, int row) {
    const u32 bits = scale_bits<HALF>(scales, step, row);
    return kE8m0 ? e8m0_factor(bits) : float_of<Form::kScale>(bits);
  }
  /// The additive zero of the group of step `step`.
  template <int HALF, int HALVES>
  __device__ static float zero(const ChunkScales<Operand, HALVES>& scales, int step, int row) {
    return float_of<Form::kZero - kZeroF32>(
        element<HALF, kZeroElement>(scales.zeros[quad_of(step)], row));
  }

 private:
  __device__ static void halves_of(const uint4& piece, u32 (&a)[4]) {
    a[0] = piece.x;
    a[1] = piece.y;
    a[2] = piece.z;
    a[3] = piece.w;
  }
  static constexpr u32 kCodeBits = 0xF * kHalves;  // of U4
  static constexpr u32 kMagnitude =                // of a scale that is a unit of sums
      Form::kScale == kScaleF32 ? 0x7FFFFFFF : 0x7FFF;
  __device__ static constexpr int quad_of(int step) { return step / kGroupSteps; }

  /// A row of a unit: the operands of its two steps that lane row g or g + 8 holds.
  template <int HALF, bool WITHOUT_ZEROS, int HALVES>
  __device__ static void decode_row(const uint4 (&q)[kPieces],
                                    const ChunkScales<Operand, HALVES>& scales, int unit, int row,
                                    u32 (&a)[4][4]) {
    u32 h[4];
    codes_of<HALF, WITHOUT_ZEROS>(q, scales, unit, row, h);
    UNROLL for (int t = 0; t < 4; t++) {
      const int step = 2 * unit + t / 2;
      u32& to = a[step][2 * (t % 2) + row];
      to = h[t];
      if constexpr (kExact) to = Number::multiply(to, multiplier<HALF>(scales, step, row));
      if constexpr (ROUNDS) to = rounded<HALF>(to, scales, step, row);
    }
  }
  /// The codes of a row of a unit, less zero points.
  template <int HALF, bool WITHOUT_ZEROS, int HALVES>
  __device__ static void codes_of(const uint4 (&q)[kPieces],
                                  const ChunkScales<Operand, HALVES>& scales, int unit, int row,
                                  u32 (&h)[4]) {
    u32 word[kPieces];
    // INT8 has a word for each step, whose scales may differ (groups of 16 slots).
    bool is_zero[kPieces];
    UNROLL for (int i = 0; i < kPieces; i++) is_zero[i] =
        WITHOUT_ZEROS && (scale_bits<HALF>(scales, 2 * unit + i, row) & kMagnitude) == 0;
    const u32 zero =
        Codes::kZeros && is_zero[0] ? u32(Number::kMagic) : zero_point<HALF>(scales, unit, row);
    words_of(q, unit, row, word);
    if constexpr (kExact && kIsBf16)
      Codes::bits(word[0], h);
    else
      decode_words(word, zero, is_zero, h);
  }
  /// Two weights of a group: its codes times the scale, and the zero, rounded to 16 bits.
  template <int HALF, int HALVES>
  __device__ static u32 rounded(u32 codes, const ChunkScales<Operand, HALVES>& scales, int step,
                                int row) {
    constexpr bool kHalfScale = Form::kScale == kScaleF16, kAdds = Form::kZero >= kZeroF32;
    if constexpr (!kIsBf16 && kHalfScale && (!kAdds || Form::kZero == kZeroF16)) {
      const u32 both = __byte_perm(scale_bits<HALF>(scales, step, row), 0, 0x1010);
      if constexpr (!kAdds) return Number::multiply(codes, both);
      const u32 zero = element<HALF, kZeroElement>(scales.zeros[quad_of(step)], row);
      return Number::multiply_add(codes, both, __byte_perm(zero, 0, 0x1010));
    } else if constexpr (kIsBf16 && kHalfScale && !kAdds && kPieces == 1) {
      // A float16 is the sum of two bfloat16 of eight and three bits. The product of the latter and
      // a code of four bits is exact, so that one rounding is left.
      const float all = scale<HALF>(scales, step, row) * kCodeFactor;
      const u32 high = __float_as_uint(all) >> 16;
      const float rest = fabsf(all) <= 0x1p30f ? all - __uint_as_float(high << 16) : 0.0f;
      const u32 low = __float_as_uint(rest) >> 16;
      return Number::multiply_add(codes, high * kHalves, Number::multiply(codes, low * kHalves));
    } else {
      const float by = scale<HALF>(scales, step, row) * kCodeFactor;
      if constexpr (kAdds) {
        const float zero = Operand::zero<HALF>(scales, step, row);
        return Number::round(fmaf(Number::low(codes), by, zero),
                             fmaf(Number::high(codes), by, zero));
      }
      return Number::round(Number::low(codes) * by, Number::high(codes) * by);
    }
  }
  /// The codes of 32 slots: INT8 has a piece for each unit, other codes have both units in one.
  __device__ static void words_of(const uint4 (&q)[kPieces], int unit, int row,
                                  u32 (&word)[kPieces]) {
    const uint4 piece = q[unit % kPieces];
    const u32 four[4] = {piece.x, piece.y, piece.z, piece.w};
    UNROLL for (int i = 0; i < kPieces; i++) word[i] =
        four[kPieces == 1 ? 2 * unit + row : 2 * row + i];
  }
  /// Decodes codes, or makes them 0.
  __device__ static void decode_words(const u32 (&word)[kPieces], u32 zero,
                                      const bool (&is_zero)[kPieces], u32 (&h)[4]) {
    if constexpr (Codes::kZeros && kPieces == 1) {
      Codes::decode(Number(), word, zero, h, is_zero[0] ? 0 : kCodeBits);
    } else {
      u32 codes[kPieces];
      UNROLL for (int i = 0; i < kPieces; i++) codes[i] = is_zero[i] ? Codes::kNothing : word[i];
      Codes::decode(Number(), codes, zero, h);
    }
  }
  /// The number of a row, in the low bits.
  template <int HALF, int ELEMENT, int WORDS>
  __device__ static u32 element(const u32 (&words)[WORDS], int row) {
    if constexpr (ELEMENT == 4) return words[(2 * HALF + row) % WORDS];
    return ELEMENT == 1 ? words[0] >> (8 * (2 * HALF + row)) : words[HALF % WORDS] >> (16 * row);
  }
  template <int HALF, int HALVES>
  __device__ static u32 scale_bits(const ChunkScales<Operand, HALVES>& scales, int step, int row) {
    return element<HALF, kScaleElement>(scales.scales[quad_of(step)], row);
  }
  template <int TYPE>
  __device__ static float float_of(u32 bits) {
    if (TYPE == kScaleF32) return __uint_as_float(bits);
    return TYPE == kScaleF16 ? f16_to_float(u16(bits)) : bf16_to_float(u16(bits));
  }
  /// A scale as two 16-bit numbers: a byte in both halves, shifted to the exponent.
  template <int HALF, int HALVES>
  __device__ static u32 multiplier(const ChunkScales<Operand, HALVES>& scales, int step, int row) {
    const int byte = 2 * HALF + row;
    const u32 both =
        __byte_perm(scales.scales[kE8m0 ? step / 2 : step % kQuads][0], 0, 0x4040 | byte * 0x101);
    if (kE8m0) return both << 7;  // 2^(126 + e): bits() are 2^-126
    if (kIsBf16) return both * 16 + ((127 + 126 - kFp4Exponent - kE5m3Zero) << 7) * kHalves;
    return both * 128 + ((15 + 7 - kE5m3Zero) << 10) * kHalves;
  }
  template <int HALF, int HALVES>
  __device__ static u32 zero_point(const ChunkScales<Operand, HALVES>& scales, int unit, int row) {
    if (!Codes::kZeros || Form::kZero >= kZeroF32) return Number::kMagic;
    if (Form::kZero != kZeroInteger) return Number::kMagic | Codes::kMiddle * kHalves;
    return Number::kMagic |
           __byte_perm(scales.zeros[quad_of(2 * unit)][0], 0, 0x4040 | (2 * HALF + row) * 0x101);
  }
};
