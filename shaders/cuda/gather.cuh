// Rows of A in the order of the items of a table of routes, and sums of A over groups. The kernels
// `gather` and `group_sums` (helpers.cu) make them, and tiles of experts do (tile_routes.cuh).
#pragma once
#include "routes.cuh"

__device__ inline float as_float(float x) { return x; }
struct Half {
  static constexpr float kUnit = 1.0f;
  u16 bits;
};
struct Bfloat {
  static constexpr float kUnit = 1.0f / (1 << kFp4Exponent);  // of codes, as they are decoded
  u16 bits;
};
__device__ inline float as_float(Half x) { return f16_to_float(x.bits); }
__device__ inline float as_float(Bfloat x) { return bf16_to_float(x.bits); }
/// The type of 16-bit activations.
template <bool BF16>
struct GatheredElement {
  typedef Half Type;
};
template <>
struct GatheredElement<true> {
  typedef Bfloat Type;
};

/// What rows of A are prepared from: A and, with routing, the table.
struct RowSource {
  const int* table;         // of routes; null: row m of the result is row m of A
  int items, routed_rows;   // of the table
  int rows_of_a;            // the routed rows that share a row of A
  const int* slot_to_k;     // null: the order of A
  long long expert_stride;  // bytes from the slot_to_k of one expert to that of the next
};

/// What PrepareArgs say of the rows of A.
__device__ inline RowSource source_of(const Launch& launch) {
  const PrepareArgs& args = launch.arguments<PrepareArgs>();
  RowSource from{nullptr, args.items, args.m, args.rows_of_a, nullptr, args.expert_stride};
  if (launch.constant(MARLIN_CONSTANT_SLOT_TO_K) != 0)
    from.slot_to_k = launch.buffer<const int>(MARLIN_BUFFER_SOURCE_SLOTS);
  if (launch.constant(MARLIN_CONSTANT_ROUTING) != kRoutingNone)
    from.table = launch.buffer<const int>(MARLIN_BUFFER_ROUTES);
  return from;
}

/// Where row m of the prepared activations comes from: row m of A or, with routing, the row of the
/// routed row at place m of the sorted ones, in the order of columns of its expert.
struct PreparedRow {
  long long row;
  const int* slot_to_k;  // null: the order of A
  bool exists = true;

  __device__ PreparedRow(const RowSource& from, int m) : row(m), slot_to_k(from.slot_to_k) {
    if (from.table == nullptr) return;
    exists = m < from.table[1];
    if (!exists) return;
    const int routed_row = from.table[route_sorted_at(from.items) + m];
    row = token_of_row(routed_row, from.rows_of_a);
    if (slot_to_k == nullptr) return;
    const int expert = from.table[route_experts_at(from.items, from.routed_rows) + routed_row];
    slot_to_k += expert * from.expert_stride / static_cast<long long>(sizeof(int));
  }
  /// The column of a slot, or -1.
  __device__ int column(int slot, int k) const {
    const int column = slot_to_k != nullptr ? slot_to_k[slot] : slot;
    return column < k ? column : -1;
  }
};

constexpr int kGatheredSlots = 8;  // of a thread

/// Eight slots of a row of k columns of A; those that only fill up the slots are 0. `aligned`: the
/// row begins at a multiple of 16 bytes.
template <class T>
__device__ inline void load_slots(const T* row, const PreparedRow& from, int slot, int k,
                                  bool aligned, T (&x)[kGatheredSlots]) {
  if (aligned && from.slot_to_k == nullptr && slot + kGatheredSlots <= k) {
    UNROLL for (int i = 0; i < int(sizeof x / sizeof(uint4)); i++) reinterpret_cast<uint4*>(x)[i] =
        reinterpret_cast<const uint4*>(row + slot)[i];
    return;
  }
  UNROLL for (int i = 0; i < kGatheredSlots; i++) {
    const int column = from.column(slot + i, k);
    x[i] = column < 0 ? T{} : row[column];
  }
}

/// Adds up eight slots of row `m`, which are 0 if `row` is null, with those of the neighboring
/// lanes that have the others of a group of 2^shift slots, for tiles of weights with additive zeros
/// (tile_zeros.cuh):
///
///   two TF32 numbers each, [eight groups][eight rows of A][row][pair of groups][first numbers of
///   both, second numbers of both]
///
/// A has the order of slots, of which k are there, and `rows` is the most of its rows. Of bfloat16
/// the sums are 2^-14 of the sums, as the codes are (numbers.cuh). Whole warps call it.
template <class T>
__device__ inline void sum_slots(const T* row, int m, int rows, int slot, int k, bool aligned,
                                 int shift, float* to) {
  constexpr int kSlotsShift = 3;
  static_assert(1 << kSlotsShift == kGatheredSlots, "a thread's");
  float sum = 0.0f;
  if (row != nullptr) {
    alignas(16) T x[kGatheredSlots];
    if (aligned && slot + kGatheredSlots <= k)
      *reinterpret_cast<uint4*>(x) = *reinterpret_cast<const uint4*>(row + slot);
    else
      UNROLL for (int i = 0; i < kGatheredSlots; i++) x[i] = slot + i < k ? row[slot + i] : T{};
    UNROLL for (int i = 0; i < kGatheredSlots; i++) sum += as_float(x[i]) * T::kUnit;
  }
  for (int lanes = 1; lanes < 1 << (shift - kSlotsShift); lanes *= 2)
    sum += __shfl_xor_sync(0xFFFFFFFFu, sum, lanes);
  const int group = slot >> shift, part = (slot >> kSlotsShift) - (group << (shift - kSlotsShift));
  if (part >= 2) return;  // the first two lanes of a group write
  const Tf32Pair pair(sum);
  const long long eight = group / 8 * ((rows + 7ll) / 8) + m / 8;
  to[(eight * 32 + m % 8 * 4 + group % 8 / 2) * 4 + 2 * part + group % 2] =
      part == 0 ? pair.high : pair.low;
}
