// Rows of A that are rounded to E4M3 (MARLIN_COMPUTE_FP8) or to INT8 (MARLIN_COMPUTE_INT8): the
// kernels e4m3_* and quantize_* of helpers.cu.
#pragma once
#include "gather.cuh"

constexpr int kHelperThreads = 256;
/// Whether the processor has tiles, which take A as bytes.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
constexpr bool kHasTiles = true;
#else
constexpr bool kHasTiles = false;
#endif

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
    } else {
      *this = columns(row, from, first, k);
    }
  }
  /// One by one. (One copy of it keeps kernels short.)
  __noinline__ __device__ static UnitOfLane columns(const T* row, PreparedRow from, int first,
                                                    int k) {
    UnitOfLane unit;
    UNROLL for (int t = 0; t < 4; t++) UNROLL for (int p = 0; p < 2; p++) {
      const int column = from.column(first + mma_slot(0, t, p), k);
      reinterpret_cast<T*>(&unit.pairs[t])[p] = column < 0 ? T{} : row[column];
    }
    return unit;
  }
  __device__ float number(int t, int p) const {
    return as_float(reinterpret_cast<const T*>(&pairs[t])[p]);
  }
  /// The largest magnitude. The bits of |x| have the order of the floats; NaN and infinity come
  /// last.
  __device__ u32 largest() const {
    u32 most = 0;
    if constexpr (sizeof(T) == 2) {
      constexpr u32 kMagnitudes = 0x7FFFu * kHalves;
      UNROLL for (int t = 0; t < 4; t++) most = __vmaxu2(most, pairs[t] & kMagnitudes);
      return __float_as_uint(as_float(T{u16(max(most & 0xFFFFu, most >> 16))}));
    } else {
      UNROLL for (int e = 0; e < 8; e++) most =
          max(most, __float_as_uint(number(e / 2, e % 2)) & 0x7FFFFFFFu);
      return most;
    }
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

/// Writes a lane's part of a unit as bytes for tiles: pairs 0 and 2 to the bytes 4 j ... 4 j + 3,
/// and pairs 1 and 3 to those 16 further, their first slots first. `bytes` are those of pairs 0 and
/// 1, and of 2 and 3.
__device__ inline void write_for_tiles(uint2 bytes, unsigned char* to) {
  const int j = int(threadIdx.x) % 4;
  *reinterpret_cast<u32*>(to + 4 * j) = __byte_perm(bytes.x, bytes.y, 0x5140);
  *reinterpret_cast<u32*>(to + 4 * j + 16) = __byte_perm(bytes.x, bytes.y, 0x7362);
}

/// A lane's part of a unit as E4M3 bytes, pair after pair.
template <class T>
__device__ inline uint2 e4m3_bytes(const UnitOfLane<T>& unit, const E4m3Scale& by) {
  u32 pairs[4];
  UNROLL for (int t = 0; t < 4; t++) {
    const float low = by.scaled(unit.number(t, 0)), high = by.scaled(unit.number(t, 1));
    asm("{\n.reg .b16 both;\ncvt.rn.satfinite.e4m3x2.f32 both, %1, %2;\ncvt.u32.u16 %0, both;\n}"
        : "=r"(pairs[t])
        : "f"(high), "f"(low));
  }
  return make_uint2(pairs[0] | pairs[1] << 16, pairs[2] | pairs[3] << 16);
}

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
  static constexpr int kUnits = 4, kUnitSlots = 32;
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
  /// The largest magnitude of the row. A row that is not longer than the registers hold is read
  /// once.
  __device__ u32 largest_of_row() {
    u32 most = 0;
    for (int first = 0; first < args.slots; first += at_once()) {
      load(first);
      UNROLL for (int i = 0; i < kUnits; i++) if (slot(first, i) < args.slots) most =
          max(most, units[i].largest());
    }
    return largest_of_block(most);
  }
};

