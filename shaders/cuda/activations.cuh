// Reads activations as operand B of mma.m16n8k16: of each step of 16 slots, lane 4 g + j has the
// columns 2 j, 2 j + 1, 2 j + 8 and 2 j + 9 of row g.
#pragma once
#include "numbers.cuh"

/// float16 activations, and codes as integers. Raw is what a lane loads, untouched, so that loads
/// can wait for each other's sake.
struct ActivationF16 {
  typedef u16 Stored;
  typedef u32 Pair;
  typedef uint2 Raw;
  typedef F16 Number;
  static constexpr int kPieces = 1;
  static constexpr bool kQuantized = false;
  __device__ static void take(Raw raw, u32 (&b)[kPieces][2]) {
    b[0][0] = raw.x;
    b[0][1] = raw.y;
  }
  __device__ static Raw join(const Stored (&x)[4]) {
    return make_uint2(x[0] | u32(x[1]) << 16, x[2] | u32(x[3]) << 16);
  }
  __device__ static Raw join(Pair first, Pair second) { return make_uint2(first, second); }
};
struct ActivationBf16 : ActivationF16 {
  typedef Bf16 Number;
};

/// float16 activations as the sums of two bfloat16, for weights that are bfloat16 or sums of them.
/// (The third piece of eleven bits is 0.)
struct ActivationF16Pieces : ActivationF16 {
  typedef Bf16 Number;
  static constexpr int kPieces = 2;
  __device__ static void take(Raw raw, u32 (&b)[kPieces][2]) {
    const u32 words[2] = {raw.x, raw.y};
    UNROLL for (int i = 0; i < 2; i++) {
      const Bf16Pieces low(f16_to_float(u16(words[i]))), high(f16_to_float(u16(words[i] >> 16)));
      UNROLL for (int p = 0; p < kPieces; p++) b[p][i] = low.piece[p] | high.piece[p] << 16;
    }
  }
};

/// float32 activations as the sums of three bfloat16.
struct ActivationF32 {
  typedef float Stored;
  typedef float2 Pair;
  typedef float4 Raw;
  typedef Bf16 Number;
  static constexpr int kPieces = Bf16Pieces::kCount;
  static constexpr bool kQuantized = false;
  __device__ static void take(Raw raw, u32 (&b)[kPieces][2]) {
    const float x[4] = {raw.x, raw.y, raw.z, raw.w};
    UNROLL for (int i = 0; i < 2; i++) {
      const Bf16Pieces low(x[2 * i]), high(x[2 * i + 1]);
      UNROLL for (int p = 0; p < kPieces; p++) b[p][i] = low.piece[p] | high.piece[p] << 16;
    }
  }
  __device__ static Raw join(const Stored (&x)[4]) { return make_float4(x[0], x[1], x[2], x[3]); }
  __device__ static Raw join(Pair first, Pair second) {
    return make_float4(first.x, first.y, second.x, second.y);
  }
};

/// INT8 activations become float16; their scales multiply sums of 32 slots.
struct ActivationI8 {
  typedef signed char Stored;
  typedef u16 Pair;
  typedef u32 Raw;
  typedef F16 Number;
  static constexpr int kPieces = 1;
  static constexpr bool kQuantized = true;
  __device__ static void take(Raw raw, u32 (&b)[kPieces][2]) {
    const u32 v = raw ^ 0x80808080u;  // 2^10 + 128 + x in float16 has these bytes below 0x64
    b[0][0] = F16::subtract(__byte_perm(v, 0x64646464u, 0x4140), 0x64806480u);
    b[0][1] = F16::subtract(__byte_perm(v, 0x64646464u, 0x4342), 0x64806480u);
  }
  __device__ static Raw join(const Stored (&x)[4]) {
    u32 raw = 0;
    UNROLL for (int i = 0; i < 4; i++) raw |= (u32(x[i]) & 0xFF) << (8 * i);
    return raw;
  }
  __device__ static Raw join(Pair first, Pair second) { return first | u32(second) << 16; }
};

/// E4M3 activations, which tiles alone multiply as they are.
struct ActivationE4m3 {
  typedef unsigned char Stored;
  typedef F16 Number;
  static constexpr int kPieces = 1;
  static constexpr bool kQuantized = true;
};

/// A lane's part of a step, from its first column on, which is aligned to a pair.
template <class Activation>
__device__ inline typename Activation::Raw load_step(const typename Activation::Stored* from) {
  typedef typename Activation::Pair Pair;
  return Activation::join(*reinterpret_cast<const Pair*>(from),
                          *reinterpret_cast<const Pair*>(from + 8));
}
/// Column k of a row, or 0 for a column from K on, which is not read.
template <class T>
__device__ inline T column_or_0(const T* row, int k, int K) {
  return k < K ? row[k] : T(0);
}
/// Part of a step from column k on, at any alignment.
template <class Activation>
__device__ inline typename Activation::Raw load_step(const typename Activation::Stored* row, int k,
                                                     int K) {
  typename Activation::Stored x[4];
  UNROLL for (int i = 0; i < 4; i++) x[i] = column_or_0(row, k + i % 2 + i / 2 * 8, K);
  return Activation::join(x);
}
/// Columns k .. k + 3, at any alignment.
template <class Activation>
__device__ inline typename Activation::Raw load_columns(const typename Activation::Stored* row,
                                                        int k, int K) {
  typename Activation::Stored x[4];
  UNROLL for (int i = 0; i < 4; i++) x[i] = column_or_0(row, k + i, K);
  return Activation::join(x);
}
