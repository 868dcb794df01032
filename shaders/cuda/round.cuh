// Rows of A that are rounded to E4M3 (MARLIN_COMPUTE_FP8): the kernels e4m3_* of helpers.cu.
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

/// Rounds rows of A to E4M3 numbers times a scale of the row, all of which bfloat16 has. Each row
/// has one block, which reads it once if it is not longer than the registers hold.
template <class T>
__device__ inline void round_row(const CudaParameters& parameters) {
  constexpr int kUnits = 8, kUnitSlots = 32;
  const Launch launch{parameters};
  const PrepareArgs& args = launch.arguments<PrepareArgs>();
  const int m = int(launch.group_y());
  const PreparedRow from(source_of(launch), m);
  if (m >= args.m || !from.exists) return;
  const T* const row = launch.buffer<const T>(MARLIN_BUFFER_SOURCE) + from.row * args.lda;
  const bool in_pairs = launch.constant(MARLIN_CONSTANT_ALIGNED) != 0 && from.slot_to_k == nullptr;
  const int begin = int(threadIdx.x) / 4 * kUnitSlots, step = int(blockDim.x) / 4 * kUnitSlots;
  const int at_once = kUnits * step;
  UnitOfLane<T> units[kUnits];
  const auto load = [&](int first) {
    UNROLL for (int i = 0; i < kUnits; i++) {
      const int slot = first + i * step;
      if (slot < args.slots) units[i].load(row, from, slot, args.k, in_pairs);
    }
  };
  u32 largest = 0;  // the bits of |x| have the order of the floats; NaN and infinity come last
  for (int first = begin; first < args.slots; first += at_once) {
    load(first);
    UNROLL for (int i = 0; i < kUnits; i++) {
      if (first + i * step >= args.slots) break;
      UNROLL for (int e = 0; e < 8; e++) largest =
          max(largest, __float_as_uint(units[i].number(e / 2, e % 2)) & 0x7FFFFFFFu);
    }
  }
  const E4m3Scale by(largest_of_block(largest));
  u16* const to =
      launch.buffer<u16>(MARLIN_BUFFER_QUANTIZED) + static_cast<long long>(m) * args.slots;
  for (int first = begin; first < args.slots; first += at_once) {
    if (args.slots > at_once) load(first);
    UNROLL for (int i = 0; i < kUnits; i++) {
      const int slot = first + i * step;
      if (slot < args.slots) write_rounded(units[i], by, to + slot);
    }
  }
}