/// Rounds rows of A to E4M3 numbers times a scale of the row. Every product is a bfloat16 number.
/// Tiles get bytes and the scales.
template <class T>
__device__ inline void round_row(const CudaParameters& parameters) {
  const Launch launch{parameters};
  const int m = int(launch.group_y());
  RowUnits<T> row(launch, m);
  if (m >= row.args.m || !row.from.exists) return;
  const E4m3Scale by(row.largest_of_row());
  const long long begin = static_cast<long long>(m) * row.args.slots;
  const bool for_tiles = kHasTiles && row.args.for_tiles != 0;
  if (for_tiles && threadIdx.x == 0) launch.buffer<float>(MARLIN_BUFFER_QUANT_SCALES)[m] = by.scale;
  for (int first = 0; first < row.args.slots; first += row.at_once()) {
    if (row.args.slots > row.at_once()) row.load(first);
    UNROLL for (int i = 0; i < row.kUnits; i++) {
      const int slot = row.slot(first, i);
      if (slot >= row.args.slots) continue;
      if constexpr (kHasTiles)
        if (for_tiles) {
          write_for_tiles(e4m3_bytes(row.units[i], by),
                          launch.buffer<unsigned char>(MARLIN_BUFFER_QUANTIZED) + begin + slot);
          continue;
        }
      write_rounded(row.units[i], by, launch.buffer<u16>(MARLIN_BUFFER_QUANTIZED) + begin + slot);
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
  /// Near the smallest float, d may be much less than max / 127, and the quotient may exceed 127.
  __device__ u32 exact(float x) const {
    const float q = scale > 0 ? fminf(fmaxf(__fdiv_rn(x, scale), -127.0f), 127.0f) : 0.0f;
    return u32(int(rintf(q)));
  }
};

/// The low bytes of eight words.
__device__ inline uint2 low_bytes(const u32 (&words)[8]) {
  u32 pairs[4];
  UNROLL for (int t = 0; t < 4; t++) pairs[t] = __byte_perm(words[2 * t], words[2 * t + 1], 0x0040);
  return make_uint2(__byte_perm(pairs[0], pairs[1], 0x5410),
                    __byte_perm(pairs[2], pairs[3], 0x5410));
}
/// A lane's part of a unit as INT8, pair after pair, by divisions. They are slow and rare: one copy
/// of them keeps the kernel short.
template <class T>
__noinline__ __device__ uint2 divided_bytes(UnitOfLane<T> unit, Int8Scale by) {
  u32 words[8];
  UNROLL for (int e = 0; e < 8; e++) words[e] = by.exact(unit.number(e / 2, e % 2));
  return low_bytes(words);
}
/// The same by products, where these tell the integers: a product by the inverse is off by less
/// than 2^-20 of the quotient, which matters near the middle of two integers.
template <class T>
__device__ inline uint2 int8_bytes(const UnitOfLane<T>& unit, const Int8Scale& by) {
  constexpr float kToInteger = 0x1.8p23f;  // the low byte of a sum with it is the integer
  bool is_near_middle = by.inverse == 0.0f;
  u32 words[8];
  UNROLL for (int e = 0; e < 8; e++) {
    const float x = unit.number(e / 2, e % 2), sum = fmaf(x, by.inverse, kToInteger);
    is_near_middle |= fabsf(fmaf(x, by.inverse, kToInteger - sum)) > 0.4999f;
    words[e] = __float_as_uint(sum);
  }
  return is_near_middle ? divided_bytes(unit, by) : low_bytes(words);
}

/// Writes bytes of a lane's part of a unit in the order of slots.
__device__ inline void write_in_order(uint2 bytes, unsigned char* to) {
  const int j = int(threadIdx.x) % 4;
  UNROLL for (int t = 0; t < 4; t++) * reinterpret_cast<u16*>(to + mma_slot(j, t, 0)) =
      u16((t < 2 ? bytes.x : bytes.y) >> (16 * (t % 2)));
}

/// Quantizes rows of A to INT8. With ROWS, they have one scale each.
template <class T, bool ROWS>
__device__ inline void quantize_row(const Launch& launch, int m, RowUnits<T>& row) {
  const PrepareArgs& args = row.args;
  const bool for_tiles = args.for_tiles != 0;
  unsigned char* const to = launch.buffer<unsigned char>(MARLIN_BUFFER_QUANTIZED) +
                            static_cast<long long>(m) * args.slots;
  float* const scales = launch.buffer<float>(MARLIN_BUFFER_QUANT_SCALES) +
                        (for_tiles ? m : static_cast<long long>(m) * (args.slots / row.kUnitSlots));
  const Int8Scale of_row(ROWS ? row.largest_of_row() : 0);
  for (int first = 0; first < args.slots; first += row.at_once()) {
    if (!ROWS || args.slots > row.at_once()) row.load(first);
    UNROLL for (int i = 0; i < row.kUnits; i++) {
      const int slot = row.slot(first, i);
      const bool exists = slot < args.slots;
      Int8Scale by = of_row;
      if constexpr (!ROWS) {
        u32 largest = exists ? row.units[i].largest() : 0;
        // Four lanes have a unit, and their neighbors the next.
        UNROLL for (int lanes = 1; lanes < 16; lanes *= 2) if (lanes < args.group / 8) largest =
            max(largest, __shfl_xor_sync(0xFFFFFFFFu, largest, lanes));
        by = Int8Scale(largest);
      }
      if (!exists) continue;
      const uint2 bytes = int8_bytes(row.units[i], by);
      if (for_tiles)
        write_for_tiles(bytes, to + slot);
      else
        write_in_order(bytes, to + slot);
      if (threadIdx.x % 4 == 0 && (!for_tiles || slot == 0))
        scales[slot / row.kUnitSlots] = by.scale;
    }
  }
}
template <class T>
__device__ inline void quantize_row(const CudaParameters& parameters) {
  const Launch launch{parameters};
  const int m = int(launch.group_y());
  RowUnits<T> row(launch, m);
  if (m >= row.args.m || !row.from.exists) return;
  if (row.args.group == 0)
    quantize_row<T, true>(launch, m, row);
  else
    quantize_row<T, false>(launch, m, row);
}
