// The common parts of the product kernels: the sums of a warp, 32 rows of W by 8 TILES rows of A,
// and how a unit of codes is multiplied.
//
// Weights are operand A of mma.m16n8k16 (16 rows of W), activations operand B (8 rows of A). Codes
// less zero points are exact in 16 bits, or as sums of such pieces (real.cuh), so a group's sum is
// one of exact products, and its scale multiplies the sum in float32. Lane (g, j) = (lane / 4, lane
// % 4) has, of the sums, the rows 8 i + g of W and the rows 2 j, 2 j + 1 of A.
#pragma once
#include "activations.cuh"
#include "decode.cuh"
#include "epilogue.cuh"
#include "real.cuh"
#include "routes.cuh"
#include "scales.cuh"

constexpr int kWarp = 32;

/// The rows of a tile: those of A from number `row` of the tile on, or, with routing, the routed
/// rows of an item. Rows past the last one repeat it and are not stored.
struct TileRows {
  long long weights = 0;  // bytes from the first expert's weights to those of the tile
  bool empty = false;     // the tile has no work: there are fewer items

  /// `table` has the routes; it is not read without routing.
  __device__ TileRows(const Launch& launch, const int* table, int tile_rows, int row) {
    const ProductArgs& args = launch.arguments<ProductArgs>();
    const int tile = int(launch.group_y());
    first_ = tile * tile_rows + row;
    end_ = args.m;
    if (args.items == 0) return;
    rows_of_a_ = args.rows_of_a;
    empty = tile >= table[0];
    if (empty) return;
    const int* const item = table + kRouteItem * (1 + tile);
    weights = item[0] * args.expert_stride;
    first_ = item[1] + row;
    end_ = item[1] + item[2];
    sorted_ = table + route_sorted_at(args.items);
  }
  __device__ int of_a(int i) const {
    const int at = min(first_ + i, end_ - 1);
    return rows_of_a_ != 0 ? sorted_[at] / rows_of_a_ : at;
  }
  __device__ bool has(int i) const { return first_ + i < end_; }
  /// Row i of C, or of the partial sums; it must be there.
  __device__ int of_c(int i) const { return sorted_ != nullptr ? sorted_[first_ + i] : first_ + i; }

 private:
  int first_, end_, rows_of_a_ = 0;  // 0: in order
  const int* sorted_ = nullptr;
};

/// Operands of the weights of a tile.
__device__ inline const unsigned char* weights_of(const Launch& launch, int buffer,
                                                  const TileRows& rows) {
  return launch.buffer<const unsigned char>(buffer) + rows.weights;
}

/// Loads of 16 bytes that a row block has of `slots` slots.
template <class Codes>
__device__ inline long long loads_of(int slots) {
  return Codes::kSparse ? static_cast<long long>(slots / kMmaSlots) * (kMmaSparseWords / 4)
                        : static_cast<long long>(slots / 32) * Codes::kWords * kWarp;
}

/// The codes and scales of a few units of a row block, a lane's part. Codes of four bits have an
/// even number of units.
template <class Codes, int UNITS, bool SPARSE = Codes::kSparse>
struct Chunk {
  uint4 words[UNITS][Codes::kWords];
  RawQuads<UNITS> scales, zeros;

