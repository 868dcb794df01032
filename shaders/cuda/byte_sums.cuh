// The sums of a tile for Hopper with activations of a byte (hopper_gemm.cuh): codes become bytes,
// and wgmma multiplies them by those of A.
//
//   stage    one or two boxes of 128 slots of A, a byte each, with two chunks of weights each
//   W        from shared memory to registers, a chunk ahead; decoded there
//   INT8     rows of A and of W have one scale each: the sums are integers, and scaled at the end
//   E4M3     the matrix unit keeps 14 bits of a sum: it adds up 128 slots, whose sums times their
//            scale of W are added in float32; scales of A multiply these at the end
#pragma once
#include "activations.cuh"
#include "tile_sums.cuh"

/// Operands A of 16 rows of W and 32 slots as bytes. A lane of wgmma.m64nNk32 has the bytes
/// 4 j ... 4 j + 3 and those 16 further, in the order in which write_for_tiles() writes those of A.
template <class Codes>
struct BytesOf;
template <>
struct BytesOf<U4> {
  /// Of codes less their middle, 16 times the numbers: the high half of a byte has the sign.
  static constexpr float kFactor = 1.0f / 16;
  static constexpr u32 kHigh = 0xF0F0F0F0u, kLow = 0x0F0F0F0Fu, kSigns = 0x80808080u;
  __device__ static void decode(u32 word, u32& low, u32& high) {
    low = ((word << 4) & kHigh) ^ kSigns;
    high = (word & kHigh) ^ kSigns;
  }
  /// Less a zero point, four times the same byte. No byte borrows from the next.
  __device__ static void decode(u32 word, u32 zeros, u32& low, u32& high) {
    low = (((word & kLow) | kSigns) - zeros) ^ kSigns;
    high = (((word >> 4 & kLow) | kSigns) - zeros) ^ kSigns;
  }
};
template <>
struct BytesOf<I8> {
  static constexpr float kFactor = 1.0f;
  __device__ static void decode_words(u32 first, u32 second, u32& low, u32& high) {
    low = __byte_perm(first, second, 0x6240) ^ 0x80808080u;
    high = __byte_perm(first, second, 0x7351) ^ 0x80808080u;
  }
};

template <>
struct BytesOf<E4m3> {
  static constexpr float kFactor = 1.0f;
  __device__ static void decode_words(u32 first, u32 second, u32& low, u32& high) {
    low = (first & 0x00FF00FFu) | (second << 8 & 0xFF00FF00u);
    high = (first >> 8 & 0x00FF00FFu) | (second & 0xFF00FF00u);
  }
};

/// Weights of a form whose codes become bytes. Tiles bring the codes, and scales of E4M3.
template <class Codes, class Form>
struct ByteOperand : Operand<Codes, F16, Form> {
  typedef BytesOf<Codes> Bytes;
  static constexpr bool kHasZeros = Form::kZero == kZeroInteger;
  static constexpr float kFactor = kHasZeros ? 1.0f : Bytes::kFactor;
  static constexpr int kScaleElement = Codes::kIntegers ? 0 : 4;
  static constexpr int kScaleBytes = kRowBlock * kScaleElement;
  static constexpr int kZeroElement = 0, kZeroBytes = 0, kStagedZeroBytes = 0;
  static_assert(Form::kScale == (Codes::kIntegers ? kScaleF16 : kScaleF32) &&
                Form::kShift == kLongGroupShift);

  /// The operands of the two units of 32 slots of a chunk. `zeros`: of the rows g and g + 8.
  __device__ static void decode(const uint4 (&q)[Codes::kWords], const u32 (&zeros)[2],
                                u32 (&a)[2][4]) {
    UNROLL for (int unit = 0; unit < 2; unit++) UNROLL for (int row = 0; row < 2; row++) {
      u32 &low = a[unit][row], &high = a[unit][2 + row];
      const uint4 piece = q[unit % Codes::kWords];
      const u32 four[4] = {piece.x, piece.y, piece.z, piece.w};
      if constexpr (Codes::kWords == 2)
        Bytes::decode_words(four[2 * row], four[2 * row + 1], low, high);
      else if constexpr (kHasZeros)
        Bytes::decode(four[2 * unit + row], zeros[row], low, high);
      else
        Bytes::decode(four[2 * unit + row], low, high);
    }
  }
};

/// The sums of INT8, in the lanes that TileSums has them in.
template <class Memory>
struct ByteSums {
  typedef typename Memory::Tile Tile;
  typedef typename Memory::Op Op;
  static constexpr bool kInUnits = false, kApart = false, kFetchesEarly = Tile::kRows < 256;

