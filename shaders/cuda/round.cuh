// Rows of A that are rounded to E4M3 (MARLIN_COMPUTE_FP8) or to INT8 (MARLIN_COMPUTE_INT8): the
// kernels e4m3_* and quantize_* of helpers.cu.
#pragma once
#include "gather.cuh"

constexpr int kHelperThreads = 256;

/// What holds two numbers of so many bytes.
template <int BYTES>
struct PairOf {
  typedef u32 Type;
};
template <>
struct PairOf<4> {
  typedef uint2 Type;
};

/// A lane's part of a unit of 32 slots of a row of A: pair t are the slots mma_slot(j, t, ...).
template <class T>
struct UnitOfLane {
  typedef typename PairOf<sizeof(T)>::Type Pair;
  Pair pairs[4];

  /// From slot `slot` on. `in_pairs`: columns have the order of slots, and pairs are aligned.
  __device__ void load(const T* row, const PreparedRow& from, int slot, int k, bool in_pairs) {
    const int first = slot + mma_slot(int(threadIdx.x) % 4, 0, 0);
    if (in_pairs && slot + 32 <= k) {
      UNROLL for (int t = 0; t < 4; t++) pairs[t] =
          *reinterpret_cast<const Pair*>(row + first + mma_slot(0, t, 0));
      return;
    }
    UNROLL for (int t = 0; t < 4; t++) UNROLL for (int p = 0; p < 2; p++) {
      const int column = from.column(first + mma_slot(0, t, p), k);
      reinterpret_cast<T*>(&pairs[t])[p] = column < 0 ? T{} : row[column];
    }
  }
  __device__ float number(int t, int p) const {
    return as_float(reinterpret_cast<const T*>(&pairs[t])[p]);
  }
};

/// The largest of the threads' numbers.
__device__ inline u32 largest_of_block(u32 mine) {
  __shared__ u32 of_warp[kHelperThreads / kLanes];
  mine = __reduce_max_sync(0xFFFFFFFFu, mine);
  if (threadIdx.x % kLanes == 0) of_warp[threadIdx.x / kLanes] = mine;
  __syncthreads();
  for (int warp = 0; warp < int(blockDim.x) / kLanes; warp++) mine = max(mine, of_warp[warp]);
  return mine;
}

/// The scale of a row of E4M3 numbers: the least power of two that leaves magnitudes up to 448, but
/// at least 2^-117, so that a number times it is a bfloat16. NaN if the row has a NaN or an
/// infinity.
struct E4m3Scale {
  float scale, inverse, most;  // most: of the magnitudes of scaled numbers
  bool finite;

  /// `largest` are the bits of the largest magnitude.
  __device__ explicit E4m3Scale(u32 largest) : finite(largest < 0x7F800000u) {
    // 448 is 1.75 times 2^8: a larger fraction than 1.75 leads to the next exponent.
    constexpr int kLeast = 127 - 117, kMost = 127 + 120, kShift = 8;
    const int exponent = max(int((largest + 0x1FFFFFu) >> 23) - kShift, kLeast);
    scale = __uint_as_float(finite ? u32(exponent) << 23 : 0x7FC00000u);
    inverse = __uint_as_float(u32(254 - exponent) << 23);
    most = exponent == kMost ? 240.0f : 448.0f;  // 256 times 2^120 would be an infinity
  }
  __device__ float scaled(float x) const {
    return fminf(fmaxf(finite ? x * inverse : 0.0f, -most), most);
  }
};

/// Writes a lane's part of a unit as bfloat16 numbers: E4M3 numbers times the scale.
template <class T>
__device__ inline void write_rounded(const UnitOfLane<T>& unit, const E4m3Scale& by, u16* to) {
  UNROLL for (int t = 0; t < 4; t++) {
    float x[2];
    UNROLL for (int p = 0; p < 2; p++) x[p] = e4m3_value(by.scaled(unit.number(t, p))) * by.scale;
    *reinterpret_cast<u32*>(to + mma_slot(int(threadIdx.x) % 4, t, 0)) = Bf16::round(x[0], x[1]);
  }
}

/// A row of A in units of 32 slots. A block has the row; four lanes have a unit, and a lane keeps
/// as many parts of units as registers hold, those of `kUnits` times `step()` slots from `first`
/// on.
template <class T>
struct RowUnits {
  static constexpr int kUnits = 8, kUnitSlots = 32;
  const PrepareArgs& args;
  const PreparedRow from;
  const T* const row;
  const bool in_pairs;
  UnitOfLane<T> units[kUnits];

  __device__ RowUnits(const Launch& launch, int m)
      : args(launch.arguments<PrepareArgs>()),
        from(source_of(launch), m),
        row(launch.buffer<const T>(MARLIN_BUFFER_SOURCE) + from.row * args.lda),
        in_pairs(launch.constant(MARLIN_CONSTANT_ALIGNED) != 0 && from.slot_to_k == nullptr) {}

  __device__ int step() const { return int(blockDim.x) / 4 * kUnitSlots; }
  __device__ int at_once() const { return kUnits * step(); }
  __device__ int slot(int first, int i) const {
    return first + i * step() + int(threadIdx.x) / 4 * kUnitSlots;
  }
  __device__ void load(int first) {
    UNROLL for (int i = 0; i < kUnits; i++) if (slot(first, i) < args.slots) units[i].load(
        row, from, slot(first, i), args.k, in_pairs);
  }
  /// The largest magnitude of the lane's part of a unit. The bits of |x| have the order of the
  /// floats; NaN and infinity come last.
  __device__ u32 largest(int i) const {
    u32 most = 0;
    UNROLL for (int e = 0; e < 8; e++) most =
        max(most, __float_as_uint(units[i].number(e / 2, e % 2)) & 0x7FFFFFFFu);
    return most;
  }
  /// That of the whole row. A row that is not longer than the registers hold is read once.
  __device__ u32 largest_of_row() {
    u32 most = 0;
    for (int first = 0; first < args.slots; first += at_once()) {
      load(first);
      UNROLL for (int i = 0; i < kUnits; i++) if (slot(first, i) < args.slots) most =
          max(most, largest(i));
    }
    return largest_of_block(most);
  }
};