  __device__ void load(const uint4* row_block, int unit, int units, int lane) {
    UNROLL for (int w = 0; w < UNITS; w++) UNROLL for (int i = 0; i < Codes::kWords; i++) {
      words[w][i] = make_uint4(0, 0, 0, 0);
      if (w >= units) continue;
      if constexpr (Codes::kWords == 4)
        words[w][i] = halves(reinterpret_cast<const u32*>(row_block), unit + w, lane, i);
      else
        words[w][i] = __ldcs(row_block + ((unit + w) * Codes::kWords + i) * kWarp + lane);
    }
  }
  __device__ void tile(int w, int i, u32 (&word)[Codes::kWords]) const {
    UNROLL for (int v = 0; v < Codes::kWords; v++) {
      const bool one = Codes::kWords == 1, halves = Codes::kWords == 4;
      const int in_half = Codes::kWords * (i & 1) + v;
      const int piece = halves ? i : 2 * (in_half / 4) + i / 2;
      const uint4 q = one ? words[(w & ~1) + i / 2][0] : words[w][piece];
      const u32 four[4] = {q.x, q.y, q.z, q.w};
      word[v] = four[one ? 2 * (w & 1) + (i & 1) : in_half % 4];
    }
  }
  __device__ u32 positions(int, int) const { return 0; }

 private:
  /// The floats of 16 bits of tile i, whose rows are as wgmma reads them.
  __device__ static uint4 halves(const u32* row_block, int unit, int lane, int i) {
    u32 v[4];
    UNROLL for (int t = 0; t < 4; t++) v[t] = __ldcs(row_block + mma_halves_word(unit, lane, i, t));
    return make_uint4(v[0], v[1], v[2], v[3]);
  }
};

/// Of 2:4 weights. A word has the kept codes of two units.
template <class Codes, int UNITS>
struct Chunk<Codes, UNITS, true> {
  uint4 words[UNITS / 2];
  uint2 halves[UNITS / 2];  // positions
  RawQuads<UNITS> scales, zeros;

  __device__ void load(const uint4* row_block, int unit, int units, int lane) {
    UNROLL for (int c = 0; c < UNITS / 2; c++) {
      words[c] = make_uint4(0, 0, 0, 0);
      halves[c] = make_uint2(0x44444444u, 0x44444444u);  // the first two of four
      if (2 * c >= units) continue;
      const uint4* const from = row_block + loads_of<Codes>(32 * unit + kMmaSlots * c);
      words[c] = __ldcs(from + lane);
      halves[c] = __ldcs(reinterpret_cast<const uint2*>(from + kWarp) + lane);
    }
  }
  __device__ void tile(int w, int i, u32 (&word)[1]) const {
    const uint4 q = words[w / 2];
    const u32 four[4] = {q.x, q.y, q.z, q.w};
    word[0] = four[i];
  }
  __device__ u32 positions(int w, int half) const {
    return half == 0 ? halves[w / 2].x : halves[w / 2].y;
  }
};

template <class Codes, class Activation, int TILES, class Form>
struct Sums {
  typedef typename Activation::Number Number;
  static constexpr int kPieces = Activation::kPieces;
  /// The pieces of weights.
  static constexpr int pieces_of_weights() {
    if constexpr (Codes::kReal)
      return Codes::template kPieces<Number>;
    else
      return 1;
  }
  static constexpr int kWeightPieces = pieces_of_weights();
  /// The leading pieces have sums of their own, so that one rounding joins them with the rest.
  static constexpr int kParts = kPieces > 1 || kWeightPieces > 1 ? 2 : 1;
  static constexpr bool kSparse = Codes::kSparse;
  /// Registers of operand A of a step and a tile.
  static constexpr int kRegisters = kSparse ? 1 : 2;
  typedef u32 Operand[TILES][kPieces][2];  // B of a step of 16 slots

  __device__ Sums(const Launch& launch, const TileRows& rows, long long row_block, int lane)
      : args(launch.arguments<ProductArgs>()),
        shift{launch.constant(MARLIN_CONSTANT_GROUP_SHIFT)},
        zero_kind{launch.constant(MARLIN_CONSTANT_ZERO_KIND)},
        scales(weights_of(launch, MARLIN_BUFFER_SCALES, rows),
               launch.constant(MARLIN_CONSTANT_SCALE_TYPE), shift, args.quad_blocks, row_block,
               args.quads, lane),
        zeros(weights_of(launch, MARLIN_BUFFER_ZEROS, rows),
              zero_kind >= kZeroF32 ? zero_kind - kZeroF32 : u32(kScaleE8m0), shift,
              args.quad_blocks, row_block, args.quads, lane),
        codes(weights_of(launch, MARLIN_BUFFER_ZEROS, rows), lane) {
    UNROLL for (int t = 0; t < TILES; t++) UNROLL for (int h = 0; h < 2; h++)
        UNROLL for (int i = 0; i < 4; i++) total[t][h][i] = 0.0f;
    clear();
  }