  int integers[Tile::kSums];
  float total[Tile::kSums];
  u32 a[2][2][4], zeros[2];
  u32 weights_at;
  StageWeights<Memory> weights;

  __device__ void clear() { UNROLL for (int i = 0; i < Tile::kSums; i++) integers[i] = 0; }
  /// Reads the zero points of the warp's row block, which these are.
  __device__ void read_zeros(const u32* row_block) {
    const u32 quad = row_block[weights.lane / 4] >> (16 * weights.half);
    UNROLL for (int row = 0; row < 2; row++) zeros[row] = __byte_perm(quad, 0, row * 0x1111);
  }
  /// Starts to multiply chunk `kb` of the stage that begins with `boxes` by its half of a box.
  __device__ void multiply_by_wgmma(u32 boxes, int kb, bool) {
    u32(&operand)[2][4] = a[kb % 2];
    Op::decode(weights.q[kb], zeros, operand);
    const u64 rows = wgmma_operand(boxes + kb / 2 * Tile::kBox) + 4 * (kb % 2);
    wgmma_fence();
    UNROLL for (int step = 0; step < 2; step++)
        Wgmma<Tile::kRows>::add(Int8(), integers, operand[step], rows + 2 * step, true);
    wgmma_commit();
  }
  /// Makes float32 numbers of the sums: by the scales of the warp's row block, and of the tile's
  /// rows of A, of which `rows` exist.
  __device__ void scale(const uint2* row_block, const float* row_scales, int rows) {
    const uint2 quad = row_block[weights.lane / 4];
    const u32 both = weights.half == 0 ? quad.x : quad.y;
    const float low = f16_to_float(u16(both)), high = f16_to_float(u16(both >> 16));
    UNROLL for (int i = 0; i < Tile::kSums / 2; i++) {
      const int row = i / 2 * 8 + 2 * (weights.lane % 4) + i % 2, at = i / 2 * 4 + i % 2;
      const float scale = row < rows ? row_scales[row] : 0.0f;
      total[at] = float(integers[at]) * low * scale;
      total[at + 2] = float(integers[at + 2]) * high * scale;
    }
  }
};

/// The same of E4M3.
template <class Memory>
struct E4m3Sums {
  typedef typename Memory::Tile Tile;
  typedef typename Memory::Op Op;
  static constexpr bool kInUnits = false, kApart = false, kFetchesEarly = true;

  float part[Tile::kSums], total[Tile::kSums], unit[2];  // of a group; scales of rows g, g + 8
  u32 a[2][2][4];
  u32 weights_at;
  StageWeights<Memory> weights;

  __device__ void clear() {
    UNROLL for (int i = 0; i < Tile::kSums; i++) part[i] = total[i] = 0.0f;
    unit[0] = unit[1] = 0.0f;
  }
  /// Adds the sums of a group to those of the row.
  __device__ void end_group() {
    UNROLL for (int i = 0; i < Tile::kSums; i++) total[i] =
        fmaf(part[i], unit[i % 4 / 2], total[i]);
    // The compiler must not read the sums of the group when the next ones begin.
    UNROLL for (int i = 0; i < Tile::kSums; i++) asm volatile("" : "+f"(part[i]), "+f"(total[i]));
  }
  /// Starts to multiply chunk `kb` of the stage that begins with `boxes` by its half of a box. Each
  /// box begins a group.
  __device__ void multiply_by_wgmma(u32 boxes, int kb, bool) {
    u32(&operand)[2][4] = a[kb % 2];
    Op::decode(weights.q[kb], {}, operand);
    const u64 rows = wgmma_operand(boxes + kb / 2 * Tile::kBox) + 4 * (kb % 2);
    if (kb % 2 == 0) {
      wgmma_wait<0>();
      end_group();
      UNROLL for (int row = 0; row < 2; row++) unit[row] =
          __uint_as_float(weights.s[kb].scales[0][row]);
    }
    wgmma_fence();
    UNROLL for (int step = 0; step < 2; step++) Wgmma<Tile::kRows>::add(
        E4m3Bytes(), part, operand[step], rows + 2 * step, kb % 2 != 0 || step != 0);
    wgmma_commit();
  }
  /// Multiplies the sums by the scales of the tile's rows of A. `rows` of these exist.
  __device__ void scale(const float* row_scales, int rows) {
    end_group();
    UNROLL for (int i = 0; i < Tile::kSums / 2; i++) {
      const int row = i / 2 * 8 + 2 * (weights.lane % 4) + i % 2, at = i / 2 * 4 + i % 2;
      const float scale = row < rows ? row_scales[row] : 0.0f;
      total[at] *= scale;
      total[at + 2] *= scale;
    }
  }
};