/// Rounds rows of A to E4M3 numbers times a scale of the row, all of which bfloat16 has.
template <class T>
__device__ inline void round_row(const CudaParameters& parameters) {
  const Launch launch{parameters};
  const int m = int(launch.group_y());
  RowUnits<T> row(launch, m);
  if (m >= row.args.m || !row.from.exists) return;
  const E4m3Scale by(row.largest_of_row());
  u16* const to =
      launch.buffer<u16>(MARLIN_BUFFER_QUANTIZED) + static_cast<long long>(m) * row.args.slots;
  for (int first = 0; first < row.args.slots; first += row.at_once()) {
    if (row.args.slots > row.at_once()) row.load(first);
    UNROLL for (int i = 0; i < row.kUnits; i++) {
      const int slot = row.slot(first, i);
      if (slot < row.args.slots) write_rounded(row.units[i], by, to + slot);
    }
  }
}

/// The scale of a group of INT8 activations: d = max|x| / 127 and q = x / d, both rounded to
/// float32, and q then to nearest even. A group of zeros has d = 0. One with NaN or infinity has
/// d = NaN, which reaches every product that uses it.
struct Int8Scale {
  float scale, inverse;
  __device__ explicit Int8Scale(u32 largest)
      : scale(largest >= 0x7F800000u ? __uint_as_float(0x7FC00000u)
                                     : __fdiv_rn(__uint_as_float(largest), 127.0f)),
        inverse(scale > 0x1p-100f ? __fdividef(1.0f, scale) : 0.0f) {}
  /// As a byte. A product by the inverse, which is off by less than 2^-20 of it, tells the integer,
  /// unless it is near the middle of two. Division is slow.
  __device__ u32 byte(float x) const {
    float q = x * inverse;
    if (fabsf(q - rintf(q)) > 0.4999f || inverse == 0.0f) q = exact(x);
    return u32(int(rintf(q))) & 0xFF;
  }

 private:
  /// Near the smallest float, d may be much less than max / 127, and the quotient may exceed 127.
  __device__ float exact(float x) const {
    return scale > 0 ? fminf(fmaxf(__fdiv_rn(x, scale), -127.0f), 127.0f) : 0.0f;
  }
};

/// Writes a lane's part of a unit as INT8: in the order of slots or, for tiles, pairs 0 and 2 to
/// the bytes 4 j ... 4 j + 3, and pairs 1 and 3 to those 16 further, their first slots first.
template <class T>
__device__ inline void write_bytes(const UnitOfLane<T>& unit, const Int8Scale& by, bool for_tiles,
                                   unsigned char* to) {
  const int j = int(threadIdx.x) % 4;
  u32 pairs[4];
  UNROLL for (int t = 0; t < 4; t++) pairs[t] =
      by.byte(unit.number(t, 0)) | by.byte(unit.number(t, 1)) << 16;
  if (for_tiles) {
    *reinterpret_cast<u32*>(to + 4 * j) = pairs[0] | pairs[2] << 8;
    *reinterpret_cast<u32*>(to + 4 * j + 16) = pairs[1] | pairs[3] << 8;
  } else {
    UNROLL for (int t = 0; t < 4; t++) * reinterpret_cast<u16*>(to + mma_slot(j, t, 0)) =
        u16(pairs[t] | pairs[t] >> 8);
  }
}

/// Quantizes rows of A to INT8.
template <class T>
__device__ inline void quantize_row(const CudaParameters& parameters) {
  const Launch launch{parameters};
  const int m = int(launch.group_y());
  RowUnits<T> row(launch, m);
  const PrepareArgs& args = row.args;
  if (m >= args.m || !row.from.exists) return;
  const bool for_tiles = args.for_tiles != 0;
  unsigned char* const to = launch.buffer<unsigned char>(MARLIN_BUFFER_QUANTIZED) +
                            static_cast<long long>(m) * args.slots;
  float* const scales = launch.buffer<float>(MARLIN_BUFFER_QUANT_SCALES);
  const u32 of_row = args.group == 0 ? row.largest_of_row() : 0;
  for (int first = 0; first < args.slots; first += row.at_once()) {
    if (args.group != 0 || args.slots > row.at_once()) row.load(first);
    UNROLL for (int i = 0; i < row.kUnits; i++) {
      const int slot = row.slot(first, i), unit = slot / row.kUnitSlots;
      const bool exists = slot < args.slots;
      u32 largest = exists ? row.largest(i) : 0;
      // Four lanes have a unit, and their neighbors the next.
      UNROLL for (int lanes = 1; lanes < 16; lanes *= 2) if (lanes < args.group / 8) largest =
          max(largest, __shfl_xor_sync(0xFFFFFFFFu, largest, lanes));
      if (!exists) continue;
      const Int8Scale by(args.group == 0 ? of_row : largest);
      write_bytes(row.units[i], by, for_tiles, to + slot);
      if (threadIdx.x % 4 == 0 && !for_tiles)
        scales[static_cast<long long>(m) * (args.slots / row.kUnitSlots) + unit] = by.scale;
      if (unit == 0 && for_tiles) scales[m] = by.scale;
    }
  }
}