  template <int UNITS>
  __device__ void load(Chunk<Codes, UNITS>& chunk, const uint4* row_block, int unit, int units,
                       int lane) const {
    chunk.load(row_block, unit, units, lane);
    scales.load(unit, units, chunk.scales);
    if (zero_kind != kZeroNone) zeros.load(unit, units, chunk.zeros);
  }

  /// Adds unit `unit`, number w of the chunk. `operands(step, b)` fetches B of step 0 or 1;
  /// `scale_of(t, e)` is the activation scale of row 2 j + e of tile t.
  template <int UNITS, class Operands, class ActivationScale>
  __device__ void add(const Chunk<Codes, UNITS>& chunk, int unit, int w, bool last,
                      const Operands& operands, const ActivationScale& scale_of) {
    u32 h[kWeightPieces][4][2][kRegisters];  // tile, step
    UNROLL for (int i = 0; i < 4; i++) decode(chunk, w, i, h);
    UNROLL for (int step = 0; step < 2; step++) {
      Operand b;
      operands(step, b);
      UNROLL for (int half = 0; half < 2; half++) {
        const u32 positions = chunk.positions(w, half);
        UNROLL for (int of_w = kWeightPieces - 1; of_w >= 0; of_w--) {
          u32 a[2 * kRegisters];
          UNROLL for (int r = 0; r < 2 * kRegisters; r++) a[r] =
              h[of_w][2 * half + r % 2][step][r / 2];
          UNROLL for (int t = 0; t < TILES; t++) UNROLL for (int p = kPieces - 1; p >= 0; p--)
              multiply_pieces(t, half, of_w, p, a, b[t][p], positions, 2 * (w & 1) + step);
        }
        if constexpr (kSparse) {
          // The other slots are 0 times an infinity or a NaN where A has one, which is a first
          // piece.
          const u32 zeros_of_w[2] = {0, 0}, others = other_positions(positions);
          UNROLL for (int t = 0; t < TILES; t++)
              multiply(part[0][t][half], zeros_of_w, b[t][0], others, 2 * (w & 1) + step);
        }
      }
      if (zero_kind >= kZeroF32) {
        u32 ones[2 * kRegisters];
        UNROLL for (int r = 0; r < 2 * kRegisters; r++) ones[r] = Number::kOne;
        UNROLL for (int half = 0; half < kHalvesOfA; half++) UNROLL for (int t = 0; t < TILES; t++)
            UNROLL for (int p = kPieces - 1; p >= 0; p--)
                multiply(sum_of_a[kParts > 1 && p > 0 ? 1 : 0][t][half], ones, b[t][p],
                         chunk.positions(w, half), 2 * (w & 1) + step);
      }
      const bool ends = step == 0 ? shift == 4 : shift < 7 || Activation::kQuantized || last;
      if (ends) apply(chunk, unit, w, step, scale_of);
    }
  }

  /// The weights of tile i of unit `unit`, number w of the chunk, rounded to numbers of type Own: a
  /// pair for each step.
  template <class Own, int UNITS>
  __device__ void expand(const Chunk<Codes, UNITS>& chunk, int unit, int w, int i,
                         u32 (&halves)[4]) const {
    static_assert(!kSparse, "there are dense weights only");
    u32 h[kWeightPieces][4][2][kRegisters];
    decode(chunk, w, i, h);
    UNROLL for (int step = 0; step < 2; step++) {
      float s[4], z[4] = {};
      scales.get(chunk.scales, unit, w, step, s);
      if (zero_kind >= kZeroF32) zeros.get(chunk.zeros, unit, w, step, z);
      const float scale = s[i] * factor();
      UNROLL for (int r = 0; r < 2; r++) {
        float low = 0.0f, high = 0.0f;
        UNROLL for (int p = kWeightPieces - 1; p >= 0; p--) {
          low += Number::low(h[p][i][step][r]);
          high += Number::high(h[p][i][step][r]);
        }
        halves[2 * step + r] = Own::round(fmaf(low, scale, z[i]), fmaf(high, scale, z[i]));
      }
    }
  }

  /// Sums lack this factor: what decoding left out (decode.cuh), unless scales have it already.
  __device__ float factor() const {
    constexpr bool kSmall = !Codes::kReal && (Number::kMagic == Bf16::kMagic || !Codes::kIntegers);
    return kSmall && scale_type() != kScaleE8m0 ? float(1 << kFp4Exponent) : 1.0f;
  }

  float total[TILES][2][4];  // 16 rows of W, element of C^T

 private:
  __device__ u32 scale_type() const { return scales.kind(); }

  __device__ void clear() {
    UNROLL for (int q = 0; q < kParts; q++) UNROLL for (int t = 0; t < TILES; t++)
        UNROLL for (int i = 0; i < 4; i++) {
      part[q][t][0][i] = part[q][t][1][i] = 0.0f;
      UNROLL for (int half = 0; half < kHalvesOfA; half++) sum_of_a[q][t][half][i] = 0.0f;
    }
  }

  /// Operand A of both steps of unit w, for tile i. Of 2:4 weights a word has four steps.
  template <int UNITS>
  __device__ void decode(const Chunk<Codes, UNITS>& chunk, int w, int i,
                         u32 (&h)[kWeightPieces][4][2][kRegisters]) const {
    u32 word[Codes::kWords], all[kWeightPieces][4], with_second_zero[4];
    chunk.tile(w, i, word);
    const bool two_zeros = Codes::kZeros && shift == 4 && zero_kind == kZeroInteger;
    if constexpr (Codes::kReal) {
      codes.decode(Number(), word, all);
    } else {
      Codes::decode(Number(), word, zero_point(chunk, w, 0, i), all[0]);
      if (two_zeros) Codes::decode(Number(), word, zero_point(chunk, w, 1, i), with_second_zero);
    }
    UNROLL for (int p = 0; p < kWeightPieces; p++) UNROLL for (int step = 0; step < 2; step++)
        UNROLL for (int r = 0; r < kRegisters; r++) {
      const int t = kSparse ? 2 * (w & 1) + step : 2 * step + r;
      h[p][i][step][r] = two_zeros && step == 1 ? with_second_zero[t] : all[p][t];
    }
  }

  /// Adds the product of piece `of_w` of weights and piece p of activations. Beside a leading piece
  /// that is infinite or a NaN the others are 0, and their product would be a NaN. The product of
  /// both last pieces is too small to matter: less than 2^-31 of the whole.
  __device__ void multiply_pieces(int t, int half, int of_w, int p, const u32 (&a)[2 * kRegisters],
                                  const u32 (&b)[2], u32 positions, int step) {
    if (of_w + p > 3) return;
    u32 weights[2 * kRegisters], activations[2];
    UNROLL for (int r = 0; r < 2 * kRegisters; r++) weights[r] =
        Codes::kReal && p > 0 && of_w == 0 ? finite_halves(a[r]) : a[r];
    UNROLL for (int r = 0; r < 2; r++) activations[r] =
        of_w > 0 && p == 0 ? finite_halves(b[r]) : b[r];
    multiply(part[of_w + p > 0 ? kParts - 1 : 0][t][half], weights, activations, positions, step);
  }

  /// Adds the product of 16 rows of W and 8 rows of A for one step; `step` of four is the one that
  /// the positions are of.
  __device__ static void multiply(float (&d)[4], const u32 (&a)[2 * kRegisters], const u32 (&b)[2],
                                  u32 positions, int step) {
    if constexpr (kSparse) {
      if (step == 0) Number::template mma_sparse<0>(d, a, b, positions);
      if (step == 1) Number::template mma_sparse<1>(d, a, b, positions);
      if (step == 2) Number::template mma_sparse<2>(d, a, b, positions);
      if (step == 3) Number::template mma_sparse<3>(d, a, b, positions);
    } else {
      Number::mma(d, a, b);
    }
  }

  /// What the codes of tile i are decoded with.
  template <int UNITS>
  __device__ u32 zero_point(const Chunk<Codes, UNITS>& chunk, int w, int half, int i) const {
    if (!Codes::kZeros || zero_kind >= kZeroF32) return Number::kMagic;
    const u32 z = zero_kind == kZeroInteger
                      ? zeros.four_bytes(chunk.zeros, w, half) >> (8 * i) & 0xFF
                      : Codes::kMiddle;
    return Number::kMagic | z | z << 16;
  }

  /// acc * scale * d, in an order that keeps the intermediate product in the range of float32 if
  /// the whole product is.
  __device__ static float scaled(float sum, float scale, float d, float to) {
    const bool large = fabsf(scale) > 1.0f;
    return fmaf(sum * (large ? d : scale), large ? scale : d, to);
  }

  /// Multiplies the sums of a group, or of 32 slots, by its scales.
  template <int UNITS, class ActivationScale>
  __device__ void apply(const Chunk<Codes, UNITS>& chunk, int unit, int w, int step,
                        const ActivationScale& scale_of) {
    float s[4], z[4];
    scales.get(chunk.scales, unit, w, step, s);
    const bool additive = zero_kind >= kZeroF32;
    if (additive) zeros.get(chunk.zeros, unit, w, step, z);
    UNROLL for (int t = 0; t < TILES; t++) UNROLL for (int e = 0; e < 2; e++) {
      const float d = Activation::kQuantized ? scale_of(t, e) : 1.0f;
      UNROLL for (int i = 0; i < 4; i++) {
        // Of dense weights, all rows have the same sum of A.
        const int half = kSparse ? i / 2 : 0, at = kSparse ? 2 * (i % 2) + e : e;
        float ones = sum_of_a[0][t][half][at];
        if (kParts > 1) ones += sum_of_a[kParts - 1][t][half][at];
        float sum = part[0][t][i / 2][2 * (i % 2) + e];
        if (kParts > 1) sum += part[kParts - 1][t][i / 2][2 * (i % 2) + e];
        float& to = total[t][i / 2][2 * (i % 2) + e];
        if (Activation::kQuantized) {
          to = scaled(sum, s[i], d, to);
          if (additive) to = scaled(ones, z[i], d, to);
        } else {
          to = fmaf(sum, s[i], to);
          if (additive) to = fmaf(ones, z[i], to);
        }
      }
    }
    clear();
  }

  const ProductArgs& args;
  const Uniform<Form::kShift> shift;
  const Uniform<Form::kZero> zero_kind;
  const Quads<Form::kScale, Form::kShift> scales;
  /// The MarlinScaleType of zeros, or -1 for any.
  static constexpr int zero_type() {
    if (Form::kZero < 0) return -1;
    return Form::kZero >= kZeroF32 ? Form::kZero - kZeroF32 : int(kScaleE8m0);
  }
  const Quads<zero_type(), Form::kShift> zeros;
  const Codes codes;
  float part[kParts][TILES][2][4];
  static constexpr int kHalvesOfA = kSparse ? 2 : 1;  // each 16 rows of W
  float sum_of_a[kParts][TILES][kHalvesOfA][4];       // of the kept slots, for additive zeros
};
